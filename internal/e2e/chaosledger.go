package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"
	"time"

	"github.com/IBM/sarama"

	"outbox-relay/binlog/gtid"
	"outbox-relay/relay/relaytest"
)

// place is a partition.
type place struct {
	topic     string
	partition int32
}

// sample is a stored position, and where the partitions ended right after it was read.
type sample struct {
	set  *gtid.Set
	ends map[place]int64 // without those that did not answer
}

// sampler takes samples while the campaign runs. What a checkpoint contains has to be in Kafka already.
type sampler struct {
	run     *chaosRun
	samples []sample
	// back names positions that lack what one before contained.
	back []string
}

const (
	sampleInterval = 2 * time.Second
	// brokerHealing is how long after its return a broker may still take itself for the leader that it was, and tell an old end.
	brokerHealing = 15 * time.Second
)

// watch takes samples until ctx ends.
func (s *sampler) watch(ctx context.Context) {
	for pause(ctx, sampleInterval) == nil {
		begin := time.Now()
		set, err := s.run.stored(ctx)
		if err != nil {
			continue
		}
		if n := len(s.samples); n > 0 && !set.ContainsSet(s.samples[n-1].set) {
			s.back = append(s.back, fmt.Sprintf("%s: %s after %s", begin.UTC().Format(time.RFC3339Nano), set, s.samples[n-1].set))
		}
		x := sample{set: set, ends: map[place]int64{}}
		_ = s.run.operate(func(admin sarama.ClusterAdmin) error { return s.ends(admin, x.ends) }) // what does not answer is not known
		if s.run.timeline.during(groupBroker, begin, brokerHealing) {
			clear(x.ends)
		}
		s.samples = append(s.samples, x)
	}
}

func (s *sampler) ends(admin sarama.ClusterAdmin, ends map[place]int64) error {
	ask := map[string]map[int32]int64{}
	for _, topic := range s.run.site.Topics() {
		ask[topic] = map[int32]int64{}
		for p := range s.run.partitions(topic) {
			ask[topic][int32(p)] = sarama.OffsetNewest
		}
	}
	answers, err := admin.ListOffsets(ask, nil)
	for topic, partitions := range answers {
		for p, a := range partitions {
			if errors.Is(a.Err, sarama.ErrNoError) {
				ends[place{topic, p}] = a.Offset
			}
		}
	}
	return err
}

// ledger notes the first arrival of each row.
type ledger struct {
	seen         map[uint64]struct{} // ids
	seqs         map[string]int      // by topic, partition and key: the highest number of the payloads
	transactions map[string]int      // index in gtids
	gtids        []gtid.GTID
	arrivals     []arrival
	last         map[place]int // index in arrivals
	disorder     []string      // payloads whose numbers fall
	// moving has, for topics whose brokers tell when they appended, by topic and key: when each number came first, in whatever partition.
	moving map[string]map[int]int64
}

// arrival is the last of a transaction's rows to arrive first in a partition.
type arrival struct {
	transaction int
	at          place
	offset      int64
}

func newLedger() *ledger {
	return &ledger{seen: map[uint64]struct{}{}, seqs: map[string]int{}, transactions: map[string]int{}, last: map[place]int{}, moving: map[string]map[int]int64{}}
}

var errNoRow = errors.New("no row of the load")

func (l *ledger) received(m relaytest.Message) error {
	id, err := strconv.ParseUint(headerOf(m, "id"), 10, 64)
	if err != nil {
		return errNoRow // the validator tells
	}
	_, again := l.seen[id]
	l.seen[id] = struct{}{}
	l.number(m, again)
	if again {
		return nil
	}
	text, _, _ := bytes.Cut([]byte(headerOf(m, "outbox-relay-position")), []byte("#"))
	transaction, known := l.transactions[string(text)]
	if !known {
		g, err := gtid.Parse(string(text))
		if err != nil {
			return errNoRow
		}
		transaction = len(l.gtids)
		l.transactions[string(text)], l.gtids = transaction, append(l.gtids, g)
	}
	at := place{m.Topic, m.Partition}
	if i, ok := l.last[at]; ok && l.arrivals[i].transaction == transaction {
		l.arrivals[i].offset = m.Offset
		return nil
	}
	l.last[at] = len(l.arrivals)
	l.arrivals = append(l.arrivals, arrival{transaction, at, m.Offset})
	return nil
}

var seqMark = []byte(`"seq": `)

// number judges the order of a key by the numbers that the load wrote, which know nothing of ids.
func (l *ledger) number(m relaytest.Message, again bool) {
	_, rest, ok := bytes.Cut(m.Value, seqMark)
	if !ok {
		return
	}
	digits, _, _ := bytes.Cut(rest, []byte(","))
	seq, err := strconv.Atoi(string(digits))
	if err != nil {
		return
	}
	if m.Appended > 0 {
		key := m.Topic + "/" + string(m.Key)
		if l.moving[key] == nil {
			l.moving[key] = map[int]int64{}
		}
		if first, known := l.moving[key][seq]; !known || m.Appended < first {
			l.moving[key][seq] = m.Appended
		}
	}
	if again {
		return
	}
	key := fmt.Sprintf("%s/%d/%s", m.Topic, m.Partition, m.Key)
	if seq <= l.seqs[key] {
		l.disorder = append(l.disorder, fmt.Sprintf("%s@%d: number %d after %d", key, m.Offset, seq, l.seqs[key]))
	}
	l.seqs[key] = max(seq, l.seqs[key])
}

// overtaken names rows that came first when a later one of their key was there already, in another partition.
func (l *ledger) overtaken() (faults []string) {
	for key, times := range l.moving {
		latest, before := int64(0), 0
		for _, seq := range slices.Sorted(maps.Keys(times)) {
			if times[seq] < latest {
				faults = append(faults, fmt.Sprintf("%s: number %d came %d ms before number %d", key, seq, latest-times[seq], before))
				continue
			}
			latest, before = times[seq], seq
		}
	}
	return faults
}

func headerOf(m relaytest.Message, name string) string {
	for _, h := range m.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

// ahead names the rows that a checkpoint contained before they were in Kafka.
func (l *ledger) ahead(samples []sample) (compared int, faults []string) {
	first := make([]int, len(l.gtids)) // the first sample that contains the transaction
	for i, g := range l.gtids {
		first[i] = sort.Search(len(samples), func(n int) bool { return samples[n].set.Contains(g) })
	}
	for _, a := range l.arrivals {
		n := first[a.transaction]
		if n == len(samples) {
			continue
		}
		end, known := samples[n].ends[a.at]
		if !known {
			continue
		}
		compared++
		if a.offset >= end {
			faults = append(faults, fmt.Sprintf("transaction %v was in a checkpoint when %s[%d] ended at %d; its row came at %d", l.gtids[a.transaction], a.at.topic, a.at.partition, end, a.offset))
		}
	}
	return compared, faults
}
