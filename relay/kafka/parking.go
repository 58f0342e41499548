package kafka

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"outbox-relay/router"
)

// Parking keeps the order of keys that have dead letters: records that follow such a letter are judged too, for [ReasonParked], and what is published instead
// of them goes behind it, until the letters of the key are published again. What is parked is what the topics of dead letters hold behind the place that
// [Letters.Done] stored: nothing else is remembered, so it outlives a restart.
type Parking struct {
	// Topic gives the topic of dead letters of a rule, empty where its keys are not parked. It gives the same each time.
	Topic func(rule int32) string
	// Topics are all that Topic gives. They are read at the start, and no record of a rule that parks is sent before.
	Topics []string
	// Group is the consumer group in which Letters remembers.
	Group string
	// Of gives the topic that refused the record of a letter, false if the letter is none of this relay.
	Of func(letter *router.Record) (topic string, ok bool)
	// Limit is how many keys are parked at most. A letter of one more halts its partition with [ErrParkedKeys].
	Limit int
}

// ErrParkedKeys is the cause of a halt when as many keys are parked as may be.
var ErrParkedKeys = errors.New("no more keys may be parked")

const (
	// parkedPoll is how often it is asked how far the letters were published again, while keys are parked.
	parkedPoll = 250 * time.Millisecond
	// parkedPollWaiting is the same while records wait for the answer.
	parkedPollWaiting = 50 * time.Millisecond
	// closingLimit is how long records of parked keys wait while whoever publishes letters again says that he is at their end, and makes no progress.
	closingLimit = time.Second
)

// parkKey stands for a topic of letters, a topic and a key: of the first half of SHA-256.
type parkKey [16]byte

// parked is a key with letters that were not published again.
type parked struct {
	letters string // their topic
	flying  int    // of them that are not acknowledged
	last    []spot // of the acknowledged ones; one in each partition where there are any
}

// spot is a place in a topic of letters.
type spot struct {
	partition int32
	offset    int64
}

// corner is a partition of a topic of letters.
type corner struct {
	topic     string
	partition int32
}

// closing is a corner whose letters are being published again up to the last.
type closing struct {
	offset int64
	until  time.Time
}

// parking is the state of Parking. The lock of the Publisher guards it; letters belongs to its goroutine.
type parking struct {
	o       *Parking
	p       *Publisher
	keys    map[parkKey]*parked
	loaded  bool
	closing map[corner]closing
	waiting []*partition // whose heads hold records that may have to be parked: on hold
	buf     []byte       // of keyOf

	letters map[string]*Letters
}

func newParking(p *Publisher) *parking {
	return &parking{o: p.o.Parking, p: p, keys: map[parkKey]*parked{}, closing: map[corner]closing{}, letters: map[string]*Letters{}}
}

func (k *parking) keyOf(letters, topic string, key []byte) parkKey {
	k.buf = append(append(append(append(append(k.buf[:0], letters...), 0), topic...), 0), key...)
	sum := sha256.Sum256(k.buf)
	if cap(k.buf) > maxChunk {
		k.buf = nil
	}
	return parkKey(sum[:16])
}

// keyOfLetter gives the key that a letter parks, false if it parks none.
func (k *parking) keyOfLetter(letter *router.Record) (parkKey, bool) {
	if letter.Key == nil {
		return parkKey{}, false
	}
	topic, ok := k.o.Of(letter)
	if !ok || topic == letter.Topic || router.CheckTopic([]byte(topic)) != nil { // nothing but letters goes there
		return parkKey{}, false
	}
	return k.keyOf(letter.Topic, topic, letter.Key), true
}

// parks tells whether the rule of an entry parks keys, and the entry has one, is no letter itself and was not judged.
func (p *Publisher) parks(t *topic, e entry) bool {
	letters := p.origins[e.origin()].letters
	return letters != "" && letters != t.name && !e.instead() && e.key() != nil
}

