package kafka_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"outbox-relay/internal/sandbox"
	"outbox-relay/relay/kafka"
	"outbox-relay/relay/kafka/conn"
	"outbox-relay/relay/kafka/txn"
	"outbox-relay/relay/relaytest"
	"outbox-relay/router"
)

// transactor is a publisher in transactions with the topic of its checkpoints.
type transactor struct {
	t           testing.TB
	brokers     []string
	checkpoints string
	p           *kafka.Publisher
	coordinator *txn.Coordinator
	poison      chan *kafka.PoisonError
	ended       chan error
	stop        context.CancelFunc
	cuts        int
}

func startTransactor(t testing.TB, brokers []string, checkpoints, id string, change func(*kafka.Options, *txn.Options)) *transactor {
	t.Helper()
	x := &transactor{t: t, brokers: brokers, checkpoints: checkpoints, poison: make(chan *kafka.PoisonError, 10), ended: make(chan error, 1)}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	o := kafka.Options{
		Brokers: brokers, Logger: log, Acked: func([]uint64) { t.Error("Acked was called in a transaction") },
		Poisoned: func(e *kafka.PoisonError) { x.poison <- e },
	}
	c := txn.Options{Brokers: brokers, ID: id, Logger: log, Conn: conn.Options{ClientID: "test", Version: sarama.V3_7_0_0}}
	if change != nil {
		change(&o, &c)
	}
	var err error
	if x.coordinator, err = txn.New(c); err != nil {
		t.Fatal(err)
	}
	if _, err := x.coordinator.Fence(context.Background()); err != nil {
		t.Fatal(err)
	}
	o.Coordinator = x.coordinator
	if x.p, err = kafka.New(o); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	x.stop = cancel
	go func() { x.ended <- x.p.Run(ctx) }()
	t.Cleanup(func() { cancel(); x.coordinator.Close() })
	return x
}

func (x *transactor) publish(topic string, from, to int) {
	x.t.Helper()
	for i := from; i < to; i++ {
		if err := x.p.Publish(ctxTimeout(x.t, time.Minute), record(topic, fmt.Sprintf("key-%d", i%50), uint64(i)), uint64(i)); err != nil {
			x.t.Fatalf("publishing %d: %v", i, err)
		}
	}
}

func (x *transactor) cut() {
	x.t.Helper()
	x.cuts++
	rec := &router.Record{Topic: x.checkpoints, Key: []byte("k"), Value: fmt.Appendf(nil, "%08d", x.cuts), TimestampMillis: time.Now().UnixMilli(), Partition: 0}
	if err := x.p.Cut(rec); err != nil {
		x.t.Fatal(err)
	}
}

func (x *transactor) commit() {
	x.t.Helper()
	if err := x.p.Commit(ctxTimeout(x.t, time.Minute)); err != nil {
		x.t.Fatalf("committing: %v; %+v", err, x.p.Stats())
	}
}

