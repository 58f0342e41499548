package e2e_test

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"outbox-relay/internal/e2e"
	"outbox-relay/internal/sandbox"
	"outbox-relay/relay"
	"outbox-relay/relay/relaytest"
)

// This file proves the poison policies: rows of every kind of poison that can be made, among good ones, under each policy. `make letters` takes 10,000
// rows with 100 of each kind, plain `go test` a tenth of that.

const (
	lettersTopic = 16 << 10 // max.message.bytes of the topics, set once the relay knows another limit
	lettersDead  = 64 << 10 // that of the topic of dead letters
	lettersRow   = 96 << 10 // limits.row
)

// ofEach is how many rows there are of each kind of poison, and a hundredth of all rows.
func ofEach(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(os.Getenv("LETTERS_OF_EACH"))
	if err != nil {
		return 10
	}
	return n
}

// letterRow is a row of letters_outbox. Its rule takes topic, key and value from columns; a row of kind p also its partition.
type letterRow struct {
	id                                 int
	kind                               string
	topic, key, payload, note, at, raw any
	headers                            string
	part                               any
	bad                                *badKind // nil for a good row
	where                              string   // its topic, as the dead letter names it
	keyText                            string   // empty for NULL
	stamp                              int64    // milliseconds
	withoutNote                        bool     // in the row image
}

// badKind is a kind of poison.
type badKind struct {
	name, reason string
	change       func(l *lettersLoad, r *letterRow)
	sentence     string // part of dead-letter-error, and of the sentence of a halt
	lost         bool   // the value is not in the letter
	again        bool   // the letter can be published again, once what was in its way is gone
	parted       bool   // it needs the rule that takes the partition from a column
	unordered    bool   // it has no key, or no topic that is known: nothing is parked for it
}

var badKinds = []badKind{
	{name: "too large", reason: "too_large", again: true, change: func(_ *lettersLoad, r *letterRow) { r.payload = noise[:lettersTopic+1000] }},
	{name: "too large for the letters too", reason: "too_large", lost: true, change: func(_ *lettersLoad, r *letterRow) { r.payload = noise[:lettersDead+1000] }},
	{name: "row too large", reason: "row_too_large", sentence: "limits.row allows", lost: true, change: func(_ *lettersLoad, r *letterRow) { r.payload = noise[:lettersRow+1000] }},
	{name: "old timestamp", reason: "invalid_timestamp", again: true, change: func(_ *lettersLoad, r *letterRow) { r.at, r.stamp = "2001-02-03 04:05:06.789", 981173106789 }},
	{name: "no timestamp", reason: "invalid_timestamp", change: func(_ *lettersLoad, r *letterRow) { r.at = nil }},
	{name: "invalid topic", reason: "invalid_topic", sentence: `"no topic!"`, unordered: true, change: func(_ *lettersLoad, r *letterRow) { r.topic, r.where = "no topic!", "no topic!" }},
	{name: "topic of the letters", reason: "invalid_topic", sentence: "dead letters", unordered: true, change: func(l *lettersLoad, r *letterRow) { r.topic, r.where = l.dead, l.dead }},
	{name: "topic of the brokers", reason: "invalid_topic", sentence: "brokers themselves", unordered: true, change: func(_ *lettersLoad, r *letterRow) { r.topic, r.where = "__consumer_offsets", "__consumer_offsets" }},
	{name: "no topic", reason: "null_topic", sentence: "NULL", unordered: true, change: func(_ *lettersLoad, r *letterRow) { r.topic, r.where = nil, "" }},
	{name: "no key", reason: "null_key", sentence: "the key column is NULL", unordered: true, change: func(_ *lettersLoad, r *letterRow) { r.key, r.keyText = nil, "" }},
	{name: "no value", reason: "null_value", sentence: "the value column is NULL", change: func(_ *lettersLoad, r *letterRow) { r.payload = nil }},
	{name: "null in a template", reason: "null_in_template", sentence: "column note", change: func(_ *lettersLoad, r *letterRow) { r.note = nil }},
	{name: "column not in the image", reason: "missing_column", sentence: "binlog_row_image", change: func(_ *lettersLoad, r *letterRow) { r.withoutNote = true }},
	{name: "headers that are none", reason: "invalid_headers", sentence: "column headers", change: func(_ *lettersLoad, r *letterRow) { r.headers = "[1]" }},
	{name: "15 bytes for a UUID", reason: "invalid_filter", sentence: "column raw", change: func(_ *lettersLoad, r *letterRow) { r.raw = []byte("fifteen bytes..") }},
	{name: "no rule", reason: "unmatched", sentence: "no rule of the table matches", change: func(_ *lettersLoad, r *letterRow) { r.kind = "y" }},
	{name: "no partition", reason: "invalid_partition", parted: true, change: func(_ *lettersLoad, r *letterRow) { r.part = nil }},
	{name: "negative partition", reason: "invalid_partition", parted: true, change: func(_ *lettersLoad, r *letterRow) { r.part = -1 }},
	{name: "partition that is missing", reason: "invalid_partition", sentence: "4 partitions", parted: true, again: true, change: func(_ *lettersLoad, r *letterRow) { r.part = 5 }},
}

