package cases_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/client"
	gomysql "github.com/go-mysql-org/go-mysql/mysql"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"outbox-relay/binlog"
	"outbox-relay/binlog/event"
	"outbox-relay/binlog/gtid"
	"outbox-relay/internal/e2e"
	"outbox-relay/internal/sandbox"
	"outbox-relay/router"
)

// version is a MySQL server that all cases of that version share.
type version struct {
	number string
	prefix string
	start  func() (*sandbox.MySQL, error)
	// alone is held for reading by cases that do not mind others, and for writing by one that does.
	alone sync.RWMutex

	mu      sync.Mutex
	servers []*sandbox.MySQL
}

var versions = []*version{newVersion("9.7.4", "9.7"), newVersion("8.0.33", "8.0")}

func newVersion(number, prefix string) *version {
	v := &version{number: number, prefix: prefix}
	v.start = sync.OnceValues(func() (*sandbox.MySQL, error) { return v.newServer() })
	return v
}

// sharedArgs spare the disk, and allow files.
var sharedArgs = []string{"--sync-binlog=0", "--innodb-flush-log-at-trx-commit=2", "--local-infile=1", "--secure-file-priv=", "--max-allowed-packet=128M", "--log-bin-trust-function-creators=ON"}

func (v *version) newServer(args ...string) (*sandbox.MySQL, error) {
	m, err := sandbox.StartMySQL(context.Background(), sandbox.MySQLOptions{Version: v.prefix, Args: append(slices.Clone(sharedArgs), args...)})
	if err == nil {
		v.mu.Lock()
		v.servers = append(v.servers, m)
		v.mu.Unlock()
	}
	return m, err
}

func (v *version) close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, m := range v.servers {
		_ = m.Close()
	}
}

var builder *e2e.Builder

func TestMain(m *testing.M) {
	var err error
	if builder, err = e2e.NewBuilder(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	for _, v := range versions {
		v.close()
	}
	builder.Close()
	os.Exit(code)
}

// site is one case on one server: a database, a connection that writes, and a relay's reader and router.
type site struct {
	*testing.T
	version *version
	mysql   *sandbox.MySQL
	ctx     context.Context
	db, db2 string
	conn    *client.Conn // the writer's session

	rules    []router.Rule
	router   *router.Router
	change   func(*binlog.Options)
	position *gtid.Set       // what was routed to its end
	columns  json.RawMessage // what the reader remembers of the columns there
	reader   *binlog.Reader
	bindings map[*event.Table]*router.Binding
	registry *prometheus.Registry
	name     string
	rec      router.Record
	metas    []meta
	got      []string // records of the last call of records or stop
	raw      [][]string
	markers  int
}

// meta is what a record had besides key, value and headers.
type meta struct {
	topic     string
	gtid      string
	position  string
	millis    int64
	partition int32
}

// patience is a safety net on a machine that does much else.
const patience = 3 * time.Minute

func newSite(t *testing.T, v *version, alone bool) *site {
	t.Helper()
	m, err := v.start()
	if err != nil {
		t.Fatal(err)
	}
	if alone {
		v.alone.Lock()
		t.Cleanup(v.alone.Unlock)
	} else {
		v.alone.RLock()
		t.Cleanup(v.alone.RUnlock)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	s := &site{T: t, version: v, mysql: m, ctx: ctx, name: fmt.Sprintf("cases-%08x", rand.Uint32())}
	if alone {
		t.Cleanup(s.endBranches)
	}
	s.db, s.db2 = m.NewDatabase(t), m.NewDatabase(t)
	s.conn = s.connect(m, s.db)
	return s
}

// endBranches rolls back what a case has left prepared.
func (s *site) endBranches() {
	c, err := client.Connect(s.mysql.Addr(), "root", "", "")
	if err != nil {
		return
	}
	defer c.Close()
	r, err := c.Execute("XA RECOVER CONVERT XID")
	if err != nil {
		return
	}
	for i := range r.Values {
		id, _ := r.GetString(i, 3)
		n, _ := r.GetInt(i, 1)
		g := strings.TrimPrefix(id, "0x")
		_, _ = c.Execute(fmt.Sprintf("XA ROLLBACK x'%s', x'%s'", g[:2*n], g[2*n:]))
	}
}

func (s *site) connect(m *sandbox.MySQL, db string) *client.Conn {
	s.Helper()
	c, err := client.Connect(m.Addr(), "root", "", db)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = c.Close() })
	return c
}

// fill puts the names of the case's databases into SQL.
func (s *site) fill(text string) string {
	return strings.NewReplacer("{db}", s.db, "{db2}", s.db2).Replace(text)
}

// exec runs statements on the writer's connection.
func (s *site) exec(statements ...string) {
	s.Helper()
	s.execOn(s.conn, statements...)
}

func (s *site) execOn(c *client.Conn, statements ...string) {
	s.Helper()
	for _, text := range statements {
		if _, err := c.Execute(s.fill(text)); err != nil {
			s.Fatalf("%.300s: %v", text, err)
		}
	}
}

