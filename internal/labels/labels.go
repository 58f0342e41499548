// Package labels bounds the values that a label of metrics has.
package labels

import "sync"

// Other stands for all values beyond the limit.
const Other = "other"

// Bounded gives the first Limit values as they are and all later ones as Other. Safe for concurrent use.
type Bounded struct {
	Limit int

	mu    sync.Mutex
	known map[string]struct{}
}

// Of gives the value to use for one.
func (b *Bounded) Of(value string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.known[value]; ok {
		return value
	}
	if len(b.known) >= b.Limit {
		return Other
	}
	if b.known == nil {
		b.known = map[string]struct{}{}
	}
	b.known[value] = struct{}{}
	return value
}