// lettersLoad is a site with its rows.
type lettersLoad struct {
	t      *testing.T
	k      *sandbox.Kafka
	site   *e2e.Site
	dead   string
	topics [2]string // of the plain rule
	parted string    // of the rule with a partition
	rows   []letterRow
	kinds  []*badKind
	random *rand.Rand
}

const lettersRules = `  - {table: <database>.letters_outbox, preset: none, topic: "{topic}", key: "{k}", value: "{payload}", timestamp: at, time_zone: UTC, partition: part, when: {kind: [p]},
     headers: [{name: id, value: "{id}"}, {name: note, value: "n-{note}"}, {name: raw, value: "{raw|uuid}"}, {name: "*", value: "{headers}"}]}
  - {table: <database>.letters_outbox, preset: none, topic: "{topic}", key: "{k}", value: "{payload}", timestamp: at, time_zone: UTC, when: {kind: [x]},
     headers: [{name: id, value: "{id}"}, {name: note, value: "n-{note}"}, {name: raw, value: "{raw|uuid}"}, {name: "*", value: "{headers}"}]}
`

// newLetters makes a site under a policy. The topics begin with limits that let nearly all rows pass.
func newLetters(t *testing.T, policy string, exactlyOnce bool) *lettersLoad {
	t.Helper()
	l := &lettersLoad{t: t, k: sandbox.SharedKafka(t), random: rand.New(rand.NewPCG(1, 2))}
	l.dead = l.k.NewTopic(t, 3, map[string]string{"max.message.bytes": strconv.Itoa(lettersDead)})
	forEver := map[string]string{"retention.ms": "-1"} // a row has a timestamp of 2001
	for i := range l.topics {
		l.topics[i] = l.k.NewTopic(t, 4, forEver)
	}
	l.parted = l.k.NewTopic(t, 4, forEver)
	for i := range badKinds {
		// Where nothing becomes a letter, their topic is one as others.
		if badKinds[i].name != "topic of the letters" || strings.Contains(policy, "dead_letter") {
			l.kinds = append(l.kinds, &badKinds[i])
		}
	}
	l.site = site(t, e2e.SiteOptions{Kafka: l.k, ExactlyOnce: exactlyOnce, Rules: lettersRules, Config: fmt.Sprintf("poison: {policy: %s, topic: %s}\nlimits: {row: %d}\n", policy, l.dead, lettersRow)})
	l.exec(l.site.DB, `CREATE TABLE letters_outbox (id BIGINT UNSIGNED PRIMARY KEY, kind CHAR(1) NOT NULL, topic VARCHAR(300), k VARCHAR(64), payload LONGTEXT, note VARCHAR(64) DEFAULT 'n',
		at DATETIME(3), part INT, headers JSON, raw VARBINARY(16))`)
	return l
}

type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

func (l *lettersLoad) exec(db execer, statement string, args ...any) {
	l.t.Helper()
	if _, err := db.ExecContext(testContext(l.t), statement, args...); err != nil {
		l.t.Fatal(err)
	}
}

// narrow sets the limits that some rows do not keep, unnoticed by a relay that runs.
func (l *lettersLoad) narrow() { l.alter(strconv.Itoa(lettersTopic), "2592000000") }

