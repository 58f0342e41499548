package kafka

import (
	"errors"
	"fmt"
	"math"
	"time"

	"outbox-relay/router"
)

const (
	// defaultMaxMessage is max.message.bytes of a broker that nobody configured.
	defaultMaxMessage = 1<<20 + 12
	// unknownMargin is kept below the default where the topic's own limit may not be read.
	unknownMargin = 1 << 10
	// stickyBytes is how much of the records without a key goes to one partition before the next one is taken.
	stickyBytes = 16 << 10
	// freshEnough is how old the knowledge about a topic may be when a record is refused by it.
	freshEnough = 5 * time.Second
	// maxMillis is the last timestamp that has a number of nanoseconds, which consumers count (sarama does), in the year 2262.
	maxMillis = math.MaxInt64 / int64(time.Millisecond)
	// clockSlack is how far the clocks of broker and relay may be apart before a timestamp is refused here and not by the broker.
	clockSlack = time.Minute
	// encodeLimit is what no request can carry.
	encodeLimit = 96 << 20
)

// limits are what a topic's configuration demands of records.
type limits struct {
	known      bool // false: not permitted to read them
	maxMessage int  // bytes of a batch
	checkTime  bool // message.timestamp.type is CreateTime
	before     time.Duration
	after      time.Duration
	compacted  bool
}

var defaultLimits = limits{maxMessage: defaultMaxMessage - unknownMargin}

// topic is what is known of a topic. The lock of the Publisher guards it.
//
//	unknown   no answer of a broker about it yet: partitions empty
//	ready     records go to partitions
//	settling  it has more partitions than are in use (grown): records wait in unrouted until none is in a partition
//	doubtful  a record did not pass the checks of new knowledge: what follows waits in unrouted until it was judged
//	checking  a record did not pass the checks of old knowledge: it and what follows wait in unrouted for new knowledge
type topic struct {
	name  string
	uuid  [16]byte
	parts []*partition
	grown int32 // partition count to adopt, 0 = none

	limits   limits
	limitsAt time.Time // when limits were read, zero = not yet
	metaAt   time.Time // when the partitions were read

	unrouted []*batch
	routed   int   // records in partitions
	timely   int64 // milliseconds; the newest time that clock saw
	checking bool
	doubtful int // batches in partitions that block the topic; see batch.blocks

	refreshAt time.Time // when metadata is wanted, zero = not
	askedAt   time.Time // when it was asked for last
	limitsOld bool
	failures  int

	stall string
	since time.Time

	sticky      int32
	stickyBytes int

	metrics topicMetrics
	// What was acknowledged and is not committed; own is the topic of checkpoints, whose records are not counted.
	own     bool
	records int
	bytes   int
}

// wait puts records behind those of their window that wait for the topic.
func (t *topic) wait(b *batch) {
	t.unrouted = append(t.unrouted, b)
	for i := len(t.unrouted) - 1; i > 0 && t.unrouted[i-1].window > b.window; i-- {
		t.unrouted[i-1], t.unrouted[i] = b, t.unrouted[i-1]
	}
}

// count notes an acknowledged batch, at once or when its window is committed.
func (t *topic) count(b *batch, later bool) {
	switch {
	case t.own:
	case later:
		t.records += b.count
		t.bytes += b.size
	default:
		t.metrics.records.Add(float64(b.count))
		t.metrics.bytes.Add(float64(b.size))
	}
}

// open tells whether a record may go to its partition at once.
func (t *topic) open() bool {
	return len(t.parts) > 0 && t.grown == 0 && len(t.unrouted) == 0 && !t.limitsAt.IsZero()
}

// fresh tells whether the topic is known well enough to refuse a record.
func (t *topic) fresh(now time.Time) bool {
	return now.Sub(t.metaAt) < freshEnough && now.Sub(t.limitsAt) < freshEnough
}

// unblock lets the records behind b go on once b is judged.
func (t *topic) unblock(b *batch) {
	if b.blocks {
		b.blocks = false
		t.doubtful--
	}
}

