package debezium_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"outbox-relay/binlog"
	"outbox-relay/binlog/event"
	"outbox-relay/binlog/gtid"
	"outbox-relay/binlog/value"
	"outbox-relay/internal/sandbox"
	"outbox-relay/router"
	"outbox-relay/router/debezium"
)

// testdata/golden.sql made the rows; testdata/golden.jsonl.gz is what Debezium 3.6.1 published of them under many settings. The head of the
// first explains the fields of the second.
var (
	//go:embed testdata/golden.sql
	goldenSQL string
	//go:embed testdata/golden.jsonl.gz
	goldenMessages []byte
)

// expected says what the preset makes of cases, where that is not what Debezium published.
type expected struct{ pattern, outcome, reason string }

// different are the cases in which the preset does not give what Debezium gave.
var different = []expected{
	{"string/LONGBLOB*", "refused", objectName}, {"string/key BIGINT UNSIGNED*", "refused", objectName},
	{"string/key BINARY*", "refused", objectName}, {"string/NOT NULL JSON payload", "refused", objectName},
	{"snapshot string/LONGBLOB*", "refused", objectName}, {"snapshot string/key BIGINT UNSIGNED*", "refused", objectName},
	{"snapshot string/key BINARY*", "refused", objectName}, {"snapshot string/NOT NULL JSON payload", "refused", objectName},
	{"tombstone string/LONGBLOB*", "refused", objectName}, {"unsigned precise string/*", "refused", objectName},
	{"route envelope json-schema/*", "published", "Debezium names the envelope's schema after the aggregate type that it sees first after a start; here it is the row's own"},
}

const objectName = "the table has a key or payload of bytes, of which StringConverter writes the name of a Java object: the data is lost, and all keys are equal"

// failed are the cases in which Debezium published nothing.
var failed = []expected{
	{"route non-matching empty value/*", "poison invalid_topic", "no broker takes an empty topic name; Debezium's task stops"},
	{"route invalid topic name/*", "poison invalid_topic", "no broker takes a blank in a topic name; Debezium's task stops"},
	{"expand json*/*", "published", "the text, as of other documents that no schema holds; Debezium's task stops"},
	{"event timestamp d/*", "refused", "a DATE is no time; Debezium's task stops"},
	{"event timestamp ts?/*", "refused", "Debezium has a TIMESTAMP as text, and its task stops"},
	{"event timestamp created_ms/*", "refused", "Debezium takes no plain number, and its task stops"},
	{"event timestamp dt3 connect mode/*", "published", "there is no time.precision.mode here: the column is read as with the default one"},
	{"partition from BIGINT/*", "refused", "Debezium takes a number of 32 bits, and its task stops"},
	{"additional column missing/*", "refused", "the table lacks the column; Debezium's task stops"},
	{"route by BIGINT column/*", "refused", "a topic comes from text; Debezium's task stops"},
	{"placement partition/*", "published", "the partition does not exist: the publisher says so, where Debezium blocks in silence"},
}

// counts change only together with what they count.
type counts struct {
	matched, different, failed int
	// unlike are messages of rows that this server itself stores unlike the one behind the golden messages, so that it shows another text:
	// MySQL 8.0 reads some numbers less exactly, and has other TIME values in JSON beyond 24 hours.
	unlike int
}

var (
	wantCounts    = counts{matched: 1458, different: 36, failed: 51}
	wantCountsOld = counts{matched: 1420, different: 36, failed: 51, unlike: 38} // MySQL 8.0.33
)

type goldenMessage struct {
	Case      string            `json:"case"`
	SQL       string            `json:"sql"`
	Options   map[string]string `json:"options"`
	Error     *string           `json:"error"`
	Shown     *string           `json:"mysql_text"` // what SELECT shows of the payload
	Topic     string            `json:"topic"`
	Partition int32             `json:"partition"`
	Key       []byte            `json:"key_b64"`
	Value     []byte            `json:"value_b64"`
	Timestamp *int64            `json:"timestamp_ms"`
	Headers   []struct {
		Key   string `json:"key"`
		Value []byte `json:"value_b64"`
	} `json:"headers"`
}