// widen takes what stands in the way of letters away; with grow also that a partition is missing, which stays so.
func (l *lettersLoad) widen(grow bool) {
	l.t.Helper()
	l.alter("1048576", "9223372036854775807")
	if !grow {
		return
	}
	admin, err := l.k.Admin()
	if err != nil {
		l.t.Fatal(err)
	}
	defer admin.Close()
	if err := admin.CreatePartitions(l.parted, 6, nil, false); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lettersLoad) alter(size, age string) {
	l.t.Helper()
	admin, err := l.k.Admin()
	if err != nil {
		l.t.Fatal(err)
	}
	defer admin.Close()
	for _, topic := range append(l.topics[:], l.parted) {
		entries := map[string]sarama.IncrementalAlterConfigsEntry{
			"max.message.bytes":               {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &size},
			"message.timestamp.before.max.ms": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &age},
		}
		if err := admin.IncrementalAlterConfig(sarama.TopicResource, topic, entries, false); err != nil {
			l.t.Fatal(err)
		}
	}
}

// row makes the next row, good where bad is nil.
func (l *lettersLoad) row(bad *badKind, keys int) letterRow {
	id := len(l.rows) + 1
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	if now := time.Now().UTC(); now.Sub(at).Abs() > 24*time.Hour {
		at = now.Truncate(time.Second)
	}
	n := l.random.IntN(keys)
	r := letterRow{
		id: id, kind: "x", topic: l.topics[n%2], key: fmt.Sprintf("k%d", n), payload: fmt.Sprintf("value %d", id), note: "n", at: at.Format("2006-01-02 15:04:05.000"), stamp: at.UnixMilli(),
		headers: fmt.Sprintf(`{"trace": "t%d"}`, id), raw: []byte("sixteen bytes..."), bad: bad,
	}
	if bad != nil && bad.parted || bad == nil && id%20 == 0 {
		// Each with a key of its own: what it is that such a row has to wait for, the row does not say.
		r.kind, r.topic, r.key, r.part = "p", l.parted, fmt.Sprintf("p%d", id), id%4
	}
	r.where, r.keyText = r.topic.(string), r.key.(string)
	if bad != nil {
		bad.change(l, &r)
	}
	l.rows = append(l.rows, r)
	return r
}

// write inserts rows, of which those with all columns share transactions.
func (l *lettersLoad) write(rows []letterRow) {
	l.t.Helper()
	conn, err := l.site.DB.Conn(testContext(l.t))
	if err != nil {
		l.t.Fatal(err)
	}
	defer conn.Close()
	var values []string
	var args []any
	flush := func() {
		l.t.Helper()
		if len(values) > 0 {
			l.exec(conn, "INSERT INTO letters_outbox (id, kind, topic, k, payload, note, at, part, headers, raw) VALUES "+strings.Join(values, ","), args...)
		}
		values, args = nil, nil
	}
	for _, r := range rows {
		if r.withoutNote {
			flush()
			l.exec(conn, "SET SESSION binlog_row_image = MINIMAL")
			l.exec(conn, "INSERT INTO letters_outbox (id, kind, topic, k, payload, at, part, headers, raw) VALUES (?,?,?,?,?,?,?,?,?)", r.id, r.kind, r.topic, r.key, r.payload, r.at, r.part, r.headers, r.raw)
			l.exec(conn, "SET SESSION binlog_row_image = FULL")
			continue
		}
		values = append(values, "(?,?,?,?,?,?,?,?,?,?)")
		args = append(args, r.id, r.kind, r.topic, r.key, r.payload, r.note, r.at, r.part, r.headers, r.raw)
		if len(values) == 50 {
			flush()
		}
	}
	flush()
}

// load writes the rows: ofEach of each kind, in random places among a hundred times as many.
func (l *lettersLoad) load() {
	l.t.Helper()
	n := ofEach(l.t)
	var kinds []*badKind
	for _, k := range l.kinds {
		kinds = append(kinds, slices.Repeat([]*badKind{k}, n)...)
	}
	kinds = append(kinds, make([]*badKind, 100*n-len(kinds))...)
	l.random.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	from := len(l.rows)
	for _, k := range kinds {
		l.row(k, 10*n)
	}
	l.write(l.rows[from:])
}

// stream is a topic and a key: what has an order.
type stream struct{ topic, key string }

// expected gives what is to be in the topics, and among the dead letters with its reason, by stream and in order.
func (l *lettersLoad) expected(policy string) (published map[stream][]int, letters map[stream][]string) {
	published, letters = map[stream][]int{}, map[stream][]string{}
	parked := map[stream]bool{}
	for _, r := range l.rows {
		s := stream{r.where, r.keyText}
		switch {
		case r.bad != nil:
			if policy != "skip" {
				letters[s] = append(letters[s], fmt.Sprintf("%d %s", r.id, r.bad.reason))
			}
			parked[s] = parked[s] || policy == "park" && !r.bad.unordered
		case parked[s]:
			letters[s] = append(letters[s], fmt.Sprintf("%d parked", r.id))
		default:
			published[s] = append(published[s], r.id)
		}
	}
	return published, letters
}

