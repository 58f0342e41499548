package e2e

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"outbox-relay/relay/relaytest"
)

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
