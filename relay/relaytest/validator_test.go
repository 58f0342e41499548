package relaytest_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"outbox-relay/relay/relaytest"
)

const topic = "outbox.event.order"

// The rows of the tests: 1 to 12, of the keys a, b and c in turn, in transactions of three rows. Keys a and c are in partition 0, b in 1.
const rowCount = 12

func id(n int) []byte { return fmt.Append(nil, n) }

func keyOf(n int) string { return []string{"a", "b", "c"}[(n-1)%3] }

func headersOf(n int) []relaytest.Header {
	return []relaytest.Header{{Key: "id", Value: id(n)}, {Key: "event_type", Value: []byte("Placed")}, {Key: "note", Value: nil}}
}

func positionOf(n int) string {
	return fmt.Sprintf("3e11fa47-71ca-11e1-9e33-c80aa9429562:%d#%d", (n-1)/3+1, (n-1)%3)
}

func row(n int) relaytest.Row {
	return relaytest.Row{ID: id(n), Topic: topic, Key: []byte(keyOf(n)), Value: fmt.Appendf(nil, `{"n": %d}`, n), Headers: headersOf(n)}
}

// log is what a consumer receives, by partition.
type log [2][]relaytest.Message

func message(n int) relaytest.Message {
	r := row(n)
	m := relaytest.Message{Topic: r.Topic, Key: r.Key, Value: r.Value, Headers: append(headersOf(n), relaytest.Header{Key: "outbox-relay-position", Value: []byte(positionOf(n))})}
	if keyOf(n) == "b" {
		m.Partition = 1
	}
	return m
}

// publish appends rows to their partitions.
func (l *log) publish(rows ...int) {
	for _, n := range rows {
		m := message(n)
		l[m.Partition] = append(l[m.Partition], m)
	}
}

func numbers(from, to int) (list []int) {
	for n := from; n <= to; n++ {
		list = append(list, n)
	}
	return list
}

// complete is the log of a run without any fault.
func complete() *log {
	l := new(log)
	l.publish(numbers(1, rowCount)...)
	return l
}

func judge(l *log, o relaytest.Options) *relaytest.Report {
	v := relaytest.NewValidator(o)
	for n := 1; n <= rowCount; n++ {
		v.Committed(row(n))
	}
	v.RolledBack(id(99))
	for p := range l {
		for i, m := range l[p] {
			m.Offset = int64(i)
			v.Received(m)
		}
	}
	return v.Report()
}

// summary gives the kinds and counts of a report's findings.
func summary(r *relaytest.Report) string {
	var parts []string
	for _, f := range r.Findings {
		parts = append(parts, fmt.Sprintf("%s %d", f.Kind, f.Count))
	}
	return strings.Join(parts, ", ")
}

func TestFlawlessRuns(t *testing.T) {
	t.Parallel()
	replay := func(restarts ...[]int) *log {
		l := new(log)
		for _, rows := range restarts {
			l.publish(rows...)
		}
		return l
	}
	for _, c := range []struct {
		name       string
		log        *log
		o          relaytest.Options
		duplicates int
	}{
		{"no restart", complete(), relaytest.Options{}, 0},
		{"restart from the beginning at the end", replay(numbers(1, 12), numbers(1, 12)), relaytest.Options{Restarts: 1}, 12},
		{"restart in the middle", replay(numbers(1, 8), numbers(5, 12)), relaytest.Options{Restarts: 1}, 4},
		{"restart without a duplicate", replay(numbers(1, 8), numbers(9, 12)), relaytest.Options{Restarts: 1}, 0},
		{"restart within a replay, from the same place", replay(numbers(1, 8), numbers(4, 6), numbers(4, 12)), relaytest.Options{Restarts: 2}, 8},
		{"restart within a replay, from a later place", replay(numbers(1, 8), numbers(2, 6), numbers(5, 12)), relaytest.Options{Restarts: 2}, 9},
		{"killed in the last replay", replay(numbers(1, 12), numbers(4, 6)), relaytest.Options{Restarts: 1, Unfinished: true}, 3},
		{"request of the dead relay within the replay", replay(numbers(1, 6), numbers(1, 3), numbers(7, 9), numbers(4, 12)), relaytest.Options{Restarts: 1, LateRequests: true}, 9},
	} {
		r := judge(c.log, c.o)
		if err := r.Err(); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if r.Duplicates != c.duplicates || r.Committed != 12 || r.Distinct != 12 || r.Received != 12+c.duplicates || r.Keys != 3 || r.Partitions != 2 {
			t.Errorf("%s: %v", c.name, r)
		}
	}
}