// consume reads topics and gives each message with its headers by name and the row that it is of.
func (l *lettersLoad) consume(topics []string, see func(r letterRow, m relaytest.Message, headers map[string]string)) {
	l.t.Helper()
	err := relaytest.Consume(testContext(l.t), relaytest.ConsumeOptions{Brokers: l.k.Addrs(), Topics: topics, ReadCommitted: true}, func(m relaytest.Message) error {
		headers := map[string]string{}
		for _, h := range m.Headers {
			headers[h.Key] = string(h.Value)
		}
		id, err := strconv.Atoi(headers["id"])
		if err != nil || id < 1 || id > len(l.rows) {
			return fmt.Errorf("%s: a message with the id %q", m.Topic, headers["id"])
		}
		see(l.rows[id-1], m, headers)
		return nil
	})
	if err != nil {
		l.t.Fatal(err)
	}
}

// outbox are the topics of the rows.
func (l *lettersLoad) outbox() []string { return append(l.topics[:], l.parted) }

// published reads the topics of the rows, by stream; a row that comes again is left out, and has to be the same.
func (l *lettersLoad) published() (got map[stream][]int, again int) {
	l.t.Helper()
	got = map[stream][]int{}
	positions := map[int]string{}
	l.consume(l.outbox(), func(r letterRow, m relaytest.Message, headers map[string]string) {
		if value, _ := r.payload.(string); string(m.Value) != value || string(m.Key) != r.keyText || m.Millis != r.stamp {
			l.t.Errorf("row %d is published with key %q, timestamp %d and a value of %d bytes", r.id, m.Key, m.Millis, len(m.Value))
		}
		var names []string
		for _, h := range m.Headers {
			names = append(names, h.Key)
		}
		if want := []string{"id", "note", "raw", "trace", "outbox-relay-position"}; !slices.Equal(names, want) || headers["note"] != "n-n" || headers["trace"] != fmt.Sprintf("t%d", r.id) {
			l.t.Errorf("row %d is published with the headers %v", r.id, headers)
		}
		if r.part != nil && int(m.Partition) != r.part.(int) {
			l.t.Errorf("row %d is in partition %d, want %d", r.id, m.Partition, r.part)
		}
		at := headers["outbox-relay-position"]
		if before, seen := positions[r.id]; seen {
			again++
			if before != at {
				l.t.Errorf("row %d is at the position %s and then at %s", r.id, before, at)
			}
			return
		}
		positions[r.id] = at
		s := stream{m.Topic, string(m.Key)}
		got[s] = append(got[s], r.id)
	})
	return got, again
}

// letters reads the dead letters, by stream, and looks at each.
func (l *lettersLoad) letters() map[stream][]string {
	l.t.Helper()
	got := map[stream][]string{}
	l.consume([]string{l.dead}, func(r letterRow, m relaytest.Message, headers map[string]string) {
		s := stream{headers["dead-letter-topic"], string(m.Key)}
		got[s] = append(got[s], fmt.Sprintf("%d %s", r.id, headers["dead-letter-reason"]))
		l.look(r, m, headers)
	})
	for s, list := range got {
		if s.key == "" { // rows without key have no order
			slices.SortFunc(list, func(a, b string) int { return number(a) - number(b) })
		}
	}
	return got
}

// number is the id at the front of a text.
func number(text string) int {
	id, _, _ := strings.Cut(text, " ")
	n, _ := strconv.Atoi(id)
	return n
}

