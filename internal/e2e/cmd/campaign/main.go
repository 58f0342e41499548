// Command campaign disturbs a running relay at random and judges what a consumer received:
//
//	campaign crash  -kills 200 -seed 1     kill -9 of the relay under load; with -delivery exactly-once no row may come twice
//	campaign faults -rounds 20 -seed 1     kills and freezes of MySQL and Kafka, cut connections
//	campaign chaos -minutes 30 -seed 1     all of it at random on three brokers, one or two faults at a time
//	campaign handover -rounds 100 -seed 1  kills, freezes and cut links of one of two relays at a time
//	campaign shards -sources 20            one relay of many servers, one of which freezes and dies
//	campaign snapshot -rows 5000000 -kills 20 -seed 1   a start by snapshot under load, and kill -9 of the relay amid it
//	campaign xa -transactions 1000 -seed 1 XA transactions of all shapes, amid ends of the relay and of MySQL
//	campaign failover -promotions 50 -seed 1 a primary that moves between two servers, orderly or after a kill; with -any the relay reads whichever answers
//	campaign freeze -rounds 50 -seed 1     SIGSTOPs of servers and stalled links, a start far behind, an outage of Kafka
//
// It starts its own servers, prints a table of figures at the end, and exits 1 when the promise was broken.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"outbox-relay/internal/e2e"
	"outbox-relay/internal/sandbox"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(64)
	case err != nil:
		fmt.Fprintln(os.Stderr, "campaign: "+err.Error())
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) > 0 && args[0] == "freeze" {
		return freeze(ctx, args[1:])
	}
	if len(args) > 0 && args[0] == "shards" {
		return shards(ctx, args[1:])
	}
	if len(args) == 0 || !slices.Contains([]string{"crash", "faults", "chaos", "handover", "xa", "failover", "snapshot"}, args[0]) {
		fmt.Fprintln(os.Stderr, "campaign crash [-kills n] [-servers] [-delivery mode] [-pauses n] | faults [-rounds n] [-only name] | chaos [-minutes n] [-delivery mode] [-standby] [-mysql-store] [-only names] | handover [-rounds n] [-delivery mode] [-store mysql|kafka] [-only names] | xa [-transactions n] [-gentle] | snapshot [-rows n] [-kills n] [-servers] [-delivery mode] [-mysql-store] | failover [-promotions n] [-any] | freeze [-rounds n] [-longest duration] [-outage duration] | shards [-sources n] [-seconds n]; crash and faults: [-rate n] [-max-rows n]; all: [-seed n] [-race] [-mysql version]")
		return flag.ErrHelp
	}
	flags := flag.NewFlagSet("campaign "+args[0], flag.ContinueOnError)
	kills := flags.Int("kills", 200, "how often the relay is killed (crash, snapshot)")
	pauses := flags.Int("pauses", 0, "how often the relay is frozen for longer than the transaction time-out (crash, exactly-once)")
	servers := flags.Bool("servers", false, "kill the servers at random as well (crash); kill and freeze MySQL (snapshot)")
	rounds := flags.Int("rounds", 20, "how often each fault is made (faults), number of faults (handover)")
	transactions := flags.Int("transactions", 1000, "number of XA transactions (xa)")
	promotions := flags.Int("promotions", 50, "how often the primary changes (failover)")
	readAny := flags.Bool("any", false, "source.read_from: any instead of primary (failover)")
	gentle := flags.Bool("gentle", false, "the relay is stopped and never killed (xa)")
	only := flags.String("only", "", "a single fault by its name (faults), or several with commas between (chaos, handover)")
	minutes := flags.Float64("minutes", 30, "length (chaos)")
	delivery := flags.String("delivery", "at-least-once", "kafka.delivery of the relay: at-least-once or exactly-once (crash, chaos, handover)")
	standby := flags.Bool("standby", false, "run a second relay that stands by (chaos)")
	store := flags.String("store", "mysql", "where the checkpoint is: mysql or kafka (handover)")
	mysqlStore := flags.Bool("mysql-store", false, "keep the checkpoint on the source (chaos)")
	rate := flags.Int("rate", 600, "transactions per second")
	rows := flags.Int("max-rows", 1, "outbox rows of a transaction at most")
	existing := flags.Int("rows", 5_000_000, "rows that exist before the first start (snapshot)")
	seed := flags.Uint64("seed", 1, "seed of the moments and of the load")
	version := flags.String("mysql", "", "prefix of the MySQL version, such as 8.0; empty for the newest")
	race := flags.Bool("race", false, "run a relay with the race detector")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	say := func(s string) { fmt.Fprintln(os.Stderr, "campaign: "+s) }
	builder, err := e2e.NewBuilder()
	if err != nil {
		return err
	}
	defer builder.Close()
	m, err := sandbox.StartMySQL(ctx, sandbox.MySQLOptions{Version: *version, Progress: say})
	if err != nil {
		return err
	}
	defer m.Close()
	kafka := sandbox.KafkaOptions{Progress: say}
	exactly := *delivery == "exactly-once"
	if args[0] == "crash" && exactly {
		kafka = e2e.ExactlyOnceKafka
		kafka.Progress = say
	}
	if args[0] == "chaos" {
		kafka = e2e.ChaosKafka
		kafka.Progress = say
	}
	if args[0] == "handover" {
		kafka = e2e.HandoverKafka
		kafka.Progress = say
	}
	k, err := sandbox.StartKafka(ctx, kafka)
	if err != nil {
		return err
	}
	defer k.Close()
	var result interface {
		fmt.Stringer
		Err() error
	}
	build, load := e2e.Build{Race: *race}, e2e.Load{Rate: *rate, MaxRows: *rows}
	switch args[0] {
	case "crash":
		result, err = e2e.Crash(ctx, e2e.CrashOptions{MySQL: m, Kafka: k, Builder: builder, Build: build, Kills: *kills, Servers: *servers, ExactlyOnce: exactly, Pauses: *pauses, Seed: *seed, Load: load, Progress: say})
	case "faults":
		result, err = e2e.Faults(ctx, e2e.FaultsOptions{MySQL: m, Kafka: k, Builder: builder, Build: build, Rounds: *rounds, Only: *only, Seed: *seed, Load: load, Progress: say})
	case "chaos":
		o := e2e.ChaosOptions{MySQL: m, Kafka: k, Builder: builder, Build: build, Duration: time.Duration(*minutes * float64(time.Minute)), Seed: *seed,
			ExactlyOnce: exactly, Standby: *standby, MySQLStore: *mysqlStore, Progress: say}
		if *only != "" {
			o.Only = strings.Split(*only, ",")
		}
		result, err = e2e.Chaos(ctx, o)
	case "handover":
		o := e2e.HandoverOptions{MySQL: m, Kafka: k, Builder: builder, Build: build, Rounds: *rounds, Seed: *seed, ExactlyOnce: exactly, KafkaStore: *store == "kafka", Progress: say}
		if *only != "" {
			o.Only = strings.Split(*only, ",")
		}
		result, err = e2e.Handover(ctx, o)
	case "failover":
		var second *sandbox.MySQL
		if second, err = sandbox.StartMySQL(ctx, sandbox.MySQLOptions{Version: *version, Progress: say}); err != nil {
			return err
		}
		defer second.Close()
		result, err = e2e.Failover(ctx, e2e.FailoverOptions{Servers: [2]*sandbox.MySQL{m, second}, Kafka: k, Builder: builder, Build: build, Promotions: *promotions, Seed: *seed, Any: *readAny, Progress: say})
	case "snapshot":
		result, err = e2e.Snapshot(ctx, e2e.SnapshotOptions{MySQL: m, Kafka: k, Builder: builder, Build: build, Rows: *existing, Kills: *kills, Servers: *servers, ExactlyOnce: exactly,
			MySQLStore: *mysqlStore, Seed: *seed, Load: e2e.Load{Rate: *rate}, Progress: say})
	default:
		result, err = e2e.XA(ctx, e2e.XAOptions{MySQL: m, Kafka: k, Builder: builder, Build: build, Transactions: *transactions, Seed: *seed, Gentle: *gentle, Progress: say})
	}
	if err != nil {
		return err
	}
	fmt.Print(result)
	return result.Err()
}