// sift looks for records of parked keys in the head of a partition before it is sent the first time. True means that it is not to be sent now: such records
// are in front of it and will be judged, or it waits. Nothing of the partition is in a request, so no record of a key is sent while an earlier one of it
// waits for its judgement.
func (p *Publisher) sift(part *partition) bool {
	k, b := p.parking, part.queue[0]
	if k == nil || b.numbered || b.unknown || k.loaded && len(k.keys) == 0 {
		return false
	}
	if !k.loaded && p.txn != nil && slices.Contains(k.o.Topics, part.topic.name) {
		k.hold(part) // letters are read up to their end, which an open transaction with one of them would hide for as long as it waits for that
		return true
	}
	var found []int
	i := -1
	for e := range b.entries() {
		i++
		if !p.parks(part.topic, e) {
			continue
		}
		if !k.loaded {
			k.hold(part)
			return true
		}
		one := k.keys[k.keyOf(p.origins[e.origin()].letters, part.topic.name, e.key())]
		if one == nil {
			continue
		}
		if k.isClosing(one) {
			k.hold(part)
			return true
		}
		found = append(found, i)
	}
	if len(found) == 0 {
		return false
	}
	p.setAside(part, found)
	p.kick(part)
	return true
}

// setAside puts records of the head in front of it, in a batch that will be judged.
func (p *Publisher) setAside(part *partition, found []int) {
	b := part.queue[0]
	if len(found) == b.count {
		b.sealed, b.parked, b.poison = true, true, &PoisonError{}
		return
	}
	aside := &batch{openedAt: b.openedAt, window: b.window, sealed: true, parked: true, poison: &PoisonError{}}
	rest := &batch{openedAt: b.openedAt, window: b.window, sealed: b.sealed}
	i := 0
	for e := range b.entries() {
		to := rest
		if len(found) > 0 && found[0] == i {
			to, found = aside, found[1:]
		}
		copy(to.add(&p.chunks, len(e), e.body(), e.millis()), e)
		i++
	}
	part.pending += aside.size + rest.size - b.size
	b.release(&p.chunks)
	part.replaceHead([]*batch{aside, rest})
}

// hold keeps a partition until the next answer about the letters.
func (k *parking) hold(part *partition) {
	if !part.onHold {
		part.onHold = true
		k.waiting = append(k.waiting, part)
	}
}

// goOn lets the partitions on hold look again.
func (k *parking) goOn() {
	waiting := k.waiting
	k.waiting = nil
	for _, part := range waiting {
		part.onHold = false
		k.p.kick(part)
	}
}

// isClosing tells whether the letters of a key are about to be published again up to the last.
func (k *parking) isClosing(one *parked) bool {
	for _, s := range one.last {
		if c, ok := k.closing[corner{one.letters, s.partition}]; ok && time.Now().Before(c.until) {
			return true
		}
	}
	return false
}

// full tells why a letter may not be published: it would park a key too many.
func (k *parking) full(letter *router.Record) error {
	if len(k.keys) < k.o.Limit {
		return nil
	}
	id, ok := k.keyOfLetter(letter)
	if !ok || k.keys[id] != nil {
		return nil
	}
	return fmt.Errorf("%w: %d are", ErrParkedKeys, len(k.keys))
}

// sent notes that a letter is on its way (n = 1), or that it will not be published after all (n = -1).
func (k *parking) sent(letter *router.Record, n int) {
	id, ok := k.keyOfLetter(letter)
	if !ok {
		return
	}
	one := k.keys[id]
	if one == nil {
		one = &parked{letters: letter.Topic}
		k.keys[id] = one
	}
	if one.flying += n; one.flying == 0 && len(one.last) == 0 {
		delete(k.keys, id)
	}
}

// acked notes where a letter is now.
func (k *parking) acked(letter *router.Record, s spot) {
	id, ok := k.keyOfLetter(letter)
	if !ok || k.keys[id] == nil {
		return
	}
	k.keys[id].flying--
	k.keys[id].at(s)
}

func (one *parked) at(s spot) {
	for i := range one.last {
		if one.last[i].partition == s.partition {
			one.last[i].offset = max(one.last[i].offset, s.offset)
			return
		}
	}
	one.last = append(one.last, s)
}

// ackedLetters notes where the letters of an acknowledged batch are.
func (p *Publisher) ackedLetters(part *partition, b *batch) {
	i := int64(-1)
	for e := range b.entries() {
		i++
		o := p.origins[e.origin()]
		if !e.instead() || o.letters != part.topic.name {
			continue
		}
		s := spot{part.index, b.offset + i}
		if b.offset < 0 { // the broker knew the batch and did not say where it is: not released before a restart reads the topic
			s.offset = 1<<63 - 1
		}
		p.parking.acked(e.record(part.topic.name, o), s)
	}
}