// look judges one dead letter.
func (l *lettersLoad) look(r letterRow, m relaytest.Message, headers map[string]string) {
	l.t.Helper()
	bad := r.bad
	if bad == nil {
		bad = &badKind{name: "parked", sentence: "an earlier record of the key"}
	}
	value, _ := r.payload.(string)
	sum := sha256.Sum256([]byte(value))
	want := map[string]string{
		"dead-letter-table": l.site.Database() + ".letters_outbox", "dead-letter-relay": l.site.Name, "dead-letter-size": strconv.Itoa(len(value)), "dead-letter-sha256": hex.EncodeToString(sum[:]),
		"id": strconv.Itoa(r.id), "note": "n-n", "trace": fmt.Sprintf("t%d", r.id), "raw": "73697874-6565-6e20-6279-7465732e2e2e",
	}
	order := []string{"id", "note", "raw", "trace", "dead-letter-reason", "dead-letter-error", "dead-letter-topic", "dead-letter-table", "dead-letter-size", "dead-letter-sha256", "dead-letter-relay"}
	missing := func(name string) {
		delete(want, name)
		order = slices.DeleteFunc(order, func(s string) bool { return s == name })
	}
	switch bad.name {
	case "row too large":
		want["dead-letter-sha256"] = ""
		delete(want, "dead-letter-size")
		if n, err := strconv.Atoi(headers["dead-letter-size"]); err != nil || n <= lettersRow {
			l.t.Errorf("row %d (%s): size %q", r.id, bad.name, headers["dead-letter-size"])
		}
	case "no value":
		want["dead-letter-sha256"] = ""
	case "null in a template", "column not in the image":
		missing("note")
	case "headers that are none":
		missing("trace")
	case "15 bytes for a UUID":
		missing("raw")
	case "old timestamp":
		order = append(order, "dead-letter-timestamp")
		want["dead-letter-timestamp"] = strconv.FormatInt(r.stamp, 10)
	}
	if n, ok := r.part.(int); ok && n >= 0 {
		order = append(order, "dead-letter-partition")
		want["dead-letter-partition"] = strconv.Itoa(n)
	}
	order = append(order, "outbox-relay-position")
	var names []string
	for _, h := range m.Headers {
		names = append(names, h.Key)
	}
	if !slices.Equal(names, order) {
		l.t.Errorf("row %d (%s) has the headers %v, want %v", r.id, bad.name, names, order)
	}
	for name, value := range want {
		if headers[name] != value {
			l.t.Errorf("row %d (%s): header %s is %.80q, want %.80q", r.id, bad.name, name, headers[name], value)
		}
	}
	if text := headers["dead-letter-error"]; text == "" || !strings.Contains(text, bad.sentence) {
		l.t.Errorf("row %d (%s): the error is %q, and lacks %q", r.id, bad.name, text, bad.sentence)
	}
	if bad.lost != (m.Value == nil && r.payload != nil) || !bad.lost && string(m.Value) != value {
		l.t.Errorf("row %d (%s): the value has %d bytes, want %d, lost %v", r.id, bad.name, len(m.Value), len(value), bad.lost)
	}
	if stamp := m.Millis; bad.reason != "invalid_timestamp" && !bad.lost && stamp != r.stamp {
		l.t.Errorf("row %d (%s): the timestamp is %d, want %d", r.id, bad.name, stamp, r.stamp)
	}
}

func sameStreams[T comparable](t *testing.T, what string, got, want map[stream][]T) {
	t.Helper()
	faults := 0
	for s := range maps.Keys(want) {
		if !slices.Equal(got[s], want[s]) {
			if faults++; faults <= 5 {
				t.Errorf("%s, topic %q, key %q: %d are there %.300v, want %d %.300v", what, s.topic, s.key, len(got[s]), fmt.Sprint(got[s]), len(want[s]), fmt.Sprint(want[s]))
			}
		}
	}
	for s := range got {
		if want[s] == nil {
			if faults++; faults <= 5 {
				t.Errorf("%s, topic %q, key %q: %v are there, want none", what, s.topic, s.key, got[s])
			}
		}
	}
	if faults > 5 {
		t.Errorf("%s: %d streams differ", what, faults)
	}
}

