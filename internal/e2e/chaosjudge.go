package e2e

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
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

// takenOver is what a relay writes when its session ended because another one had begun.
const takenOver = `msg="standing by: another instance has taken over"`

// judge compares what was committed with what a consumer receives.
func (r *chaosRun) judge(ctx context.Context) (*ChaosResult, error) {
	o := relaytest.Options{ByProducer: true, Restarts: r.crew.ends(), Examples: 20}
	for _, relay := range r.site.all() {
		o.Restarts += strings.Count(relay.Log(), takenOver)
	}
	if r.grown > 0 {
		o.GrownTopics = []string{r.growing()}
	}
	takeovers := o.Restarts - r.crew.ends()
	if r.o.ExactlyOnce {
		o.Restarts = 0
	}
	v, l := relaytest.NewValidator(o), newLedger()
	if err := r.site.ReadOracle(ctx, v); err != nil {
		return nil, err
	}
	err := r.site.Consume(ctx, func(m relaytest.Message) error {
		v.Received(m)
		if err := l.received(m); !errors.Is(err, errNoRow) {
			return err
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	res := &ChaosResult{
		Seed: r.o.Seed, Elapsed: time.Since(r.timeline.begin), ExactlyOnce: r.o.ExactlyOnce, Load: r.load.Stats(), Report: v.Report(), Disorder: slices.Concat(l.disorder, l.overtaken()), Back: r.sampler.back,
		Kills: r.crew.kills, Stops: r.crew.stops, Takeovers: takeovers, Samples: len(r.sampler.samples), Partitions: r.grown,
	}
	res.Compared, res.Ahead = l.ahead(r.sampler.samples)
	res.longest, res.healed = r.timeline.longest()
	for _, f := range r.faults {
		res.Faults = append(res.Faults, ChaosCount{Name: f.name, Made: r.counts[f.name].made, Refused: r.counts[f.name].refused})
	}
	return res, nil
}

// record writes all that is known of a failed campaign into its folder, and keeps that.
func (r *chaosRun) record(ctx context.Context, account string, messages bool) (dir string) {
	r.site.Keep()
	dir = r.site.Dir
	_ = os.WriteFile(filepath.Join(dir, "account.txt"), []byte(account+"\n"), 0o644) // what cannot be written is missed there
	_ = os.WriteFile(filepath.Join(dir, "timeline.txt"), []byte(r.timeline.String()), 0o644)
	_ = os.WriteFile(filepath.Join(dir, "mysql.log"), []byte(r.o.MySQL.LogTail()), 0o644)
	for i := range r.o.Kafka.Addrs() {
		b := r.o.Kafka.Broker(i + 1)
		log, _ := os.ReadFile(filepath.Join(filepath.Dir(b.DataDir()), "kafka.log"))
		_ = os.WriteFile(filepath.Join(dir, fmt.Sprintf("broker-%d.log", i+1)), log, 0o644)
	}
	if messages {
		_ = r.recordMessages(context.WithoutCancel(ctx), filepath.Join(dir, "messages.tsv.gz"))
	}
	return dir
}

// recordMessages writes a line for each message: topic, partition, offset, producer, key, id, position.
func (r *chaosRun) recordMessages(ctx context.Context, path string) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	z := gzip.NewWriter(f)
	defer func() { err = errors.Join(err, z.Close(), f.Close()) }()
	return r.site.Consume(ctx, func(m relaytest.Message) error {
		_, err := fmt.Fprintf(z, "%s\t%d\t%d\t%d\t%s\t%s\t%s\n", m.Topic, m.Partition, m.Offset, m.Producer, m.Key, headerOf(m, "id"), headerOf(m, "outbox-relay-position"))
		return err
	})
}

// ChaosResult is the account of a chaos campaign.
type ChaosResult struct {
	Seed         uint64
	Elapsed      time.Duration
	ExactlyOnce  bool
	Faults       []ChaosCount
	Kills, Stops int // of the relay
	Takeovers    int // by the other relay, from one that lived on
	Partitions   int // of the topic that got some; 0 means that it did not
	Load         LoadStats
	Report       *relaytest.Report
	// Disorder are rows whose payload has a lower number than one of their key that came before.
	Disorder []string
	// Samples of checkpoints, how many arrivals could be Compared with them, those that were Ahead of Kafka, and those that went Back.
	Samples, Compared int
	Ahead, Back       []string
	// Folder holds what is known of a campaign that broke the promise.
	Folder string

	longest, healed stall
}

// ChaosCount is how often a fault was made. Refused ones were begun, and the servers did not do all of it.
type ChaosCount struct {
	Name          string
	Made, Refused int
}

// Err is nil when the campaign kept the promise.
func (r *ChaosResult) Err() error {
	errs := []error{r.Report.Err()}
	few := func(what string, all []string) {
		if len(all) > 0 {
			errs = append(errs, fmt.Errorf("%d %s: %q", len(all), what, all[:min(5, len(all))]))
		}
	}
	few("payloads out of order", r.Disorder)
	few("checkpoints ahead of Kafka", r.Ahead)
	few("checkpoints that went back", r.Back)
	if r.ExactlyOnce && r.Report.Duplicates > 0 {
		errs = append(errs, fmt.Errorf("%d duplicates under exactly-once", r.Report.Duplicates))
	}
	if err := errors.Join(errs...); err != nil {
		if r.Folder != "" {
			err = fmt.Errorf("%w\nwhat is known of it is in %s", err, r.Folder)
		}
		return fmt.Errorf("seed %d broke the promise: %w", r.Seed, err)
	}
	return nil
}

// String is the table of figures.
func (r *ChaosResult) String() string {
	made := 0
	var faults [][2]string
	for _, f := range r.Faults {
		made += f.Made
		count := fmt.Sprint(f.Made)
		if f.Refused > 0 {
			count += fmt.Sprintf(", %d not taken by the servers", f.Refused)
		}
		faults = append(faults, [2]string{"  " + f.Name, count})
	}
	says := func(s stall) string {
		return fmt.Sprintf("%.1f s, %.1f s of them with all undone: %s", s.length().Seconds(), s.alone.Seconds(), s.causes)
	}
	rows := slices.Concat([][2]string{
		{"seed", fmt.Sprint(r.Seed)},
		{"length", fmt.Sprintf("%.0f s", r.Elapsed.Seconds())},
		{"faults", fmt.Sprint(made)},
	}, faults, [][2]string{
		{"kills, stops, takeovers of the relay", fmt.Sprintf("%d, %d, %d", r.Kills, r.Stops, r.Takeovers)},
		{"committed transactions", fmt.Sprintf("%d in %.0f s, %d rolled back, %d of unknown end", r.Load.Transactions, r.Load.Elapsed.Seconds(), r.Load.RolledBack, r.Load.Unknown)},
		{"committed rows", fmt.Sprintf("%d of %d keys in %d partitions, %.0f per second", r.Report.Committed, r.Report.Keys, r.Report.Partitions, float64(r.Report.Committed)/r.Elapsed.Seconds())},
		{"received", fmt.Sprint(r.Report.Received)},
		{"lost", fmt.Sprint(r.Report.Count(relaytest.Lost))},
		{"out of order", fmt.Sprint(r.Report.Count(relaytest.OutOfOrder) + len(r.Disorder))},
		{"keys on two partitions", fmt.Sprint(r.Report.Count(relaytest.TwoPartitions))},
		{"not committed but received", fmt.Sprint(r.Report.Count(relaytest.Phantom))},
		{"duplicates", fmt.Sprintf("%d, at most %d replays of a partition", r.Report.Duplicates, r.Report.Replays)},
		{"duplicates that are no replayed suffix", fmt.Sprint(r.Report.Count(relaytest.Replay))},
		{"checkpoints read", fmt.Sprintf("%d, compared with %d arrivals in Kafka", r.Samples, r.Compared)},
		{"checkpoints ahead of Kafka", fmt.Sprint(len(r.Ahead))},
		{"longest time without acknowledgement", says(r.longest)},
		{"longest after all was undone", says(r.healed)},
	})
	return table(rows)
}