// visible gives the numbers that a read_committed consumer sees, by partition, after the markers of the last transaction are written.
func (x *transactor) visible(topic string) (all []int) {
	x.t.Helper()
	c, err := txn.New(txn.Options{Brokers: x.brokers, ID: x.coordinator.ID(), Conn: conn.Options{ClientID: "test", Version: sarama.V3_7_0_0}})
	if err != nil {
		x.t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Fence(context.Background()); err != nil {
		x.t.Fatal(err)
	}
	last := map[int32]int{}
	err = relaytest.Consume(context.Background(), relaytest.ConsumeOptions{Brokers: x.brokers, Topics: []string{topic}, ReadCommitted: true}, func(m relaytest.Message) error {
		n := int(binary.BigEndian.Uint64(m.Value))
		if before, ok := last[m.Partition]; ok && n <= before {
			x.t.Errorf("partition %d: %d behind %d", m.Partition, n, before)
		}
		last[m.Partition] = n
		all = append(all, n)
		return nil
	})
	if err != nil {
		x.t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

func (x *transactor) wantVisible(topic string, n int) {
	x.t.Helper()
	got := x.visible(topic)
	for i, v := range got {
		if i != v {
			x.t.Fatalf("read_committed sees %d where %d should be (%d records)", v, i, len(got))
		}
	}
	if len(got) != n {
		x.t.Errorf("read_committed sees %d records, want %d", len(got), n)
	}
}

// Windows are visible one after the other and whole, and the next one gathers while the one before is committed.
func TestWindowsBecomeVisibleWhole(t *testing.T) {
	t.Parallel()
	k := sandbox.SharedKafka(t)
	topic, checkpoints := k.NewTopic(t, 6, nil), k.NewTopic(t, 1, nil)
	var mu sync.Mutex
	steps := map[string]int{}
	x := startTransactor(t, k.Addrs(), checkpoints, uniqueTopic(t), func(o *kafka.Options, _ *txn.Options) {
		o.Compression = "lz4"
		o.Step = func(s string) { mu.Lock(); steps[s]++; mu.Unlock() }
	})
	const windows, each = 10, 3000
	for w := range windows {
		x.publish(topic, w*each, w*each+each/2)
		x.cut()
		done := make(chan error, 1)
		go func() { done <- x.p.Commit(context.Background()) }()
		x.publish(topic, w*each+each/2, (w+1)*each) // belongs to the next one
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if n := x.p.Stats().InFlightRecords; n > each/2 {
			t.Errorf("%d records in flight behind a commit, %d were published", n, each/2)
		}
	}
	x.publish(topic, windows*each, windows*each+10)
	x.p.Flush() // acknowledged perhaps, and never committed
	x.wantVisible(topic, windows*each-each/2)
	mu.Lock()
	defer mu.Unlock()
	for _, s := range []string{kafka.StepAdded, kafka.StepAcknowledged, kafka.StepComplete, kafka.StepCommitted} {
		if steps[s] < windows {
			t.Errorf("step %s was told %d times", s, steps[s])
		}
	}
}

// A window is due when nothing more comes, when it is large, and when it is old.
func TestWindowIsDue(t *testing.T) {
	t.Parallel()
	k := sandbox.SharedKafka(t)
	topic, checkpoints := k.NewTopic(t, 2, nil), k.NewTopic(t, 1, nil)
	x := startTransactor(t, k.Addrs(), checkpoints, uniqueTopic(t), nil)
	due := func(what string) {
		t.Helper()
		select {
		case <-x.p.Due():
		case <-time.After(time.Minute):
			t.Fatalf("not due: %s", what)
		}
	}
	x.p.Flush()
	select {
	case <-x.p.Due():
		t.Error("an empty window is due")
	default:
	}
	x.publish(topic, 0, 1)
	x.p.Flush()
	due("nothing more comes")
	x.cut()
	x.publish(topic, 1, 2)
	x.p.Flush()
	select {
	case <-x.p.Due():
		t.Error("due while the window before is not committed")
	default:
	}
	x.commit()
	due("nothing more came while the window before was committed")
	x.cut()
	x.commit()
	x.publish(topic, 2, 3)
	due("old")
	x.cut()
	x.commit()
	x.publish(topic, 3, 60_000)
	due("large")
}

// Whoever is fenced, by a second owner of its id or by the time-out of its transaction, ends with the error that tells which, and nothing of its open window
// is ever visible.
func TestLostTransactionEndsThePublisher(t *testing.T) {
	t.Parallel()
	k := sandbox.RunKafka(t, sandbox.KafkaOptions{Properties: map[string]string{"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}})
	topic, other, checkpoints := k.NewTopic(t, 2, nil), k.NewTopic(t, 1, nil), k.NewTopic(t, 1, nil)
	for name, c := range map[string]struct {
		want    error
		timeout time.Duration
		lose    func(x *transactor)
	}{
		"fenced": {txn.ErrFenced, time.Minute, func(x *transactor) {
			other, err := txn.New(txn.Options{Brokers: x.brokers, ID: x.coordinator.ID(), Conn: conn.Options{ClientID: "test", Version: sarama.V3_7_0_0}})
			if err == nil {
				defer other.Close()
				_, err = other.Fence(context.Background())
			}
			if err != nil {
				t.Error(err)
			}
		}},
		"timed out": {txn.ErrAborted, 400 * time.Millisecond, func(*transactor) {}},
	} {
		for _, where := range []string{"sending", "committing", "adding"} {
			id, next := uniqueTopic(t), topic
			if where == "adding" {
				next = other
			}
			timeout := c.timeout
			if where == "committing" {
				timeout = max(timeout, 3*time.Second) // all is drained before, also on a busy machine
			}
			x := startTransactor(t, k.Addrs(), checkpoints, id, func(_ *kafka.Options, o *txn.Options) { o.Timeout = timeout })
			x.publish(topic, 0, 100)
			if where == "committing" {
				x.cut()
			}
			// Nothing is under way while the id is taken over: whoever asks amid that, when the transaction is aborted and the new owner has no epoch yet, is told
			// of an abort, and only with the next call that it is fenced.
			if where == "committing" || c.timeout == time.Minute {
				if err := x.p.Drain(ctxTimeout(t, time.Minute)); err != nil {
					t.Fatal(err)
				}
			}
			c.lose(x)
			var err error
			for deadline := time.Now().Add(time.Minute); err == nil; {
				if where == "committing" {
					if c.timeout < time.Minute {
						time.Sleep(timeout + 2*time.Second) // a process that does nothing for long is what is tested
					}
					if err := x.p.Commit(context.Background()); err == nil {
						t.Errorf("%s: committed", name)
					}
				}
				if perr := x.p.Publish(context.Background(), record(next, "a", 1), 1); perr == nil {
					x.p.Flush()
				}
				select {
				case err = <-x.ended:
				case <-time.After(10 * time.Millisecond):
				}
				if time.Now().After(deadline) {
					t.Fatalf("%s while %s: the publisher goes on: %+v", name, where, x.p.Stats())
				}
			}
			var fatal *kafka.FatalError
			if !errors.As(err, &fatal) || !errors.Is(err, c.want) {
				t.Errorf("%s while %s: %v, want %v", name, where, err, c.want)
			}
			for _, stall := range x.p.Stats().Stalled {
				if stall.Reason == kafka.StallNotAuthorized {
					t.Errorf("%s while %s: %s is said to lack rights", name, where, stall.Topic)
				}
			}
		}
	}
	if got := relaytestCount(t, k.Addrs(), topic); got != 0 {
		t.Errorf("read_committed sees %d records of lost windows", got)
	}
}

func relaytestCount(t *testing.T, brokers []string, topic string) (n int) {
	t.Helper()
	err := relaytest.Consume(context.Background(), relaytest.ConsumeOptions{Brokers: brokers, Topics: []string{topic}, ReadCommitted: true}, func(relaytest.Message) error {
		n++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A record that the broker refuses inside a transaction is judged there: the others of the batch, and what is published instead, are committed together.
func TestPoisonInsideATransaction(t *testing.T) {
	t.Parallel()
	k := sandbox.SharedKafka(t)
	topic, letters, checkpoints := k.NewTopic(t, 1, map[string]string{"max.message.bytes": "5000"}), k.NewTopic(t, 1, nil), k.NewTopic(t, 1, nil)
	x := startTransactor(t, k.Addrs(), checkpoints, uniqueTopic(t), func(o *kafka.Options, _ *txn.Options) {
		o.Judge = func(_ *kafka.PoisonError, rec *router.Record) kafka.Judgement {
			if string(rec.Key) == "dropped" {
				return kafka.Judgement{Drop: true}
			}
			letter := *rec
			letter.Topic = letters
			return kafka.Judgement{Instead: &letter}
		}
	})
	for w := range 3 {
		x.publish(topic, w*20, w*20+10)
		for _, key := range []string{"lettered", "dropped"} {
			bad := record(topic, key, uint64(w))
			bad.Value = append(bad.Value, noise(9000)...)
			if err := x.p.Publish(context.Background(), bad, 1); err != nil && !isPoison(err, kafka.ReasonTooLarge) {
				t.Fatal(err)
			} else if err != nil && key == "lettered" { // nothing before it waits: the caller's to judge
				bad.Topic = letters
				if err := x.p.Publish(context.Background(), bad, 1); err != nil {
					t.Fatal(err)
				}
			}
		}
		x.publish(topic, w*20+10, w*20+20)
		x.cut()
		x.commit()
	}
	x.wantVisible(topic, 60)
	x.wantVisible(letters, 3)
}

// A checkpoint that its topic refuses ends the publisher: a policy that drops records would commit the rows without it, and a restart would send them again.
func TestRefusedCheckpointIsNeverDropped(t *testing.T) {
	t.Parallel()
	k := sandbox.SharedKafka(t)
	topic, checkpoints := k.NewTopic(t, 1, nil), k.NewTopic(t, 1, map[string]string{"max.message.bytes": "2000"})
	x := startTransactor(t, k.Addrs(), checkpoints, uniqueTopic(t), func(o *kafka.Options, _ *txn.Options) {
		o.Judge = func(*kafka.PoisonError, *router.Record) kafka.Judgement { return kafka.Judgement{Drop: true} }
	})
	x.publish(topic, 0, 10)
	large := &router.Record{Topic: checkpoints, Key: []byte("k"), Value: noise(9000), TimestampMillis: time.Now().UnixMilli(), Partition: 0}
	err := x.p.Cut(large)
	if err == nil {
		err = x.p.Commit(ctxTimeout(t, time.Minute))
	}
	if err == nil {
		t.Fatal("committed")
	}
	if isPoison(err, kafka.ReasonTooLarge) { // refused at once
		t.Log(err)
	} else if err := <-x.ended; !isPoison(err, kafka.ReasonTooLarge) {
		t.Errorf("Run gives %v", err)
	}
	x.wantVisible(topic, 0)
}

// A partition that is no more cannot become a part of the transaction. The topic is said to be missing while it is, and one that comes back smaller ends the
// publisher, whose user starts over.
func TestAPartitionThatIsNoMoreIsNotWaitedForInATransaction(t *testing.T) {
	t.Parallel()
	k := sandbox.SharedKafka(t)
	topic, checkpoints := k.NewTopic(t, 4, nil), k.NewTopic(t, 1, nil)
	x := startTransactor(t, k.Addrs(), checkpoints, uniqueTopic(t), nil)
	x.publish(topic, 0, 100)
	x.cut()
	x.commit()
	admin, err := k.Admin()
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	if err := admin.DeleteTopic(topic); err != nil {
		t.Fatal(err)
	}
	// Until the broker has deleted it.
	for {
		meta, err := admin.DescribeTopics([]string{topic})
		if err != nil {
			t.Fatal(err)
		}
		if meta[0].Err == sarama.ErrUnknownTopicOrPartition {
			break
		}
	}
	rec := record(topic, "a", 100)
	rec.Partition = 3
	if err := x.p.Publish(ctxTimeout(t, time.Minute), rec, 100); err != nil {
		t.Fatal(err)
	}
	x.p.Flush()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if s := x.p.Stats(); len(s.Stalled) == 1 && s.Stalled[0].Reason == kafka.StallMissing {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("the topic is not said to be missing: %+v", s)
		}
	}
	if err := k.CreateTopic(t.Context(), topic, 1, 1, nil); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-x.ended:
		if !errors.Is(err, txn.ErrAborted) {
			t.Errorf("Run gives %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatalf("the publisher goes on: %+v", x.p.Stats())
	}
}

// late holds the first EndTxn of a connection back as a network does that has lost it: its sender gives up waiting, and asks again over another connection.
type late struct {
	mu   sync.Mutex
	conn net.Conn
	held []byte
}

func (l *late) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, address)
	return &lateConn{c, l}, err
}

// arrive lets it through, and waits until it was answered.
func (l *late) arrive(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.conn.Close()
	_ = l.conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := l.conn.Write(l.held); err != nil {
		t.Fatal(err)
	}
	if _, err := l.conn.Read(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
}

type lateConn struct {
	net.Conn
	late *late
}

const endTxn = 26 // api key

func (c *lateConn) Write(b []byte) (int, error) {
	c.late.mu.Lock()
	defer c.late.mu.Unlock()
	if c.late.conn == nil && len(b) > 6 && binary.BigEndian.Uint16(b[4:]) == endTxn {
		c.late.conn, c.late.held = c.Conn, slices.Clone(b)
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *lateConn) Close() error {
	c.late.mu.Lock()
	defer c.late.mu.Unlock()
	if c.late.conn == c.Conn {
		return c.Conn.SetReadDeadline(time.Now())
	}
	return c.Conn.Close()
}

// A request to commit that arrives when it was repeated and answered already commits nothing of the next window.
func TestALateCommitDoesNotCommitTheNextWindow(t *testing.T) {
	t.Parallel()
	k := sandbox.SharedKafka(t)
	topic, checkpoints := k.NewTopic(t, 2, nil), k.NewTopic(t, 1, nil)
	var l late
	x := startTransactor(t, k.Addrs(), checkpoints, uniqueTopic(t), func(_ *kafka.Options, o *txn.Options) { o.Conn.Dialer = l.dial })
	x.publish(topic, 0, 100)
	x.cut()
	x.commit()
	x.publish(topic, 100, 200)
	if err := x.p.Drain(ctxTimeout(t, time.Minute)); err != nil { // in the log, and not committed
		t.Fatal(err)
	}
	l.arrive(t)
	x.wantVisible(topic, 100)
}

// After such a commit the publisher goes on, under a new epoch.
func TestWindowsGoOnBehindACommitWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	k := sandbox.SharedKafka(t)
	topic, checkpoints := k.NewTopic(t, 2, nil), k.NewTopic(t, 1, nil)
	var l late
	x := startTransactor(t, k.Addrs(), checkpoints, uniqueTopic(t), func(_ *kafka.Options, o *txn.Options) { o.Conn.Dialer = l.dial })
	var before txn.Producer
	for w := range 3 {
		x.publish(topic, 200*w, 200*w+100)
		if w == 0 { // Run takes an epoch of its own before it sends anything
			if err := x.p.Drain(ctxTimeout(t, time.Minute)); err != nil {
				t.Fatal(err)
			}
			before = x.coordinator.Producer()
		}
		x.cut()
		x.publish(topic, 200*w+100, 200*w+200)
		x.commit()
		if w == 1 {
			l.arrive(t)
		}
	}
	x.cut()
	x.commit()
	if now := x.coordinator.Producer(); now.ID != before.ID || now.Epoch <= before.Epoch {
		t.Errorf("the producer was %v and is %v", before, now)
	}
	x.wantVisible(topic, 600)
}

// An id that its coordinator has forgotten after long idleness is told from one that another instance has taken.
func TestAnIDThatTheCoordinatorForgotIsNoTakeover(t *testing.T) {
	t.Parallel()
	k := sandbox.RunKafka(t, sandbox.KafkaOptions{Properties: map[string]string{
		"transactional.id.expiration.ms": "1000", "transaction.remove.expired.transaction.cleanup.interval.ms": "100",
	}})
	topic, checkpoints := k.NewTopic(t, 1, nil), k.NewTopic(t, 1, nil)
	x := startTransactor(t, k.Addrs(), checkpoints, uniqueTopic(t), nil)
	x.publish(topic, 0, 10)
	x.cut()
	x.commit()
	if err := k.WaitForgotten(ctxTimeout(t, time.Minute), x.coordinator.ID()); err != nil {
		t.Fatal(err)
	}
	if err := x.p.Publish(ctxTimeout(t, time.Minute), record(topic, "a", 10), 10); err != nil {
		t.Fatal(err)
	}
	x.p.Flush()
	if err := <-x.ended; !errors.Is(err, txn.ErrForgotten) {
		t.Errorf("Run gives %v", err)
	}
}

// A right that is taken away, or a login that does not hold any more, is waited for at each step of a transaction: it does not end the publisher.
func TestRefusedStepsOfATransactionAreTriedAgain(t *testing.T) {
	t.Parallel()
	refused := func(key kmsg.Key) kfake.Fault {
		return kfake.Fault{Keys: []kmsg.Key{key}, Err: kerr.TransactionalIDAuthorizationFailed, Count: 2}
	}
	for _, key := range []kmsg.Key{kmsg.AddPartitionsToTxn, kmsg.EndTxn} {
		t.Run(key.Name(), func(t *testing.T) {
			t.Parallel()
			cluster, brokers := fake(t, kfake.SeedTopics(1, "t", "checkpoints"))
			x := startTransactor(t, brokers, "checkpoints", "id", nil)
			cluster.Fault(refused(key))
			x.publish("t", 0, 10)
			x.cut()
			x.commit()
		})
	}
	t.Run("learning why it is lost", func(t *testing.T) {
		t.Parallel()
		cluster, brokers := fake(t, kfake.SeedTopics(1, "t", "checkpoints"))
		x := startTransactor(t, brokers, "checkpoints", "id", nil)
		x.publish("t", 0, 10)
		x.cut()
		x.commit()
		cluster.Fault(refused(kmsg.InitProducerID))
		cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.InvalidProducerEpoch, Count: 1})
		x.publish("t", 10, 20)
		x.p.Flush()
		if err := <-x.ended; !errors.Is(err, txn.ErrAborted) {
			t.Errorf("Run gives %v", err)
		}
	})
}

// A stop in the midst of a window leaves no transaction open: until its time-out, consumers of committed records would wait behind it.
func TestAStopLeavesNoTransactionOpen(t *testing.T) {
	t.Parallel()
	k := sandbox.SharedKafka(t)
	topic, checkpoints := k.NewTopic(t, 1, nil), k.NewTopic(t, 1, nil)
	x := startTransactor(t, k.Addrs(), checkpoints, uniqueTopic(t), nil)
	x.publish(topic, 0, 10)
	if err := x.p.Drain(ctxTimeout(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	x.stop()
	if err := <-x.ended; err != nil {
		t.Fatal(err)
	}
	behind := start(t, k.Addrs(), nil)
	behind.publish(topic, 1, 1)
	behind.drain(time.Minute)
	seen := 0
	for deadline := time.Now().Add(20 * time.Second); seen == 0; {
		if err := openLetters(t, k.Addrs(), topic).Read(t.Context(), kafka.Reading{}, func(kafka.Letter) error { seen++; return nil }); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatal("consumers wait behind an open transaction")
		}
	}
	if seen != 1 {
		t.Errorf("%d records are committed", seen)
	}
}

// While only the coordinator does not answer, the state tells so.
func TestACoordinatorThatDoesNotAnswerIsNamed(t *testing.T) {
	t.Parallel()
	cluster, brokers := fake(t, kfake.SeedTopics(1, "t", "checkpoints"))
	x := startTransactor(t, brokers, "checkpoints", "id", nil)
	fault := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.AddPartitionsToTxn}, Err: kerr.CoordinatorNotAvailable, Count: -1})
	x.publish("t", 0, 10)
	x.p.Flush()
	for deadline := time.Now().Add(time.Minute); !errors.Is(x.p.Stats().LastError, sarama.ErrConsumerCoordinatorNotAvailable); {
		if time.Now().After(deadline) {
			t.Fatalf("%+v", x.p.Stats())
		}
		time.Sleep(10 * time.Millisecond)
	}
	fault.Remove()
	x.cut()
	x.commit()
}