// Rows of every kind of poison under each policy that goes on: exactly the good ones are in their topics and exactly the others among the dead letters, in the
// order of their keys and with all headers. Who refuses a row differs: the rules, the checks before sending, or the broker, by limits lowered unnoticed.
func TestEveryKindOfPoisonUnderEachPolicy(t *testing.T) {
	t.Parallel()
	for title, policy := range map[string]string{
		"skip": "skip", "dead_letter": "dead_letter", "park": "dead_letter, park_keys: true",
		"skip exactly once": "skip", "dead_letter exactly once": "dead_letter", "park exactly once": "dead_letter, park_keys: true",
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			name, _, once := strings.Cut(title, " ")
			l := newLetters(t, policy, once)
			r := start(t, l.site, e2e.RelayOptions{})
			l.row(nil, 10)
			l.row(nil, 10)
			for i := 2; l.rows[0].where == l.rows[i-1].where && i < 20; i++ {
				l.row(nil, 10)
			}
			l.write(l.rows)
			waitRelayed(t, l.site, r) // it knows the topics now
			l.narrow()
			l.load()
			waitRelayed(t, l.site, r)
			waitStatus(t, r, "ready", func(st relay.Status) bool { return st.Ready && st.Halted == "" })
			published, letters := l.expected(name)
			st, err := r.Status(testContext(t))
			if err != nil {
				t.Fatal(err)
			}
			parked := 0
			if name == "park" {
				seen := map[stream]bool{}
				for _, r := range l.rows {
					if s := (stream{r.where, r.keyText}); r.bad != nil && !r.bad.unordered && !seen[s] {
						seen[s] = true
						parked++
					}
				}
			}
			if st.Sink.ParkedKeys != parked {
				t.Errorf("%d keys are parked, want %d", st.Sink.ParkedKeys, parked)
			}
			stop(t, r)
			got, again := l.published()
			sameStreams(t, "published", got, published)
			sameStreams(t, "dead letters", l.letters(), letters)
			if again > 0 {
				t.Errorf("%d rows were published again", again)
			}
			if n := strings.Count(r.Log(), `msg="poison record`); n != len(l.kinds)*ofEach(t) {
				t.Errorf("%d poison records were logged, want %d", n, len(l.kinds)*ofEach(t))
			}
		})
	}
}

// Under halt each kind of poison stops the relay with a sentence that names the row and a remedy. With the remedy, which is another policy or the cause gone,
// it goes on, and nothing is lost or out of order.
func TestEveryKindOfPoisonHaltsAndGoesOn(t *testing.T) {
	t.Parallel()
	l := newLetters(t, "halt", false)
	l.narrow()
	want := map[stream][]int{}
	good := func() {
		r := l.row(nil, 4)
		want[stream{r.where, r.keyText}] = append(want[stream{r.where, r.keyText}], r.id)
	}
	for _, bad := range l.kinds {
		from := len(l.rows)
		good()
		row := l.row(bad, 4)
		good()
		l.write(l.rows[from:])
		r := start(t, l.site, e2e.RelayOptions{})
		var st relay.Status
		waitStatus(t, r, bad.name+" halts", func(s relay.Status) bool { st = s; return s.Halted != "" })
		for _, part := range []string{
			"halted at transaction ", l.site.Database() + ".letters_outbox", fmt.Sprintf("row %d of", row.id), "(" + bad.reason + ")", bad.sentence,
			map[bool]string{false: "change the rule or the topic so that the row fits, or set the checkpoint behind it", true: "raise limits.row"}[bad.reason == "row_too_large"],
		} {
			if !strings.Contains(st.Halted, part) {
				t.Errorf("%s: the halt says %q and lacks %q", bad.name, st.Halted, part)
			}
		}
		gtid, _, _ := strings.Cut(strings.TrimPrefix(st.Halted, "halted at transaction "), ": row")
		if uuid, number, ok := strings.Cut(gtid, ":"); !ok || len(uuid) != 36 || number == "" || st.HaltReason != "poison" || st.Ready {
			t.Errorf("%s: the halt names transaction %q, reason %s, ready %v", bad.name, gtid, st.HaltReason, st.Ready)
		}
		stop(t, r)
		remedy := e2e.RelayOptions{Args: []string{"--set", "poison.policy=skip"}}
		if bad.again {
			l.widen(bad.parted)
			remedy = e2e.RelayOptions{}
			want[stream{row.where, row.keyText}] = append(want[stream{row.where, row.keyText}], row.id)
			// The row comes before the good one behind it.
			slices.Sort(want[stream{row.where, row.keyText}])
		}
		r = start(t, l.site, remedy)
		waitRelayed(t, l.site, r)
		stop(t, r)
		if bad.again {
			l.narrow()
		}
	}
	got, _ := l.published()
	sameStreams(t, "published", got, want)
}