// TestSeededFaults does to the log what a faulty relay would do to it. Each fault has to be found, and nothing else.
func TestSeededFaults(t *testing.T) {
	t.Parallel()
	change := func(n int, f func(*relaytest.Message)) func(*log) {
		return func(l *log) {
			for p := range l {
				for i := range l[p] {
					if m := &l[p][i]; string(m.Headers[0].Value) == string(id(n)) {
						f(m)
					}
				}
			}
		}
	}
	remove := func(rows ...int) func(*log) {
		return func(l *log) {
			for p := range l {
				l[p] = slices.DeleteFunc(l[p], func(m relaytest.Message) bool {
					return slices.ContainsFunc(rows, func(n int) bool { return string(m.Headers[0].Value) == string(id(n)) })
				})
			}
		}
	}
	swap := func(p, i, j int) func(*log) { return func(l *log) { l[p][i], l[p][j] = l[p][j], l[p][i] } }
	again := func(rows ...int) func(*log) { return func(l *log) { l.publish(rows...) } }
	from := func(parts ...[]int) func(*log) {
		return func(l *log) {
			*l = log{}
			for _, rows := range parts {
				l.publish(rows...)
			}
		}
	}
	setPosition := func(s string) func(*relaytest.Message) {
		return func(m *relaytest.Message) { m.Headers[len(m.Headers)-1].Value = []byte(s) }
	}
	gtid := "3e11fa47-71ca-11e1-9e33-c80aa9429562:"
	for _, c := range []struct {
		name     string
		restarts int
		fault    func(*log)
		want     string
	}{
		{"last row of a key dropped", 0, remove(11), "lost 1, wrong position header 1"},
		{"row in the middle dropped", 0, remove(4, 5, 6), "lost 3"},
		{"nothing published", 0, func(l *log) { *l = log{} }, "lost 12"},
		{"checkpoint ahead of the acknowledgements: rows lost at the restart", 1, from(numbers(1, 6), numbers(10, 12)), "lost 3"},
		{"two rows of a key swapped", 0, swap(1, 1, 2), "out of order 1"},
		{"row of a key late by three", 0, func(l *log) { m := l[1][0]; l[1] = append(l[1][1:len(l[1]):len(l[1])], m) }, "out of order 1"},
		{"later rows of a key published while one is retried", 1, from([]int{1, 2, 3, 4, 6}, numbers(8, 12), []int{5, 7, 8, 9, 10, 11, 12}), "out of order 2, duplicate outside a replay 2"},
		{"duplicate without a restart", 0, again(12), "duplicate outside a replay 1"},
		{"each message twice", 0, from([]int{1, 1, 2, 2, 3, 3}, numbers(4, 12)), "duplicate outside a replay 3"},
		{"two replays, one restart", 1, func(l *log) { again(numbers(4, 12)...)(l); again(numbers(4, 12)...)(l) }, "duplicate outside a replay 2"},
		{"duplicate in the middle, not followed by the rest", 1, from(numbers(1, 9), []int{4}, numbers(10, 12)), "duplicate outside a replay 1"},
		{"replay that leaves out a row", 1, from(numbers(1, 9), []int{1, 4, 6, 7, 9}, numbers(10, 12)), "duplicate outside a replay 1"},
		{"replay in another order", 1, from(numbers(1, 9), []int{4, 7, 6, 9}, numbers(10, 12)), "duplicate outside a replay 3"},
		{"replay that stops early at the end", 1, again(numbers(4, 8)...), "duplicate outside a replay 2"},
		{"key on two partitions", 0, func(l *log) { m := l[1][3]; m.Partition = 0; l[1] = l[1][:3]; l[0] = append(l[0], m) }, "key on two partitions 1"},
		{"rolled back row published", 0, func(l *log) {
			m := message(1)
			m.Headers[0].Value = id(99)
			l[0] = append(l[0], m)
		}, "phantom 1"},
		{"unknown row published", 0, func(l *log) {
			m := message(1)
			m.Headers[0].Value = id(1234)
			l[0] = append(l[0], m)
		}, "phantom 1"},
		{"id header missing", 0, change(4, func(m *relaytest.Message) { m.Headers = m.Headers[1:] }), "lost 1, phantom 1, wrong position header 1"},
		{"value changed by one byte", 0, change(4, func(m *relaytest.Message) { m.Value = []byte(`{"n":4}`) }), "wrong value 1"},
		{"value null", 0, change(4, func(m *relaytest.Message) { m.Value = nil }), "wrong value 1"},
		{"value empty", 0, change(4, func(m *relaytest.Message) { m.Value = []byte{} }), "wrong value 1"},
		{"key of another row", 0, change(4, func(m *relaytest.Message) { m.Key = []byte("c") }), "wrong key 1"},
		{"key null", 0, change(4, func(m *relaytest.Message) { m.Key = nil }), "wrong key 1"},
		{"topic of another aggregate", 0, change(12, func(m *relaytest.Message) { m.Topic = "outbox.event.payment" }), "lost 1, wrong topic 1"},
		{"header missing", 0, change(4, func(m *relaytest.Message) { m.Headers = append(m.Headers[:1:1], m.Headers[2:]...) }), "wrong headers 1"},
		{"headers in another order", 0, change(4, func(m *relaytest.Message) { m.Headers[1], m.Headers[2] = m.Headers[2], m.Headers[1] }), "wrong headers 1"},
		{"null header empty", 0, change(4, func(m *relaytest.Message) { m.Headers[2].Value = []byte{} }), "wrong headers 1"},
		{"header too many", 0, change(4, func(m *relaytest.Message) {
			m.Headers = append([]relaytest.Header{m.Headers[0], {Key: "x"}}, m.Headers[1:]...)
		}), "wrong headers 1"},
		{"position missing", 0, change(12, func(m *relaytest.Message) { m.Headers = m.Headers[:3] }), "wrong position header 1"},
		{"position not last", 0, change(4, func(m *relaytest.Message) { m.Headers[2], m.Headers[3] = m.Headers[3], m.Headers[2] }), "wrong position header 2"},
		{"position unreadable", 0, change(12, setPosition("uuid:1")), "wrong position header 1"},
		{"position number with zeros in front", 0, change(12, setPosition(gtid+"4#02")), "wrong position header 1"},
		{"position counts from one", 0, func(l *log) {
			for i, n := range []string{"1", "2", "3"} {
				change(10+i, setPosition(gtid+"4#"+n))(l)
			}
		}, "wrong position header 1"},
		{"position leaves out a number", 0, change(12, setPosition(gtid+"4#3")), "wrong position header 1"},
		{"position twice", 0, change(12, setPosition(gtid+"4#1")), "wrong position header 1"},
		{"position differs on redelivery", 1, func(l *log) {
			again(numbers(10, 12)...)(l)
			m := &l[0][len(l[0])-1]
			setPosition(gtid + "4#5")(m)
		}, "wrong position header 1"},
	} {
		l := complete()
		for p := range l {
			for i := range l[p] {
				l[p][i].Headers = slices.Clone(l[p][i].Headers)
			}
		}
		c.fault(l)
		r := judge(l, relaytest.Options{Restarts: c.restarts})
		if got := summary(r); got != c.want {
			t.Errorf("%s: found %q, want %q\n%v", c.name, got, c.want, r)
		}
		if (r.Err() == nil) != (c.want == "") {
			t.Errorf("%s: Err is %v", c.name, r.Err())
		}
	}
}

