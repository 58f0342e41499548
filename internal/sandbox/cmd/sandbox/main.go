// Command sandbox starts a real MySQL and a real Kafka, prints where they are as
// KEY=value lines that a shell can eval, and keeps them until its standard input closes
// or it gets SIGINT or SIGTERM. Progress goes to standard error.
//
// The last line is SANDBOX_READY=1. TEST_MYSQL_DSN and TEST_KAFKA_BROKERS are among the
// lines, so tests can use the same servers.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"outbox-relay/internal/sandbox"
)

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			os.Exit(64)
		}
		fmt.Fprintln(os.Stderr, "sandbox: "+err.Error())
		os.Exit(1)
	}
}

// list collects a flag that may be given several times.
type list []string

func (l *list) String() string     { return strings.Join(*l, " ") }
func (l *list) Set(s string) error { *l = append(*l, s); return nil }

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	var mysqlArgs, properties list
	flags := flag.NewFlagSet("sandbox", flag.ContinueOnError)
	flags.SetOutput(stderr)
	withMySQL := flags.Bool("mysql", true, "start MySQL")
	withKafka := flags.Bool("kafka", true, "start Kafka")
	brokers := flags.Int("brokers", 1, "Kafka brokers: 1 or 3")
	version := flags.String("mysql-version", "", "version of MySQL, such as 8.0 (default: the newest to be had)")
	benchmark := flags.Bool("benchmark", false, "start Kafka for measurements: slower start, full speed")
	flags.Var(&mysqlArgs, "mysql-arg", "option for mysqld, may be repeated")
	flags.Var(&properties, "kafka-property", "key=value for the brokers, may be repeated")
	if err := flags.Parse(args); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // ends with standard input, or with the program
		_, _ = io.Copy(io.Discard, stdin)
		cancel()
	}()
	say := func(s string) { fmt.Fprintln(stderr, "sandbox: "+s) }

	if *withMySQL {
		m, err := sandbox.StartMySQL(ctx, sandbox.MySQLOptions{Version: *version, Args: mysqlArgs, Progress: say})
		if err != nil {
			return err
		}
		defer m.Close()
		printMySQL(stdout, m)
	}
	if *withKafka {
		o := sandbox.KafkaOptions{Brokers: *brokers, Benchmark: *benchmark, Properties: map[string]string{}, Progress: say}
		for _, p := range properties {
			key, value, ok := strings.Cut(p, "=")
			if !ok {
				return fmt.Errorf("-kafka-property %q: want key=value", p)
			}
			o.Properties[key] = value
		}
		k, err := sandbox.StartKafka(ctx, o)
		if err != nil {
			return err
		}
		defer k.Close()
		printKafka(stdout, k, *brokers)
	}
	line(stdout, "SANDBOX_READY", "1")
	<-ctx.Done()
	return nil
}

func printMySQL(w io.Writer, m *sandbox.MySQL) {
	line(w, "MYSQL_ADDRESS", m.Addr())
	line(w, "MYSQL_VERSION", m.Version())
	line(w, "MYSQL_RELAY_DSN", m.DSN("relay", "relay", ""))
	line(w, "TEST_MYSQL_DSN", m.RootDSN(""))
	line(w, "MYSQL_DATA", m.DataDir())
	line(w, "MYSQL_PID", fmt.Sprint(m.Pid()))
}

func printKafka(w io.Writer, k *sandbox.Kafka, brokers int) {
	var pids []string
	for id := 1; id <= brokers; id++ {
		pids = append(pids, fmt.Sprint(k.Broker(id).Pid()))
	}
	line(w, "KAFKA_BROKERS", strings.Join(k.Addrs(), ","))
	line(w, "KAFKA_VERSION", sandbox.KafkaVersion)
	line(w, "TEST_KAFKA_BROKERS", strings.Join(k.Addrs(), ","))
	line(w, "KAFKA_PIDS", strings.Join(pids, ","))
}

// line prints key=value, quoted where a shell would not take the value as it is.
func line(w io.Writer, key, value string) {
	plain := strings.Trim(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,:/_-") == ""
	if !plain {
		value = "'" + strings.ReplaceAll(value, "'", `'\''`) + "'"
	}
	fmt.Fprintln(w, key+"="+value)
}