// One key more than may be parked halts with a sentence that names the row and the ways out, and so does a start with more of them than may be.
func TestMoreKeysThanMayBeParkedHaltTheRelay(t *testing.T) {
	t.Parallel()
	l := newLetters(t, "dead_letter, park_keys: true", false)
	l.narrow()
	for i := range 4 {
		r := l.row(&badKinds[0], 1)
		l.rows[i].key, l.rows[i].keyText = fmt.Sprintf("key%d", r.id), fmt.Sprintf("key%d", r.id)
	}
	l.write(l.rows)
	halts := func(limit string, parts ...string) {
		t.Helper()
		r := start(t, l.site, e2e.RelayOptions{Args: []string{"--set", "limits.parked_keys=" + limit}})
		var st relay.Status
		waitStatus(t, r, "it halts", func(s relay.Status) bool { st = s; return s.Halted != "" })
		for _, part := range append(parts, "publish the dead letters again (outbox-relay dead-letter redrive), or raise limits.parked_keys, and restart") {
			if !strings.Contains(st.Halted, part) {
				t.Errorf("the halt says %q and lacks %q", st.Halted, part)
			}
		}
		stop(t, r)
	}
	halts("3", "halted at transaction ", "row 4 of", "(too_large)", "no more keys may be parked: 3 are")
	r := start(t, l.site, e2e.RelayOptions{})
	waitRelayed(t, l.site, r)
	waitStatus(t, r, "all four are parked", func(s relay.Status) bool { return s.Sink.ParkedKeys == 4 && s.Ready })
	stop(t, r)
	halts("2", "halted: rows can not be published (parked)", l.dead, "letters of more than 2")
}

// Dead letters and what was parked behind them are published again by a command that is killed again and again, while rows go on to come and after the relay
// was killed too. In the end all that can be published is in its topic, unchanged and in the order of its key, and no key is parked.
func TestParkedKeysArePublishedAgainAndLetGo(t *testing.T) {
	t.Parallel()
	for title, once := range map[string]bool{"at least once": false, "exactly once": true} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			republish(t, newLetters(t, "dead_letter, park_keys: true", once))
		})
	}
}

func republish(t *testing.T, l *lettersLoad) {
	t.Helper()
	l.narrow()
	r := start(t, l.site, e2e.RelayOptions{})
	l.load()
	waitStatus(t, r, "keys are parked", func(s relay.Status) bool { return s.Sink.ParkedKeys > 0 })
	r.Kill()
	r = start(t, l.site, e2e.RelayOptions{})
	waitRelayed(t, l.site, r)
	l.widen(true)

	binary, err := builder.Binary(testContext(t), e2e.Build{})
	if err != nil {
		t.Fatal(err)
	}
	command := func(args ...string) *exec.Cmd {
		return exec.CommandContext(testContext(t), binary, append([]string{"dead-letter", "--config", filepath.Join(l.site.Dir, "relay-1.yaml")}, args...)...)
	}
	output := func(args ...string) string {
		t.Helper()
		out, err := command(args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%.3000s", args, err, out)
		}
		return string(out)
	}
	stopWriting, written := make(chan struct{}), make(chan struct{})
	go func() { // until stopWriting
		defer close(written)
		for {
			from := len(l.rows)
			for range 5 {
				l.row(nil, 10*ofEach(t))
			}
			l.write(l.rows[from:])
			select {
			case <-stopWriting:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	left := []int{strings.Count(output("list", "--json"), "\n")}
	for i := range 20 {
		c := command("redrive")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(30+5*i+rand.IntN(50)) * time.Millisecond) // a moment of its own each time, most of them amid the letters
		_ = c.Process.Kill()
		_ = c.Wait()
		left = append(left, strings.Count(output("list", "--json"), "\n"))
	}
	output("redrive")
	waitStatus(t, r, "no key is parked", func(s relay.Status) bool { return s.Sink.ParkedKeys == 0 && s.Ready })
	close(stopWriting)
	<-written
	if out := output("list"); !strings.Contains(out, "no dead letters") {
		t.Errorf("afterwards are listed %.2000s", out)
	}
	from := len(l.rows)
	for range 200 {
		l.row(nil, 10*ofEach(t))
	}
	l.write(l.rows[from:])
	waitRelayed(t, l.site, r)
	stop(t, r)

	want := map[stream][]int{}
	for _, r := range l.rows {
		if s := (stream{r.where, r.keyText}); r.bad == nil || r.bad.again {
			want[s] = append(want[s], r.id)
		}
	}
	got, again := l.published()
	sameStreams(t, "published", got, want)
	t.Logf("letters left after each kill: %v", left)
	t.Logf("%d rows, %d of them published more than once", len(l.rows), again)
}