// clock gives the time for check, zero where the record's timestamp is good whatever the time is: rows of the past and the present are, in a topic that takes old
// ones, and asking the clock for each costs as much as its lock.
func (t *topic) clock(millis int64) time.Time {
	l := &t.limits
	if !l.checkTime || l.before == math.MaxInt64 && millis <= t.timely {
		return time.Time{}
	}
	now := time.Now()
	t.timely = now.UnixMilli() // the time only grows, so what was no future then is none later
	return now
}

// check tells whether the topic as it is known can take the record; now is of clock. A verdict of old knowledge has to be confirmed by new.
func (t *topic) check(key []byte, body int, millis int64, want int32, now time.Time) (reason string, err error) {
	l := &t.limits
	if want != router.AnyPartition && int(want) >= len(t.parts) {
		return ReasonInvalidPartition, fmt.Errorf("the topic has %d partitions", len(t.parts))
	}
	if !l.known {
		return "", nil // the broker decides
	}
	if size := aloneSize(body); size > l.maxMessage {
		return ReasonTooLarge, fmt.Errorf("the topic takes %d bytes before compression (max.message.bytes)", l.maxMessage)
	}
	if key == nil && l.compacted {
		return ReasonNullKey, errors.New("the topic is compacted")
	}
	if l.checkTime && !now.IsZero() {
		age := now.Sub(time.UnixMilli(millis))
		if age < 0 && -age-clockSlack > l.after {
			return ReasonInvalidTimestamp, fmt.Errorf("the topic takes timestamps up to %v ahead (message.timestamp.after.max.ms)", l.after)
		}
		if age > 0 && age-clockSlack > l.before {
			return ReasonInvalidTimestamp, fmt.Errorf("the topic takes timestamps up to %v old (message.timestamp.before.max.ms)", l.before)
		}
	}
	return "", nil
}

// checkAlways covers what no topic takes.
func checkAlways(name string, size int, millis int64, want int32) (reason string, err error) {
	switch {
	case millis < 0 || millis > maxMillis:
		return ReasonInvalidTimestamp, fmt.Errorf("%d ms is not between 1970 and 2262", millis)
	case size > encodeLimit:
		return ReasonTooLarge, fmt.Errorf("no request carries more than %d bytes", encodeLimit)
	case want < router.AnyPartition:
		return ReasonInvalidPartition, errors.New("negative partition")
	}
	if err := router.CheckTopic([]byte(name)); err != nil {
		return ReasonInvalidTopic, err
	}
	return "", nil
}

// choose gives the partition of a record.
func (t *topic) choose(partitioner func([]byte, int32) int32, key []byte, want int32, size int) *partition {
	if want >= 0 {
		return t.parts[want]
	}
	if key != nil {
		return t.parts[partitioner(key, int32(len(t.parts)))]
	}
	if t.stickyBytes > stickyBytes {
		t.stickyBytes = 0
		t.nextSticky()
	}
	if int(t.sticky) >= len(t.parts) {
		t.sticky = 0
	}
	t.stickyBytes += size
	return t.parts[t.sticky]
}

// nextSticky moves to the next partition that has a leader and is not halted; where there is none, to the next.
func (t *topic) nextSticky() {
	n := int32(len(t.parts))
	for i := int32(1); i <= n; i++ {
		if p := t.parts[(t.sticky+i)%n]; p.leader != unknownLeader && p.halted == nil {
			t.sticky = (t.sticky + i) % n
			return
		}
	}
	t.sticky = (t.sticky + 1) % n
}

// stalledParts counts the partitions that stand still for a reason, "" = any.
func (t *topic) stalledParts(reason string) (n int) {
	for _, part := range t.parts {
		if part.stall != "" && (reason == "" || part.stall == reason) {
			n++
		}
	}
	return n
}

// stalled notes that the topic stands still, and tells whether that is new.
func (t *topic) stalled(reason string, now time.Time) bool {
	if t.stall == reason {
		return false
	}
	if t.stall == "" {
		t.since = now
	}
	t.stall = reason
	return true
}
