package kafka_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A place is stored, or it is said that it is not: while the group moves to another broker too. Letters that were published again would be so once more, and
// their keys stay parked.
func TestAPlaceIsStoredWhileTheGroupMoves(t *testing.T) {
	t.Parallel()
	for _, code := range []*kerr.Error{kerr.NotCoordinator, kerr.CoordinatorLoadInProgress, kerr.CoordinatorNotAvailable} {
		t.Run(code.Message, func(t *testing.T) {
			t.Parallel()
			cluster, brokers := fake(t, kfake.SeedTopics(2, "dead"))
			l := openLetters(t, brokers, "dead")
			cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: code, Count: 2})
			if err := l.Done(1, 7); err != nil {
				t.Fatal(err)
			}
			places, err := openLetters(t, brokers, "dead").Places(t.Context())
			if err != nil || places[1].Offset != 7 {
				t.Errorf("got %+v, %v", places, err)
			}
		})
	}
}

// Where it cannot be learned how far the letters were published again, nothing is read: all of them would be published again.
func TestAnUnknownPlaceIsAnError(t *testing.T) {
	t.Parallel()
	cluster, brokers := fake(t, kfake.SeedTopics(2, "dead"))
	l := openLetters(t, brokers, "dead")
	if err := l.Done(1, 7); err != nil {
		t.Fatal(err)
	}
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetFetch}, Err: kerr.TopicAuthorizationFailed, Count: -1})
	if places, err := openLetters(t, brokers, "dead").Places(t.Context()); err == nil {
		t.Errorf("got %+v", places)
	}
}
