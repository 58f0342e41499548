package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"

	"outbox-relay/binlog"
	"outbox-relay/binlog/event"
	"outbox-relay/binlog/gtid"
	"outbox-relay/internal/fakemysql"
)

// Targets of passing by foreign events, against go-mysql's replica with its defaults on the same stream. The reader allocates a few times for a
// stream, never for an event. What decoding alone takes, without packets and checksums, is a test of package binlog.
const (
	wantForeign       = 20.0
	wantForeignAllocs = 0.01
)

// foreignStreams are what the table orders may put into a binlog.
var foreignStreams = []struct {
	short, name string
	write       func(ctx context.Context, s *servers) error
}{
	{"foreign-single", "transactions that insert or update one row of orders", func(ctx context.Context, s *servers) error { return writePairs(ctx, s, 20_000) }},
	{"foreign-bulk", "transactions that insert 1000 rows of orders", func(ctx context.Context, s *servers) error { return writeBulk(ctx, s, 200) }},
}

// foreignCapture holds transactions of a foreign table as the server wrote them.
type foreignCapture struct {
	format []byte   // the FORMAT_DESCRIPTION
	events [][]byte // with headers and checksums
	ends   []int    // how many events the transactions up to each have
	kinds  map[event.Type]kindSize
	stream []byte // all of it in packets, as it comes from a server
}

type kindSize struct{ count, bytes int }

// foreignDecode measures each stream.
func foreignDecode(ctx context.Context, s *servers, rounds int, profile string) (tables []*table, err error) {
	for i, stream := range foreignStreams {
		c, err := captureForeign(ctx, s, stream.write)
		if err != nil {
			return tables, err
		}
		runs := map[string][]decodeRun{}
		for round := range rounds {
			r, err := measurePasses(c.sync)
			if err != nil {
				return tables, err
			}
			runs["go-mysql"] = append(runs["go-mysql"], r)
			stop, err := profileTo(profile, fmt.Sprintf("foreign-%d-%d.pprof", i, round))
			if err != nil {
				return tables, err
			}
			r, err = measurePasses(c.read)
			stop()
			if err != nil {
				return tables, err
			}
			runs["relay"] = append(runs["relay"], r)
		}
		t := &table{Name: "decode-" + stream.short}
		t.About = fmt.Sprintf("passing by %d %s, %s; processor time of replicas that read them from memory; the relay's compares checksums, go-mysql's does not", len(c.ends), stream.name, c.sizes())
		decodeFigures(t, "event", runs, wantForeign, wantForeignAllocs)
		tables = append(tables, t)
	}
	return tables, nil
}

// profileTo starts a CPU profile in a folder; without one it does nothing.
func profileTo(folder, name string) (stop func(), err error) {
	if folder == "" {
		return func() {}, nil
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, err
	}
	f, err := os.Create(filepath.Join(folder, name))
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { pprof.StopCPUProfile(); f.Close() }, nil
}

// createForeign makes the tables anew.
func (s *servers) createForeign(ctx context.Context) error {
	db, err := s.open()
	if err != nil {
		return err
	}
	defer db.Close()
	return createTables(ctx, db)
}

// pairsProcedure commits an INSERT and an UPDATE of the same row, each for itself.
const pairsProcedure = `CREATE PROCEDURE ` + database + `.pairs(n INT)
BEGIN
  WHILE n > 0 DO
    INSERT INTO ` + database + `.orders (customer_id, state, total, note) VALUES (n, 'created', n, 'ring twice');
    UPDATE ` + database + `.orders SET state = 'paid' WHERE id = LAST_INSERT_ID();
    SET n = n - 1;
  END WHILE;
END`

func writePairs(ctx context.Context, s *servers, pairs int) error {
	db, err := s.open()
	if err != nil {
		return err
	}
	defer db.Close()
	for _, statement := range []string{"DROP PROCEDURE IF EXISTS " + database + ".pairs", pairsProcedure, fmt.Sprintf("CALL %s.pairs(%d)", database, pairs)} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// captureForeign lets write put its transactions into a file of their own and takes them from there.
func captureForeign(ctx context.Context, s *servers, write func(context.Context, *servers) error) (*foreignCapture, error) {
	db, err := s.open()
	if err != nil {
		return nil, err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, "FLUSH BINARY LOGS"); err != nil {
		return nil, err
	}
	before, err := binlogFiles(s)
	if err != nil {
		return nil, err
	}
	if err := write(ctx, s); err != nil {
		return nil, err
	}
	after, err := binlogFiles(s)
	if err != nil {
		return nil, err
	}
	c := &foreignCapture{kinds: map[event.Type]kindSize{}}
	for _, f := range after[len(before)-1:] {
		text, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		if err := c.take(text); err != nil {
			return nil, fmt.Errorf("reading %s: %w", f, err)
		}
	}
	if len(c.ends) == 0 {
		return nil, errors.New("the binlog holds no transaction")
	}
	c.events = c.events[:c.ends[len(c.ends)-1]]
	c.makeStream()
	return c, nil
}

func binlogFiles(s *servers) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(s.DataDir, "binlog.[0-9]*"))
	slices.Sort(files)
	return files, err
}

