package labels_test

import (
	"testing"

	"outbox-relay/internal/labels"
)

func TestValuesBeyondTheLimitAreOther(t *testing.T) {
	t.Parallel()
	b := labels.Bounded{Limit: 2}
	for _, c := range [][2]string{{"a", "a"}, {"b", "b"}, {"c", "other"}, {"a", "a"}, {"b", "b"}, {"c", "other"}} {
		if got := b.Of(c[0]); got != c[1] {
			t.Errorf("%s is %s, want %s", c[0], got, c[1])
		}
	}
}