func TestPositionOfOneTransactionRisesWithTheKey(t *testing.T) {
	t.Parallel()
	v := relaytest.NewValidator(relaytest.Options{})
	for n := range 2 {
		v.Committed(relaytest.Row{ID: id(n), Topic: topic, Key: []byte("k")})
	}
	for n := range 2 {
		v.Received(relaytest.Message{Topic: topic, Offset: int64(n), Key: []byte("k"), Headers: []relaytest.Header{
			{Key: "id", Value: id(n)}, {Key: "outbox-relay-position", Value: fmt.Appendf(nil, "u:1#%d", 1-n)}}})
	}
	// The rows here have no expected headers, so the id header is a fault of its own.
	if r := v.Report(); r.Count(relaytest.WrongPosition) != 1 {
		t.Errorf("%v", r)
	}
}

func TestRowsWithoutKey(t *testing.T) {
	t.Parallel()
	run := func(restarts int) *relaytest.Report {
		v := relaytest.NewValidator(relaytest.Options{Restarts: restarts})
		deliver := func(partition int32, offset int64, n int) {
			v.Received(relaytest.Message{Topic: topic, Partition: partition, Offset: offset, Headers: []relaytest.Header{
				{Key: "id", Value: id(n)}, {Key: "outbox-relay-position", Value: fmt.Appendf(nil, "u:%d#0", n)}}})
		}
		for n := range 3 {
			v.Committed(relaytest.Row{ID: id(n), Topic: topic, Headers: []relaytest.Header{{Key: "id", Value: id(n)}}})
		}
		deliver(0, 0, 0)
		deliver(1, 0, 2)
		deliver(0, 1, 1)
		deliver(1, 1, 1)
		return v.Report()
	}
	if r := run(1); r.Err() != nil || r.Duplicates != 1 {
		t.Errorf("after a restart: %v", r)
	}
	if r := run(0); summary(r) != "duplicate outside a replay 1" {
		t.Errorf("without a restart: %v", r)
	}
}

