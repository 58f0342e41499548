package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"outbox-relay/internal/e2e"
	"outbox-relay/internal/sandbox"
)

// frozen is how many servers are frozen at a time at most, and as many links.
const frozen = 3

// freeze stops servers and stalls links; beside it, one relay begins far behind and another one lives through an outage of Kafka.
func freeze(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("campaign freeze", flag.ContinueOnError)
	rounds := flags.Int("rounds", 50, "number of freezes and stalls")
	longest := flags.Duration("longest", time.Minute, "the longest of them")
	outage := flags.Duration("outage", 5*time.Minute, "length of the outage of Kafka")
	files := flags.Int("files", 200, "how many binlogs a relay begins behind")
	seed := flags.Uint64("seed", 1, "seed of the lengths and of the load")
	version := flags.String("mysql", "", "prefix of the MySQL version, such as 8.0; empty for the newest")
	if err := flags.Parse(args); err != nil {
		return err
	}
	say := func(s string) { fmt.Fprintln(os.Stderr, "campaign: "+s) }
	builder, err := e2e.NewBuilder()
	if err != nil {
		return err
	}
	defer builder.Close()
	var servers []*sandbox.MySQL
	for range frozen + 2 {
		m, err := sandbox.StartMySQL(ctx, sandbox.MySQLOptions{Version: *version, Progress: say})
		if err != nil {
			return err
		}
		defer m.Close()
		servers = append(servers, m)
	}
	var kafkas []*sandbox.Kafka
	for range 2 {
		k, err := sandbox.StartKafka(ctx, sandbox.KafkaOptions{Progress: say})
		if err != nil {
			return err
		}
		defer k.Close()
		kafkas = append(kafkas, k)
	}
	drills := make(chan error, 1)
	var far, out *e2e.DrillResult
	go func() { // ends with the drills
		var err error
		o := e2e.DrillOptions{MySQL: servers[frozen+1], Kafka: kafkas[1], Builder: builder, Seed: *seed, Progress: say}
		if out, err = e2e.Outage(ctx, o, *outage); err == nil {
			far, err = e2e.FarBehind(ctx, o, *files)
		}
		drills <- err
	}()
	res, err := e2e.Freeze(ctx, e2e.FreezeOptions{Servers: servers[:frozen], Links: servers[frozen], Kafka: kafkas[0], Builder: builder, Rounds: *rounds, Longest: *longest, Seed: *seed, Progress: say})
	if err != nil {
		return err
	}
	fmt.Print(res)
	if err := <-drills; err != nil {
		return err
	}
	fmt.Print(out.String() + far.String())
	for _, err := range []error{res.Err(), out.Err(), far.Err()} {
		if err != nil {
			return err
		}
	}
	return nil
}
