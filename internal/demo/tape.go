package main

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"outbox-relay/relay/relaytest"
)

// tape prints records as they arrive: all while there are few, then one a second and the number of those between. It also counts them.
type tape struct {
	screen *screen

	mu        sync.Mutex
	tokens    float64 // how many may be printed at once
	filled    time.Time
	skipped   int
	received  int
	distinct  map[string]struct{} // topic and id
	mark      func()              // called once by the next record
	onAdvance chan struct{}       // gets an element, at most one, when a record arrived
}

const (
	tapeBurst     = 6
	tapePerSecond = 1.0
	idHeader      = "id"
)

func newTape(s *screen) *tape {
	return &tape{screen: s, tokens: tapeBurst, filled: time.Now(), distinct: make(map[string]struct{}), onAdvance: make(chan struct{}, 1)}
}

// receive takes a record that arrived. It keeps nothing of m.
func (t *tape) receive(m relaytest.Message, now time.Time) {
	t.mu.Lock()
	t.received++
	id := ""
	for _, h := range m.Headers {
		if h.Key == idHeader {
			id = string(h.Value)
		}
	}
	before := len(t.distinct)
	t.distinct[m.Topic+" "+id] = struct{}{}
	again := len(t.distinct) == before
	mark := t.mark
	t.mark = nil
	t.tokens = min(tapeBurst, t.tokens+tapePerSecond*now.Sub(t.filled).Seconds())
	t.filled = now
	var lines []string
	if t.tokens < 1 {
		t.skipped++
	} else {
		t.tokens--
		lines = t.lines(m, again)
		t.skipped = 0
	}
	t.mu.Unlock()

	if mark != nil {
		mark()
	}
	if lines != nil {
		t.screen.print(lines...)
	}
	select {
	case t.onAdvance <- struct{}{}:
	default:
	}
}

// onNext has f called once by the next record.
func (t *tape) onNext(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mark = f
}

// refill lets the next records be printed again, however many came before.
func (t *tape) refill() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tokens = tapeBurst
}

// counts gives how many records came, and of how many rows.
func (t *tape) counts() (received, distinct int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.received, len(t.distinct)
}

// lines shows a record: where it is and its key, then its headers, then its payload.
func (t *tape) lines(m relaytest.Message, again bool) []string {
	var lines []string
	if t.skipped > 0 {
		lines = append(lines, t.screen.paint(dim, fmt.Sprintf("           … and %s more", number(t.skipped))))
	}
	place := fmt.Sprintf("%s partition %d offset %d  key %s", m.Topic, m.Partition, m.Offset, m.Key)
	if again {
		place += "  (again: a duplicate after the restart)"
	}
	var headers []string
	for _, h := range m.Headers {
		headers = append(headers, h.Key+"="+string(h.Value))
	}
	last := max(0, len(headers)-1) // the position, which is long
	return append(lines,
		t.screen.paint(green, "  ▸ ")+place,
		t.screen.paint(dim, t.screen.fit("      headers  "+strings.Join(headers[:last], "  "))),
		t.screen.paint(dim, t.screen.fit("               "+strings.Join(headers[last:], "  "))),
		t.screen.fit("      payload  "+string(m.Value)))
}