// query gives rows in the text protocol; NULL is "NULL".
func (s *site) query(c *client.Conn, q string) [][]string {
	s.Helper()
	r, err := c.Execute(s.fill(q))
	if err != nil {
		s.Fatalf("%.300s: %v", q, err)
	}
	var out [][]string
	for _, data := range r.RowDatas {
		row, rest := make([]string, len(r.Fields)), []byte(data)
		for i := range row {
			v, null, n, err := gomysql.LengthEncodedString(rest)
			if err != nil {
				s.Fatal(err)
			}
			if rest = rest[n:]; null {
				v = []byte("NULL")
			}
			row[i] = string(v)
			if r.Fields[i].Type == gomysql.MYSQL_TYPE_BIT && !null {
				row[i] = bitText(row[i])
			}
		}
		out = append(out, row)
	}
	return out
}

// bitText turns the bytes that SELECT gives for a BIT into a number.
func bitText(b string) string {
	var n uint64
	for _, c := range []byte(b) {
		n = n<<8 | uint64(c)
	}
	return strconv.FormatUint(n, 10)
}

// value gives the only value that a query finds.
func (s *site) value(q string) string {
	s.Helper()
	rows := s.query(s.conn, q)
	if len(rows) != 1 || len(rows[0]) == 0 {
		s.Fatalf("%s: %d rows", q, len(rows))
	}
	return rows[0][0]
}

// selected gives columns of a table as SELECT prints them in a session of UTC and utf8mb4.
func (s *site) selected(table string, columns ...string) [][]string {
	s.Helper()
	c := s.connect(s.mysql, s.db)
	s.execOn(c, "SET NAMES utf8mb4", "SET time_zone = '+00:00'")
	return s.query(c, "SELECT `"+strings.Join(columns, "`, `")+"` FROM "+table+" ORDER BY id")
}

func (s *site) executed() *gtid.Set {
	s.Helper()
	set, err := gtid.ParseSet(s.value("SELECT @@global.gtid_executed"))
	if err != nil {
		s.Fatal(err)
	}
	return set
}

// markerTable is watched beside the case's own tables: its rows tell that all before them has been read.
const markerTable = "marker"

// begin makes the relay whose first position is now.
func (s *site) begin(rules []router.Rule, change func(*binlog.Options)) {
	s.Helper()
	s.exec("CREATE TABLE {db}." + markerTable + " (id INT PRIMARY KEY)")
	s.position = s.executed()
	s.configure(rules, change)
}

// configure makes the router, and the reader from the position on, in place of the ones before.
func (s *site) configure(rules []router.Rule, change func(*binlog.Options)) {
	s.Helper()
	s.rules, s.change = nil, change
	for _, r := range rules {
		r.Table = s.fill(r.Table)
		s.rules = append(s.rules, r)
	}
	if rules == nil {
		s.rules = append(s.rules, outboxRule(s.db, "o"))
	}
	s.restart()
}

// restart stops the relay, if one runs, and starts it again from its position.
func (s *site) restart() {
	s.Helper()
	s.stop()
	rules := append(slices.Clone(s.rules), router.Rule{Table: s.db + "." + markerTable, Preset: "none", Topic: "t", Key: "{id}", Value: "m"})
	var err error
	if s.router, err = router.New(router.Options{Rules: rules}); err != nil {
		s.Fatal(err)
	}
	var tables []binlog.TableName
	for _, t := range s.router.Tables() {
		tables = append(tables, binlog.TableName{Schema: t.Schema, Name: t.Name})
	}
	s.registry = prometheus.NewRegistry()
	o := binlog.Options{
		Name: s.name, Addresses: []string{s.mysql.Addr()}, Tables: tables, Start: s.position, Columns: s.columns, Heartbeat: time.Second,
		Login:  binlog.Login{User: "relay", Password: func(context.Context) (string, error) { return "relay", nil }},
		Memory: 1 << 20, RowLimit: 16 << 20, SpoolDir: s.TempDir(), SpoolLimit: 1 << 30, Registerer: s.registry,
	}
	if s.change != nil {
		s.change(&o)
	}
	reader, err := binlog.New(o)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = reader.Close() })
	s.reader, s.bindings = reader, map[*event.Table]*router.Binding{}
}

// stop ends the relay; what is written meanwhile it reads after restart.
func (s *site) stop() {
	s.Helper()
	if s.reader == nil {
		return
	}
	var err error
	if s.columns, err = s.reader.Columns(s.position); err != nil {
		s.Fatal(err)
	}
	_ = s.reader.Close()
	s.reader = nil
}

// mark writes a row that the relay sees behind all that was written before.
func (s *site) mark() {
	s.Helper()
	s.markers++
	if err := s.mysql.Exec(s.ctx, fmt.Sprintf("INSERT INTO %s.%s VALUES (%d)", s.db, markerTable, s.markers)); err != nil {
		s.Fatal(err)
	}
}

// records gives the records of all that was written and not yet given, each as "key value header=value …".
func (s *site) records() []string {
	s.Helper()
	s.mark()
	if err := s.read(); err != nil {
		s.Fatalf("%v; before it came %q", err, s.got)
	}
	return s.got
}