func TestNullAndEmptyValuesDiffer(t *testing.T) {
	t.Parallel()
	values := [][]byte{nil, {}, []byte("null")}
	for i, committed := range values {
		for j, received := range values {
			v := relaytest.NewValidator(relaytest.Options{})
			v.Committed(relaytest.Row{ID: id(1), Topic: topic, Value: committed, Headers: headersOf(1)})
			m := message(1)
			m.Key, m.Value = nil, received
			v.Received(m)
			if got, want := v.Report().Count(relaytest.WrongValue) == 0, i == j; got != want {
				t.Errorf("committed %s, received %s: equal is %v", showBytes(committed), showBytes(received), got)
			}
		}
	}
}

// by is a log whose rows come from the producers given before them: {1, 5} is row 5 by producer 1.
func by(rows ...[2]int) *log {
	l := new(log)
	for _, r := range rows {
		m := message(r[1])
		m.Producer = int64(r[0])
		l[m.Partition] = append(l[m.Partition], m)
	}
	return l
}

func TestProducersAreFollowedOneByOne(t *testing.T) {
	t.Parallel()
	run := func(producer int, rows ...int) (list [][2]int) {
		for _, n := range rows {
			list = append(list, [2]int{producer, n})
		}
		return list
	}
	for _, c := range []struct {
		name     string
		log      *log
		restarts int
		want     string
	}{
		{"one producer", by(run(1, numbers(1, 12)...)...), 0, ""},
		{"a replay by the next one", by(slices.Concat(run(1, numbers(1, 8)...), run(2, numbers(4, 12)...))...), 1, ""},
		{"a late request amid the replay", by(slices.Concat(run(1, numbers(1, 6)...), run(2, numbers(4, 5)...), run(1, numbers(7, 9)...), run(2, numbers(6, 12)...))...), 1, ""},
		{"a late request after the replay", by(slices.Concat(run(1, numbers(1, 6)...), run(2, numbers(4, 12)...), run(1, numbers(7, 9)...))...), 1, ""},
		{"a replay without a restart", by(slices.Concat(run(1, numbers(1, 12)...), run(2, 12))...), 0, "duplicate outside a replay 1"},
		{"a repetition by one producer", by(slices.Concat(run(1, numbers(1, 9)...), run(1, numbers(9, 12)...))...), 1, "duplicate outside a replay 1"},
		{"a replay with a gap", by(slices.Concat(run(1, numbers(1, 9)...), run(2, 4, 7, 8, 9, 10, 11, 12))...), 1, "duplicate outside a replay 1"},
		{"a replay that ends early", by(slices.Concat(run(1, numbers(1, 9)...), run(2, 5, 6, 7, 8, 10, 11, 12))...), 1, "duplicate outside a replay 1"},
	} {
		if got := summary(judge(c.log, relaytest.Options{Restarts: c.restarts, ByProducer: true})); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func TestGrownTopicsAloneMoveKeys(t *testing.T) {
	t.Parallel()
	moved := complete()
	for i := range moved[0] {
		if string(moved[0][i].Key) == "c" && i > 3 {
			moved[0][i].Partition = 1
			moved[1] = append(moved[1], moved[0][i])
		}
	}
	moved[0] = slices.DeleteFunc(moved[0], func(m relaytest.Message) bool { return m.Partition == 1 })
	if r := judge(moved, relaytest.Options{ByProducer: true, GrownTopics: []string{topic}}); r.Err() != nil {
		t.Error(r)
	}
	if r := judge(moved, relaytest.Options{ByProducer: true, GrownTopics: []string{"another"}}); summary(r) != "key on two partitions 1" {
		t.Error(r)
	}
}

func TestKeysMoveOnlyWhereTheRunSaysSo(t *testing.T) {
	t.Parallel()
	l := complete()
	moved := l[1][2:]
	l[1] = l[1][:2]
	for _, m := range moved {
		m.Partition = 0
		l[0] = append(l[0], m)
	}
	if r := judge(l, relaytest.Options{}); summary(r) != "key on two partitions 1" {
		t.Errorf("not announced: %v", r)
	}
	if r := judge(l, relaytest.Options{KeysMove: true}); r.Err() != nil {
		t.Errorf("announced: %v", r)
	}
	last := len(l[0]) - 1
	l[0][last], l[0][last-1] = l[0][last-1], l[0][last]
	if r := judge(l, relaytest.Options{KeysMove: true}); summary(r) != "out of order 1" {
		t.Errorf("announced, swapped where it moved to: %v", r)
	}
	l[0] = append(l[0], l[0][last])
	if r := judge(l, relaytest.Options{KeysMove: true}); r.Count(relaytest.Replay) != 1 {
		t.Errorf("announced, duplicate without a restart: %v", r)
	}
}

func TestFaultyTestsAreFound(t *testing.T) {
	t.Parallel()
	v := relaytest.NewValidator(relaytest.Options{})
	v.Committed(row(1))
	v.Committed(row(1))
	v.Received(message(1))
	m := message(1)
	v.Received(m)
	v.Committed(row(2))
	r := v.Report()
	if r.Count(relaytest.Oracle) != 2 || r.Count(relaytest.Stream) != 1 {
		t.Errorf("%v", r)
	}
}

func TestReportShowsTheFirstExamples(t *testing.T) {
	t.Parallel()
	r := judge(new(log), relaytest.Options{Examples: 2})
	want := "committed 12, received 0, distinct 0, lost 12, out of order 0, duplicates 0, keys 3, on two partitions 0, phantoms 0, partitions 0, replays 0\n" +
		"lost: 12\n  id \"1\", row 0 of key \"a\"\n  id \"2\", row 0 of key \"b\"\n  …"
	if r.String() != want || r.Err() == nil || r.Err().Error() != want {
		t.Errorf("got\n%s\nwant\n%s", r, want)
	}
}

// A million rows have to fit beside servers on a small machine.
func TestMemoryPerRow(t *testing.T) {
	const rows = 200_000
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	v := relaytest.NewValidator(relaytest.Options{})
	value, key, id := make([]byte, 300), make([]byte, 0, 16), make([]byte, 0, 16)
	headers := []relaytest.Header{{Key: "id"}, {Key: "outbox-relay-position"}}
	for n := range rows {
		id, key = fmt.Append(id[:0], n), fmt.Append(key[:0], n%1000)
		headers[0].Value = id
		v.Committed(relaytest.Row{ID: id, Topic: topic, Key: key, Value: value, Headers: headers[:1]})
	}
	for n := range rows {
		id, key = fmt.Append(id[:0], n), fmt.Append(key[:0], n%1000)
		headers[0].Value, headers[1].Value = id, fmt.Appendf(nil, "u:%d#0", n)
		v.Received(relaytest.Message{Topic: topic, Offset: int64(n), Key: key, Value: value, Headers: headers})
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if err := v.Report().Err(); err != nil {
		t.Fatal(err)
	}
	perRow := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / rows
	t.Logf("%d bytes per row", perRow)
	if perRow > 250 {
		t.Errorf("%d bytes per row, want at most 250", perRow)
	}
	runtime.KeepAlive(v)
}