// run reads what is parked, and then watches how far the letters are published again, until ctx ends.
func (k *parking) run(ctx context.Context) {
	defer k.close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	failures := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		wait, err := k.step(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			k.close()
			if failures == 0 {
				k.p.o.Logger.Warn("dead letters cannot be read; keys stay parked", "err", err)
			}
			k.p.mu.Lock()
			k.p.failed(err)
			k.p.mu.Unlock()
			wait = backoff(failures, retrySlowMin, retrySlowMax)
			failures++
		} else {
			failures = 0
		}
		timer.Reset(wait)
	}
}

// step reads or asks once, and tells when to ask again.
func (k *parking) step(ctx context.Context) (time.Duration, error) {
	k.p.mu.Lock()
	loaded, keys := k.loaded, len(k.keys)
	k.p.mu.Unlock()
	var err error
	switch {
	case !loaded:
		err = k.load(ctx)
	case keys > 0:
		err = k.ask(ctx)
	}
	if err != nil {
		return 0, err
	}
	k.p.mu.Lock()
	defer k.p.unlock()
	k.goOn()
	if len(k.waiting) > 0 {
		return parkedPollWaiting, nil
	}
	return parkedPoll, nil
}

// open gives the reader of a topic; nil if there is no such topic, and so no letter.
func (k *parking) open(ctx context.Context, topic string) (*Letters, error) {
	if l := k.letters[topic]; l != nil {
		return l, nil
	}
	l, err := OpenLetters(ctx, k.p.o.Options, topic, k.o.Group)
	if err == nil {
		k.letters[topic] = l
	}
	return l, err
}

func (k *parking) close() {
	for topic, l := range k.letters {
		delete(k.letters, topic)
		go l.Close() //nolint:errcheck // ends with its connections, which may take seconds
	}
}

// load reads the letters that were not published again.
func (k *parking) load(ctx context.Context) error {
	keys := map[parkKey]*parked{}
	for _, topic := range k.o.Topics {
		l, err := k.open(ctx, topic)
		if err != nil {
			return err
		}
		err = l.Read(ctx, Reading{Whole: true}, func(x Letter) error {
			k.p.mu.Lock()
			id, ok := k.keyOfLetter(x.Record)
			k.p.mu.Unlock()
			if !ok {
				return nil
			}
			if keys[id] == nil {
				if len(keys) >= k.o.Limit {
					return ErrParkedKeys
				}
				keys[id] = &parked{letters: topic}
			}
			keys[id].at(spot{x.Partition, x.Offset})
			return nil
		})
		switch {
		case errors.Is(err, sarama.ErrUnknownTopicOrPartition): // not made yet
		case errors.Is(err, ErrParkedKeys):
			k.p.o.Poisoned(&PoisonError{Reason: ReasonParked, Topic: topic, Partition: router.AnyPartition, Err: fmt.Errorf("%w: the topic has letters of more than %d", ErrParkedKeys, k.o.Limit)})
			<-ctx.Done()
			return ctx.Err()
		case err != nil:
			return err
		}
	}
	k.p.mu.Lock()
	defer k.p.mu.Unlock()
	for id, one := range keys {
		if have := k.keys[id]; have != nil { // a letter was sent meanwhile
			for _, s := range one.last {
				have.at(s)
			}
		} else {
			k.keys[id] = one
		}
	}
	k.loaded = true
	return nil
}

// ask learns how far the letters are published again, and releases the keys that have none left.
func (k *parking) ask(ctx context.Context) error {
	done := map[corner]Place{}
	for _, topic := range k.o.Topics {
		l, err := k.open(ctx, topic)
		if err != nil {
			return err
		}
		places, err := l.Places(ctx)
		if err != nil && !errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
			return err
		}
		for partition, place := range places {
			done[corner{topic, partition}] = place
		}
	}
	k.p.mu.Lock()
	defer k.p.unlock()
	now := time.Now()
	for at, place := range done {
		switch c, known := k.closing[at]; {
		case !place.Closing:
			delete(k.closing, at)
		case !known || c.offset != place.Offset:
			k.closing[at] = closing{place.Offset, now.Add(closingLimit)}
		}
	}
	for id, one := range k.keys {
		left := slices.ContainsFunc(one.last, func(s spot) bool { return done[corner{one.letters, s.partition}].Offset <= s.offset })
		if one.flying == 0 && !left {
			delete(k.keys, id)
		}
	}
	return nil
}