// cells gives the header values of the records of all that was written and not yet given.
func (s *site) cells() [][]string {
	s.Helper()
	s.records()
	return s.raw
}

var errNoStop = errors.New("the relay went on")

// stopped reads until the relay stands still and gives its error.
func (s *site) stopped() error {
	s.Helper()
	s.mark()
	err := s.read()
	if err == nil {
		s.Fatalf("%v: %q", errNoStop, s.got)
	}
	return err
}

// wantStop demands that the relay stands still for that reason and says those words.
func (s *site) wantStop(reason string, words ...string) {
	s.Helper()
	err := s.stopped()
	var source *binlog.SourceError
	var bad *router.Poison
	var column *router.ColumnError
	got := "?"
	switch {
	case errors.As(err, &source):
		got = string(source.Reason)
	case errors.As(err, &bad):
		got = string(bad.Reason)
	case errors.As(err, &column):
		got = "columns"
	}
	if got != reason {
		s.Errorf("stopped for %s, want %s: %v", got, reason, err)
	}
	for _, w := range words {
		if w = s.fill(w); !strings.Contains(err.Error(), w) {
			s.Errorf("%q does not say %q", err, w)
		}
	}
}

// read takes steps until the last marker, or an error.
func (s *site) read() error {
	s.got, s.raw, s.metas = nil, nil, nil
	for {
		tx, err := s.reader.Next(s.ctx)
		if err != nil {
			return err
		}
		last, err := s.take(tx)
		if err != nil {
			return err
		}
		for _, r := range tx.Ranges {
			s.position.AddRange(r)
		}
		if last {
			return nil
		}
	}
}

// take routes the rows of a step. It reports whether the last marker was among them.
func (s *site) take(tx *binlog.Transaction) (last bool, err error) {
	var row binlog.Row
	for {
		ok, err := tx.NextRow(&row)
		if !ok || err != nil {
			return last, err
		}
		b := s.bindings[row.Table]
		if b == nil {
			if b, err = s.router.Bind(row.Table); err != nil {
				return last, err
			}
			s.bindings[row.Table] = b
		}
		m := router.Meta{Position: tx.GTIDText, CommitMicros: tx.CommitMicros}
		if row.Limit > 0 {
			m.Size, m.Limit = int64(row.Size), row.Limit
		}
		outcome, err := s.router.Route(b, row.Cells, m, row.Number, &s.rec)
		switch {
		case err != nil:
			return last, err
		case outcome == router.Ignored:
			continue
		case row.Table.Name == markerTable && row.Table.Schema == s.db:
			last = last || string(s.rec.Key) == strconv.Itoa(s.markers)
			continue
		}
		s.keep(tx)
	}
}

func (s *site) keep(tx *binlog.Transaction) {
	rec := &s.rec
	text := shown(rec.Key) + " " + shown(rec.Value)
	var cells []string
	last := len(rec.Headers) - 1
	for _, h := range rec.Headers[:last] {
		cells = append(cells, shown(h.Value))
		text += " " + h.Key + "=" + shown(h.Value)
	}
	s.got, s.raw = append(s.got, text), append(s.raw, cells)
	s.metas = append(s.metas, meta{topic: rec.Topic, gtid: tx.GTID.String(), position: string(rec.Headers[last].Value), millis: rec.TimestampMillis, partition: rec.Partition})
}

func shown(b []byte) string {
	if b == nil {
		return "NULL"
	}
	return string(b)
}

func (s *site) equal(got, want []string) {
	s.Helper()
	if diff := cmp.Diff(want, got); diff != "" && len(got)+len(want) > 0 {
		s.Errorf("-want +got:\n%s", diff)
	}
}

// wantRecords demands the records of all that was written and not yet given.
func (s *site) wantRecords(want ...string) {
	s.Helper()
	s.equal(s.records(), want)
}

// metric gives a metric of the reader, the sum over its labels that are not named; want has label names and values in turn.
func (s *site) metric(name string, want ...string) float64 {
	s.Helper()
	families, err := s.registry.Gather()
	if err != nil {
		s.Fatal(err)
	}
	var sum float64
	for _, f := range families {
		if f.GetName() != "outbox_relay_"+name {
			continue
		}
	metrics:
		for _, m := range f.GetMetric() {
			for i := 0; i < len(want); i += 2 {
				if !slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == want[i] && l.GetValue() == want[i+1] }) {
					continue metrics
				}
			}
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return sum
}

// ignored gives the changes of a table that were counted and published nothing.
func (s *site) ignored(table, kind string) float64 {
	s.Helper()
	return s.metric("ignored_changes_total", "table", s.db+"."+table, "kind", kind)
}

// dialer gives connections that are wrapped.
func dialer(wrap func(net.Conn) net.Conn) func(*binlog.Options) {
	return func(o *binlog.Options) {
		o.Login.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			var d net.Dialer
			c, err := d.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return wrap(c), nil
		}
	}
}
