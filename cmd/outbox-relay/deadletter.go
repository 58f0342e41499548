package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"outbox-relay/config"
	"outbox-relay/relay"
	"outbox-relay/relay/kafka"
)

func (a *app) deadLetterCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "dead-letter", Short: "List dead letters, or publish them again",
		Long: `Dead letters are the rows that no topic could take, under the policy dead_letter. They stay in their topic; how far they were published again is kept
in the consumer group "outbox-relay.<name>.redrive".`,
		Args: noArgs, RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	var topic, source string
	var all, asJSON bool
	list := &cobra.Command{
		Use: "list", Short: "List dead letters", Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			return a.withLetters(topic, source, func(ctx context.Context, cfg *config.Config, l *kafka.Letters, topic string) error {
				return a.listLetters(ctx, cfg, l, topic, all, asJSON)
			})
		},
	}
	list.Flags().BoolVar(&all, "all", false, "also those that were published again")
	list.Flags().BoolVar(&asJSON, "json", false, "one JSON object per line")
	var dry bool
	redrive := &cobra.Command{
		Use: "redrive", Short: "Publish dead letters again, to the topics that refused them",
		Long: `Publish dead letters again, to the topics that refused them, with their ids, keys, headers and order. What stood in their way has to be gone: a limit raised, a policy changed.
It may be interrupted and repeated: it goes on where it was, and sends the last ones twice at most, with the same header outbox-relay-position. Letters of which no whole record was kept are named and passed by.
It stops at a letter that is refused again. Under park_keys it goes on until it has caught up with the relay, which then lets the keys go. Run one at a time.`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			return a.withLetters(topic, source, func(ctx context.Context, cfg *config.Config, l *kafka.Letters, topic string) error {
				return a.redrive(ctx, cfg, l, topic, dry)
			})
		},
	}
	redrive.Flags().BoolVar(&dry, "dry-run", false, "say what would be published and do nothing")
	for _, one := range []*cobra.Command{list, redrive} {
		one.Flags().StringVar(&topic, "topic", "", "the dead-letter topic, where the configuration names several")
		sourceFlag(one, &source, "all, one after the other, if not given")
	}
	c.AddCommand(list, redrive)
	return c
}

