package preflight

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"outbox-relay/binlog"
	"outbox-relay/checkpoint"
	"outbox-relay/checkpoint/kafkastore"
	"outbox-relay/relay/kafka"
	"outbox-relay/router"
	"outbox-relay/snapshot"
)

// Options say what to look at.
type Options struct {
	// Name is the relay's name.
	Name string
	// Login reaches the source; Address is replaced by each of Addresses.
	Login     binlog.Login
	Addresses []string
	// Start is source.start, empty where it is not given.
	Start string
	// Rules are those of the relay, without faults.
	Rules []router.Rule
	// FromLatest are the indexes of rules that say where to read from if their table is new to the checkpoint.
	FromLatest map[int]bool

	// Snapshot are the tables of which the relay may have to read the rows that exist.
	Snapshot []snapshot.Table

	// DeadLetterTopics are the topics of dead letters that the rules' policies may send.
	DeadLetterTopics []string

	Kafka kafka.Options
	// RowLimit is the largest row that the relay takes, in bytes.
	RowLimit int64

	// CheckpointPath is the file of the checkpoint, empty where it is elsewhere; CheckpointPlace names the place for people, empty for the file.
	// ReadCheckpoint reads it, with the errors of checkpoint.Store.Load.
	CheckpointPath  string
	CheckpointPlace string
	ReadCheckpoint  func() (*checkpoint.Checkpoint, error)
	// ProbeCheckpoint tells whether it could be saved, and changes nothing; nil where that shows otherwise.
	ProbeCheckpoint func(context.Context) error
	// CheckpointTopic is set where the checkpoint is in Kafka.
	CheckpointTopic *kafkastore.Options

	SpoolDir   string
	SpoolLimit int64
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// statementTimeout bounds each question to the source.
const statementTimeout = 10 * time.Second

// Run looks at everything. It blocks for some seconds, longer where servers do not answer, and ends early with ctx: what was not looked at by
// then is reported as such. Its error is a fault of the options.
func Run(ctx context.Context, o Options) (*Report, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if _, err := router.New(router.Options{Rules: o.Rules}); err != nil {
		return nil, fmt.Errorf("preflight: %w", err)
	}
	p := &plan{Options: o}
	local := p.local(ctx)
	remote := make([][]Item, len(o.Addresses)+1)
	var g errgroup.Group
	for i, address := range o.Addresses {
		g.Go(func() error { remote[i] = p.source(ctx, address); return nil })
	}
	g.Go(func() error { remote[len(o.Addresses)] = p.kafka(ctx); return nil })
	_ = g.Wait() // no error is returned above
	r := &Report{}
	for _, items := range remote {
		r.Items = append(r.Items, items...)
	}
	r.Items = append(r.Items, local...)
	return r, nil
}

// plan is one run.
type plan struct {
	Options
	stored *checkpoint.Checkpoint // nil where there is none, or none that can be trusted
	// damaged is true where a checkpoint exists that cannot be trusted.
	damaged bool
}

// schemas are the databases of the rules.
func (p *plan) schemas() map[string]bool {
	out := map[string]bool{}
	for _, r := range p.Rules {
		if name, err := router.ParseTableName(r.Table); err == nil && !(router.TableName{Schema: name.Schema}).IsPattern() {
			out[name.Schema] = true
		}
	}
	return out
}