func readGolden(t *testing.T) []goldenMessage {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(goldenMessages))
	if err != nil {
		t.Fatal(err)
	}
	var all []goldenMessage
	for lines := json.NewDecoder(bufio.NewReader(z)); lines.More(); {
		var m goldenMessage
		if err := lines.Decode(&m); err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

// statements cuts the file at its semicolons. A backslash is plain in it.
func statements(sql string) []string {
	var all []string
	quoted, from := false, 0
	for i := 0; i < len(sql); i++ {
		switch {
		case sql[i] == '\'':
			quoted = !quoted
		case quoted:
		case strings.HasPrefix(sql[i:], "--"):
			i += strings.IndexByte(sql[i:], '\n')
			from = i + 1
		case sql[i] == ';':
			all = append(all, strings.TrimSpace(sql[from:i]))
			from = i + 1
		}
	}
	return all
}

// goldenRow is a row as the binlog has it.
type goldenRow struct {
	table *event.Table
	cells []event.Cell
}

// shows tells whether SELECT shows this text of a JSON payload; other columns do not depend on the server.
func (r goldenRow) shows(t *testing.T, text string) bool {
	t.Helper()
	for i := range r.table.Columns {
		col := &r.table.Columns[i]
		if col.Name != "payload" || col.Type != event.ColumnJSON {
			continue
		}
		got, err := value.Append(nil, col, r.cells[i].Raw)
		if err != nil {
			t.Fatal(err)
		}
		return string(got) == text
	}
	return true
}

// goldenRows runs the file on the server and reads the rows back, by the statement that made them.
func goldenRows(t *testing.T, m *sandbox.MySQL) map[string]goldenRow {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	db := m.DB(t, "")
	session, err := db.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	exec := func(s string) {
		if _, err := session.ExecContext(ctx, s); err != nil {
			t.Fatalf("%.200s: %v", s, err)
		}
	}
	exec("DROP DATABASE IF EXISTS gold")
	var text string
	if err := session.QueryRowContext(ctx, "SELECT @@global.gtid_executed").Scan(&text); err != nil {
		t.Fatal(err)
	}
	start, err := gtid.ParseSet(text)
	if err != nil {
		t.Fatal(err)
	}
	var inserts []string
	tables := map[string]bool{}
	for _, s := range statements(goldenSQL) {
		exec(s)
		if strings.HasPrefix(s, "INSERT") {
			inserts = append(inserts, s)
			tables[strings.Fields(s)[2]] = true
		}
	}
	var watched []binlog.TableName
	for name := range tables {
		watched = append(watched, binlog.TableName{Schema: "gold", Name: name})
	}
	reader, err := binlog.New(binlog.Options{
		Name: strings.ReplaceAll(t.Name(), "/", "-"), Addresses: []string{m.Addr()}, Tables: watched, Start: start, Heartbeat: time.Second,
		Login:  binlog.Login{User: "relay", Password: func(context.Context) (string, error) { return "relay", nil }},
		Memory: 16 << 20, RowLimit: 16 << 20, SpoolDir: t.TempDir(), SpoolLimit: 1 << 30,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	rows := make(map[string]goldenRow, len(inserts))
	for n := 0; n < len(inserts); {
		tx, err := reader.Next(ctx)
		if err != nil {
			t.Fatalf("after %d of %d rows: %v", n, len(inserts), err)
		}
		for {
			var row binlog.Row
			if ok, err := tx.NextRow(&row); err != nil {
				t.Fatal(err)
			} else if !ok {
				break
			}
			kept := goldenRow{table: row.Table, cells: slices.Clone(row.Cells)}
			for i := range kept.cells {
				kept.cells[i].Raw = bytes.Clone(kept.cells[i].Raw)
			}
			rows[inserts[n]] = kept
			n++
		}
	}
	return rows
}

const runID = "01a228dc-4e6e-7889-803b-c8c808a338e4"

// optionsOf translates the settings of Debezium.
func optionsOf(t *testing.T, in map[string]string) *debezium.Options {
	t.Helper()
	o := &debezium.Options{NoPositionHeader: true, RunID: runID}
	converter := func(key string) string {
		switch class := in[key]; {
		case strings.HasSuffix(class, ".StringConverter"):
			return "string"
		case strings.HasSuffix(class, ".BinaryDataConverter"):
			return "binary"
		case !strings.HasSuffix(class, ".JsonConverter"):
			t.Fatalf("%s: %s", key, class)
		case in[key+".schemas.enable"] == "false":
			return "json"
		}
		return "json-with-schema"
	}
	for key, v := range in {
		short, ofRouter := strings.CutPrefix(key, "transforms.outbox.")
		switch {
		case key == "key.converter":
			o.KeyConverter = converter(key)
		case key == "value.converter":
			o.ValueConverter = converter(key)
		case key == "header.converter":
			o.HeaderConverter = converter(key)
		case key == "topic.prefix":
			o.TopicPrefix = v
		case key == "extended.headers.enabled":
			o.NoContextHeaders = v == "false"
		case key == "binary.handling.mode":
			o.Binary = v
		case key == "bigint.unsigned.handling.mode":
			o.UnsignedBigint = v
		case key == "snapshot.mode" && v == "initial": // rows that a snapshot read have the text of SELECT
			o.JSONText = "mysql"
		case strings.HasSuffix(key, ".schemas.enable"), key == "snapshot.mode", key == "errors.tolerance", key == "time.precision.mode":
		case !ofRouter:
			t.Fatalf("unknown setting %s", key)
		case short == "table.fields.additional.placement":
			o.Additional = strings.Split(v, ",")
		case short == "table.field.additional.missing":
			o.AdditionalMissing = v
		case short == "route.by.field":
			o.RouteBy = v
		case short == "route.topic.regex":
			o.TopicRegex = v
		case short == "route.topic.replacement":
			o.TopicReplacement = v
		case short == "table.expand.json.payload":
			o.ExpandJSON = v == "true"
		case short == "table.json.payload.null.behavior":
			o.JSONNull = v
		case short == "route.tombstone.on.empty.payload":
			o.TombstoneOnEmpty = v == "true"
		case short == "table.field.event.timestamp":
			o.Timestamp = v
		default:
			t.Fatalf("unknown option %s", short)
		}
	}
	return o
}

func TestGoldenMessages(t *testing.T) {
	t.Parallel()
	golden := readGolden(t)
	t.Run("9.7.4", func(t *testing.T) {
		t.Parallel()
		compareGolden(t, golden, goldenRows(t, sandbox.SharedMySQL(t)), wantCounts)
	})
	t.Run("8.0.33", func(t *testing.T) {
		t.Parallel()
		compareGolden(t, golden, goldenRows(t, sandbox.RunMySQL(t, sandbox.MySQLOptions{Version: "8.0.33"})), wantCountsOld)
	})
}

// compareGolden routes each row under the settings of each of its messages.
func compareGolden(t *testing.T, golden []goldenMessage, rows map[string]goldenRow, want counts) {
	t.Helper()
	routers := map[string]*goldenRouter{}
	var got counts
	used := map[string]bool{}
	mismatches := 0
	for _, m := range golden {
		name, err := json.Marshal(m.Options)
		if err != nil {
			t.Fatal(err)
		}
		if routers[string(name)] == nil {
			routers[string(name)] = newGoldenRouter(t, m.Options)
		}
		row, ok := rows[m.SQL]
		if !ok {
			t.Fatalf("no row of %s", m.SQL)
		}
		rec := new(router.Record)
		outcome := routers[string(name)].route(row, rec)
		if m.Error != nil {
			got.failed++
			if want := find(failed, m.Case); want == nil || want.outcome != outcome {
				t.Errorf("%s: %s, want %v", m.Case, outcome, want)
			} else {
				used[want.pattern] = true
			}
			continue
		}
		if m.Shown != nil && !row.shows(t, *m.Shown) {
			got.unlike++
			continue
		}
		difference := outcome
		if outcome == "published" {
			difference = compareRecord(rec, m)
		}
		if difference == "" {
			got.matched++
			continue
		}
		if want := find(different, m.Case); want != nil && want.outcome == outcome {
			used[want.pattern] = true
			got.different++
			continue
		}
		if mismatches++; mismatches <= 20 {
			t.Errorf("%s: %s", m.Case, difference)
		}
	}
	if got != want || mismatches > 0 {
		t.Errorf("%+v and %d not explained, want %+v", got, mismatches, want)
	}
	t.Logf("%+v", got)
	for _, e := range slices.Concat(different, failed) {
		if !used[e.pattern] {
			t.Errorf("nothing is as listed under %s (%s)", e.pattern, e.reason)
		}
	}
}

// find gives the entry for a case. A name is group/case, and the second part may hold more slashes.
func find(list []expected, name string) *expected {
	group, rest, _ := strings.Cut(name, "/")
	for i := range list {
		ofGroup, ofRest, _ := strings.Cut(list[i].pattern, "/")
		if fits(ofGroup, group) && fits(ofRest, rest) {
			return &list[i]
		}
	}
	return nil
}

func fits(pattern, name string) bool {
	ok, err := path.Match(pattern, strings.ReplaceAll(name, "/", " "))
	return ok && err == nil
}

// goldenRouter routes the rows of all golden tables under one set of options.
type goldenRouter struct {
	router   *router.Router
	bindings map[*event.Table]*router.Binding
	errs     map[*event.Table]error
}

func newGoldenRouter(t *testing.T, options map[string]string) *goldenRouter {
	t.Helper()
	o := optionsOf(t, options)
	var rules []router.Rule
	for _, table := range []string{"ob_json", "ob_text", "ob_blob", "ob_uuid", "ob_mix", "ob_wide"} {
		rules = append(rules, router.Rule{Table: "gold." + table, Preset: "debezium", Debezium: o})
	}
	r, err := router.New(router.Options{Rules: rules})
	if err != nil {
		t.Fatalf("%v: %v", options, err)
	}
	return &goldenRouter{router: r, bindings: map[*event.Table]*router.Binding{}, errs: map[*event.Table]error{}}
}

func (g *goldenRouter) route(row goldenRow, rec *router.Record) (outcome string) {
	if g.bindings[row.table] == nil && g.errs[row.table] == nil {
		g.bindings[row.table], g.errs[row.table] = g.router.Bind(row.table)
	}
	if g.errs[row.table] != nil {
		return "refused"
	}
	_, err := g.router.Route(g.bindings[row.table], row.cells, router.Meta{Position: []byte("gtid"), CommitMicros: 1}, 0, rec)
	var poison *router.Poison
	if errors.As(err, &poison) {
		return "poison " + string(poison.Reason)
	} else if err != nil {
		return err.Error()
	}
	return "published"
}

// compareRecord gives the first difference, empty for none.
func compareRecord(rec *router.Record, m goldenMessage) string {
	show := func(b []byte) string {
		if b == nil {
			return "null"
		}
		return fmt.Sprintf("%.600q", b)
	}
	same := func(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }
	switch {
	case rec.Topic != m.Topic:
		return fmt.Sprintf("topic %q, want %q", rec.Topic, m.Topic)
	case !same(rec.Key, m.Key):
		return fmt.Sprintf("key %s, want %s", show(rec.Key), show(m.Key))
	case !same(rec.Value, m.Value):
		return fmt.Sprintf("value\n%s, want\n%s", show(rec.Value), show(m.Value))
	case m.Timestamp != nil && rec.TimestampMillis != *m.Timestamp:
		return fmt.Sprintf("timestamp %d, want %d", rec.TimestampMillis, *m.Timestamp)
	}
	const partitions = 3
	partition := rec.Partition
	if partition < 0 && rec.Key != nil {
		partition = int32(murmur2(rec.Key)&0x7fffffff) % partitions
	}
	if partition >= 0 && partition != m.Partition {
		return fmt.Sprintf("partition %d, want %d", partition, m.Partition)
	}
	var got, want []string
	for _, h := range rec.Headers {
		got = append(got, h.Key+"="+show(h.Value))
	}
	for _, h := range m.Headers {
		if h.Key == "__debezium.context.runId" && isUUID7(h.Value) {
			h.Value = bytes.Replace(h.Value, bytes.Trim(h.Value, `"`), []byte(runID), 1)
		}
		want = append(want, h.Key+"="+show(h.Value))
	}
	if !slices.Equal(got, want) {
		return fmt.Sprintf("headers\n%q, want\n%q", got, want)
	}
	return ""
}

// isUUID7 tells whether b is a UUID of version 7, with or without quotes.
func isUUID7(b []byte) bool {
	b = bytes.Trim(b, `"`)
	return len(b) == 36 && b[14] == '7'
}

// murmur2 is the hash by which Kafka's Java client chooses partitions.
func murmur2(data []byte) uint32 {
	const m = 0x5bd1e995
	h := 0x9747b28c ^ uint32(len(data))
	for ; len(data) >= 4; data = data[4:] {
		k := binary.LittleEndian.Uint32(data) * m
		h = h*m ^ (k^k>>24)*m
	}
	for i := len(data) - 1; i >= 0; i-- {
		h ^= uint32(data[i]) << (8 * i)
	}
	if len(data) > 0 {
		h *= m
	}
	h = (h ^ h>>13) * m
	return h ^ h>>15
}
