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

// shards runs the campaign of several sources, which has servers of its own.
func shards(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("campaign shards", flag.ContinueOnError)
	sources := flags.Int("sources", 20, "number of MySQL servers")
	seconds := flags.Int("seconds", 60, "length with all servers up, and again with one down")
	rate := flags.Int("rate", 50, "transactions per second and server")
	version := flags.String("mysql", "", "prefix of the MySQL version, such as 8.0; empty for the newest")
	race := flags.Bool("race", false, "run a relay with the race detector")
	if err := flags.Parse(args); err != nil {
		return err
	}
	say := func(s string) { fmt.Fprintln(os.Stderr, "campaign: "+s) }
	builder, err := e2e.NewBuilder()
	if err != nil {
		return err
	}
	defer builder.Close()
	k, err := sandbox.StartKafka(ctx, sandbox.KafkaOptions{Progress: say})
	if err != nil {
		return err
	}
	defer k.Close()
	result, err := e2e.RunShards(ctx, e2e.ShardsRun{
		Kafka: k, Builder: builder, Build: e2e.Build{Race: *race}, Version: *version, Sources: *sources, Length: time.Duration(*seconds) * time.Second, Rate: *rate, Progress: say,
	})
	if err != nil {
		return err
	}
	fmt.Print(result)
	return result.Err()
}