// withLetters opens the dead-letter topic of the configuration, or the one that is asked for.
func (a *app) withLetters(topic, source string, do func(context.Context, *config.Config, *kafka.Letters, string) error) error {
	cfg, err := a.load()
	if err != nil {
		return err
	}
	if topic == "" {
		topics := []string{cfg.Poison.Topic}
		if used := deadLetterTopics(cfg); len(used) > 0 {
			topics = used
		}
		slices.Sort(topics)
		if topics = slices.Compact(topics); len(topics) > 1 {
			return usageError{fmt.Errorf("the configuration names several dead-letter topics (%s): choose one with --topic", strings.Join(topics, ", "))}
		}
		topic = topics[0]
	}
	asked, err := chosen(cfg, source)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	var errs []error
	for _, one := range asked {
		if len(asked) > 1 {
			fmt.Fprintf(a.err, "%s\n", one.Name)
		}
		if err := withLettersOf(ctx, one, topic, do); err != nil {
			errs = append(errs, err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

// withLettersOf opens the dead-letter topic for the relay of a configuration.
func withLettersOf(ctx context.Context, cfg *config.Config, topic string, do func(context.Context, *config.Config, *kafka.Letters, string) error) error {
	// The connections live on for a moment after a signal: what was published again is noted.
	living, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(2*drainTimeout, end) })()
	l, err := kafka.OpenLetters(living, kafkaOptions(cfg), topic, redriveGroup(cfg))
	if err != nil {
		return err
	}
	defer l.Close()
	return do(ctx, cfg, l, topic)
}

// redriveGroup is the consumer group that remembers how far the dead letters of a relay were published again.
func redriveGroup(cfg *config.Config) string { return "outbox-relay." + cfg.Name + ".redrive" }

// ownLetter tells the letters of this relay from those of others in the same topic.
func ownLetter(cfg *config.Config, d relay.DeadLetterInfo) bool {
	return d.Relay == "" || d.Relay == cfg.Name
}

// shownLetter is the JSON of dead-letter list.
type shownLetter struct {
	Partition int32     `json:"partition"`
	Offset    int64     `json:"offset"`
	Time      time.Time `json:"time"`
	Redriven  bool      `json:"redriven"`
	Reason    string    `json:"reason"`
	Error     string    `json:"error"`
	Topic     string    `json:"topic"`
	Table     string    `json:"table"`
	ID        string    `json:"id"`
	Key       string    `json:"key"`
	Position  string    `json:"position"`
	Size      int64     `json:"size"`
	ValueKept bool      `json:"value_kept"`
	Relay     string    `json:"relay,omitempty"` // which published it, by its header dead-letter-relay
}

func (a *app) listLetters(ctx context.Context, cfg *config.Config, l *kafka.Letters, topic string, all, asJSON bool) error {
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	var out io.Writer = w
	if asJSON {
		out = a.out
	}
	n := 0
	err := l.Read(ctx, kafka.Reading{All: all}, func(x kafka.Letter) error {
		d, ok := relay.ReadDeadLetter(x.Record)
		if !ok || !ownLetter(cfg, d) {
			return nil // somebody else's
		}
		if n++; n == 1 && !asJSON {
			fmt.Fprintln(w, "PLACE\tTIME\tREASON\tTABLE\tID\tKEY\tTOPIC\tSIZE\tPOSITION\t")
		}
		s := shownLetter{x.Partition, x.Offset, x.Time.UTC(), x.Done, d.Reason, d.Error, d.Topic, d.Table, d.ID, string(x.Record.Key), d.Position, d.Size, x.Record.Value != nil, d.Relay}
		if asJSON {
			return writeLine(out, s)
		}
		state := ""
		if s.Redriven {
			state = "published again"
		} else if !s.ValueKept && s.Size > 0 {
			state = "value not kept"
		}
		_, err := fmt.Fprintf(w, "%d:%d\t%s\t%s\t%s\t%q\t%.40q\t%s\t%d\t%s\t%s\n", s.Partition, s.Offset, s.Time.Format(time.RFC3339), s.Reason, s.Table, s.ID, s.Key, s.Topic, s.Size, s.Position, state)
		return err
	})
	if err == nil && n == 0 && !asJSON {
		fmt.Fprintf(a.out, "no dead letters in topic %s\n", topic)
	}
	return errors.Join(err, w.Flush())
}

// redriveBatch is after how many letters the place is stored.
const redriveBatch = 500

// redriver publishes letters again and keeps the place.
type redriver struct {
	out       io.Writer
	cfg       *config.Config
	letters   *kafka.Letters
	publisher *kafka.Publisher
	refuse    func(*kafka.PoisonError)
	dry       bool

	published, passed int

	mu      sync.Mutex
	acked   map[uint64]bool // since the place was stored
	done    int             // acknowledged ever
	refused error

	waiting []kafka.Letter // published or passed by since the place was stored, of one partition
	seqs    []uint64       // of waiting; 0 for those passed by
	next    uint64
}

func (a *app) redrive(ctx context.Context, cfg *config.Config, l *kafka.Letters, topic string, dry bool) error {
	r := &redriver{out: a.out, cfg: cfg, letters: l, dry: dry, acked: map[uint64]bool{}}
	o := kafkaOptions(cfg)
	o.Logger = slog.New(slog.DiscardHandler)
	o.Acked = func(seqs []uint64) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.done += len(seqs)
		for _, s := range seqs {
			r.acked[s] = true
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r.refuse = func(e *kafka.PoisonError) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.refused == nil {
			r.refused = fmt.Errorf("the letter at %s is refused again: %w", e.Position, e)
		}
		cancel(r.refused)
	}
	o.Poisoned = r.refuse
	var err error
	if r.publisher, err = kafka.New(o); err != nil {
		return err
	}
	ended := make(chan error, 1)
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	go func() { ended <- r.publisher.Run(running) }() // ended by stop
	defer func() { stop(); <-ended }()
	err = r.round(ctx)
	if err == nil && !dry && slices.Contains(parkingTopics(cfg), topic) {
		err = r.catchUp(ctx)
	}
	if err != nil && !dry {
		last, done := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
		_ = r.store(last) // what was acknowledged is done
		done()
	}
	return r.report(err)
}

func (r *redriver) report(err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	verb, published := "published again", r.done
	if r.dry {
		verb, published = "would be published again", r.published
	}
	if r.refused != nil {
		err = r.refused
	}
	fmt.Fprintf(r.out, "%d letters %s, %d passed by\n", published, verb, r.passed)
	return err
}

// round publishes the letters again that are there, and stores the place behind them.
func (r *redriver) round(ctx context.Context) error {
	err := r.letters.Read(ctx, kafka.Reading{}, func(x kafka.Letter) error {
		if len(r.waiting) > 0 && (r.waiting[0].Partition != x.Partition || len(r.waiting) >= redriveBatch) && !r.dry {
			if err := r.store(ctx); err != nil {
				return err
			}
		}
		return r.letter(ctx, x)
	})
	if err != nil || r.dry {
		return err
	}
	return r.store(ctx)
}

func (r *redriver) letter(ctx context.Context, x kafka.Letter) error {
	if d, ok := relay.ReadDeadLetter(x.Record); ok && !ownLetter(r.cfg, d) {
		r.note(x, 0)
		return nil
	}
	rec, err := relay.Redrive(x.Record)
	if err != nil {
		r.passed++
		fmt.Fprintf(r.out, "passed by: partition %d, offset %d, id %q: %v\n", x.Partition, x.Offset, x.Record.ID, err)
		r.note(x, 0)
		return nil
	}
	r.published++
	if r.dry {
		return nil
	}
	r.next++
	r.note(x, r.next)
	err = r.publisher.Publish(ctx, rec, r.next)
	var bad *kafka.PoisonError
	if errors.As(err, &bad) {
		r.refuse(bad)
	}
	return err
}

const (
	// catchUpQuiet is how long no letter may come before the relay counts as caught up with: longer than it keeps records back and looks for the place.
	catchUpQuiet = 3 * time.Second
	catchUpPause = 50 * time.Millisecond
	catchUpLimit = time.Minute
)

// catchUp publishes letters again until none comes any more. The relay, which sees the mark at the place, keeps records of parked keys back meanwhile; once it
// sees the place behind the last letter of a key, it lets the key go.
func (r *redriver) catchUp(ctx context.Context) error {
	if err := r.letters.Closing(true); err != nil {
		return err
	}
	began := time.Now()
	for quiet := began; time.Since(quiet) < catchUpQuiet; {
		if time.Since(began) > catchUpLimit {
			return errors.Join(errors.New("letters keep coming: what makes records poison is still there, and their keys stay parked"), r.letters.Closing(false))
		}
		before := r.published + r.passed
		if err := r.round(ctx); err != nil {
			return err
		}
		if r.published+r.passed > before {
			quiet = time.Now()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(catchUpPause):
		}
	}
	return r.letters.Closing(false)
}

// note remembers a letter until the place is stored.
func (r *redriver) note(x kafka.Letter, seq uint64) {
	x.Record = nil
	r.waiting, r.seqs = append(r.waiting, x), append(r.seqs, seq)
}

// store waits for the letters that wait, and remembers the place behind those that are done without a gap.
func (r *redriver) store(ctx context.Context) error {
	if len(r.waiting) == 0 {
		return nil
	}
	r.publisher.Flush()
	drain, cancel := context.WithTimeout(ctx, redriveTimeout)
	err := r.publisher.Drain(drain)
	cancel()
	r.mu.Lock()
	n := 0
	for n < len(r.seqs) && (r.seqs[n] == 0 || r.acked[r.seqs[n]]) {
		n++
	}
	refused := r.refused
	if n == len(r.seqs) { // none is on its way
		clear(r.acked)
	}
	r.mu.Unlock()
	if n > 0 {
		err = errors.Join(err, r.letters.Done(r.waiting[n-1].Partition, r.waiting[n-1].Offset+1))
	}
	whole := n == len(r.waiting)
	r.waiting, r.seqs = r.waiting[:0], r.seqs[:0]
	if refused != nil {
		return refused
	}
	if err == nil && !whole {
		err = errors.New("not all letters were acknowledged")
	}
	return err
}

// redriveTimeout bounds the wait for the acknowledgements of a batch of letters.
const redriveTimeout = 2 * time.Minute