// take collects the transactions that change rows. DDL between them is left out.
func (c *foreignCapture) take(file []byte) error {
	const magic, flagsAt = 4, 17
	if len(file) < magic {
		return errors.New("no binlog")
	}
	var group [][]byte
	for b := file[magic:]; len(b) > 0; {
		if len(b) < eventHead || int(binary.LittleEndian.Uint32(b[9:])) > len(b) {
			return errors.New("cut off event")
		}
		ev := b[:binary.LittleEndian.Uint32(b[9:])]
		b = b[len(ev):]
		switch event.Type(ev[4]) {
		case event.TypeFormatDescription:
			c.format = slices.Clone(ev)
			c.format[flagsAt] &^= byte(event.FlagInUse) // as the server sends it, and as its checksum has it
		case event.TypeGTID:
			group = [][]byte{ev}
		case event.TypeQuery, event.TypeTableMap, event.TypeWriteRows, event.TypeUpdateRows:
			group = append(group, ev)
		case event.TypeXID:
			c.events = append(append(c.events, group...), ev)
			c.ends = append(c.ends, len(c.events))
		}
	}
	return nil
}

// makeStream puts the events into packets.
func (c *foreignCapture) makeStream() {
	seq := byte(1)
	add := func(ev []byte) {
		c.stream = fakemysql.AppendPacket(c.stream, seq, append([]byte{0}, ev...))
		seq++
	}
	add(c.format)
	for _, ev := range c.events {
		add(ev)
		k := c.kinds[event.Type(ev[4])]
		c.kinds[event.Type(ev[4])] = kindSize{k.count + 1, k.bytes + len(ev)}
	}
}

// sizes tells of what kinds the events are, and how large.
func (c *foreignCapture) sizes() string {
	var kinds []string
	for _, t := range []event.Type{event.TypeGTID, event.TypeQuery, event.TypeTableMap, event.TypeWriteRows, event.TypeUpdateRows, event.TypeXID} {
		if k := c.kinds[t]; k.count > 0 {
			kinds = append(kinds, fmt.Sprintf("%s %d", t, k.bytes/k.count))
		}
	}
	return fmt.Sprintf("%d events of %s bytes", len(c.events), strings.Join(kinds, ", "))
}

// pass is one way over the events.
type pass struct {
	took          time.Duration // of the processors, the garbage collector's work included: it does not depend on who else uses them
	events        int
	allocs, bytes uint64
}

// measurePasses goes over the capture again and again for about a second.
func measurePasses(run func() (pass, error)) (decodeRun, error) {
	var sum pass
	for sum.took < time.Second {
		p, err := run()
		if err != nil {
			return decodeRun{}, err
		}
		sum.took, sum.events, sum.allocs, sum.bytes = sum.took+p.took, sum.events+p.events, sum.allocs+p.allocs, sum.bytes+p.bytes
	}
	n := float64(sum.events)
	return decodeRun{float64(sum.took.Nanoseconds()) / n, float64(sum.allocs) / n, float64(sum.bytes) / n}, nil
}

// meter measures from now until its end is asked for.
func meter() func(events int) pass {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := processorTime()
	return func(events int) pass {
		took := processorTime() - start
		runtime.ReadMemStats(&after)
		return pass{took, events, after.Mallocs - before.Mallocs, after.TotalAlloc - before.TotalAlloc}
	}
}

// processorTime is what this process has used.
func processorTime() time.Duration {
	var self syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &self); err != nil {
		panic(err) // the arguments are right
	}
	return time.Duration(self.Utime.Nano() + self.Stime.Nano())
}

// sync lets go-mysql's replica read the stream from memory, as its users do: packets cut, events decoded, no checksums compared.
func (c *foreignCapture) sync() (pass, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	source := &fakemysql.Source{Streams: [][]byte{c.stream}, Hold: true, Show: map[string][][]string{"SHOW GLOBAL VARIABLES LIKE 'BINLOG_CHECKSUM'": {{"BINLOG_CHECKSUM", "CRC32"}}}}
	var conns []net.Conn
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := source.Dial(ctx, network, address)
		conns = append(conns, conn)
		return conn, err
	}
	syncer := replication.NewBinlogSyncer(replication.BinlogSyncerConfig{
		ServerID: 1, Flavor: mysql.MySQLFlavor, Host: "memory", Port: 3306, User: account, Logger: slog.New(slog.DiscardHandler), Dialer: dial, DisableRetrySync: true,
	})
	defer syncer.Close()
	defer func() {
		for _, c := range conns {
			c.Close() // the syncer waits for its reads
		}
	}()
	end := meter()
	streamer, err := syncer.StartSyncGTID(new(mysql.NewMysqlGTIDSet()))
	if err != nil {
		return pass{}, err
	}
	for seen := 0; seen < len(c.ends); {
		ev, err := streamer.GetEvent(ctx)
		if err != nil {
			return pass{}, err
		}
		if ev.Header.EventType == replication.XID_EVENT {
			seen++
		}
	}
	return end(len(c.events)), nil
}

// read lets the relay's reader read the stream from memory, watching another table. What it takes to connect is not measured.
func (c *foreignCapture) read() (pass, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	source := &fakemysql.Source{Streams: [][]byte{c.stream}, Ended: cancel}
	var end func(int) pass
	begin := func() { // before the first read of the stream
		if end == nil {
			end = meter()
		}
	}
	r, err := binlog.New(binlog.Options{
		Name: "bench-decode", Login: binlog.Login{User: account, Dial: source.Dial}, Addresses: []string{"memory:3306"},
		Tables: []binlog.TableName{{Schema: database, Name: "outbox_events"}}, Start: new(gtid.Set), Memory: 2 << 20, RowLimit: 16 << 20, BeforeWait: begin,
	})
	if err != nil {
		return pass{}, err
	}
	defer r.Close()
	for seen := 0; seen < len(c.ends); {
		tx, err := r.Next(ctx)
		if err != nil {
			return pass{}, fmt.Errorf("after %d of %d transactions: %w", seen, len(c.ends), errors.Join(err, r.Status().LastError))
		}
		if tx.HasRows {
			return pass{}, errors.New("the stream has a row of the outbox table")
		}
		seen += tx.Transactions
	}
	return end(len(c.events)), nil
}
