package binlog_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"

	"outbox-relay/binlog"
	"outbox-relay/binlog/event"
	"outbox-relay/binlog/gtid"
	"outbox-relay/internal/fakemysql"
)

// played is what a reader made of the streams of a fake source.
type played struct {
	rows     []string // "id aggregate_id payload", in their order
	gtids    []string // of the transactions with rows
	position *gtid.Set
	file     string
	pos      uint64 // where the last step ended
	err      error  // nil when the last stream was read to its end
	status   error  // the status' last error
	asked    []string
}

// play lets a reader read all streams of the source, without the waits between them.
func play(t *testing.T, source *fakemysql.Source, change func(*binlog.Options)) played {
	t.Helper()
	var got played
	synctest.Test(t, func(t *testing.T) { got = playHere(t, source, change, nil) })
	return got
}

// playHere is play within a bubble. tune, if not nil, gets the reader before the first step.
func playHere(t *testing.T, source *fakemysql.Source, change func(*binlog.Options), tune func(*binlog.Reader)) played {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	source.Ended = cancel
	o := fakeOptions(source)
	o.SpoolDir, o.SpoolLimit = t.TempDir(), 1<<30
	if change != nil {
		change(&o)
	}
	r, err := binlog.New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if tune != nil {
		tune(r)
	}
	got := played{position: o.Start.Clone()}
	var row binlog.Row
	for {
		tx, err := r.Next(ctx)
		if err != nil {
			if !errors.Is(err, context.Canceled) {
				got.err = err
			}
			got.status, got.asked = r.Status().LastError, source.Asked()
			return got
		}
		for _, x := range tx.Ranges {
			got.position.AddRange(x)
		}
		got.file, got.pos = tx.File, tx.Position
		if tx.HasRows {
			got.gtids = append(got.gtids, string(tx.GTIDText))
		}
		for {
			ok, err := tx.NextRow(&row)
			if err != nil {
				got.err = err
				return got
			}
			if !ok {
				break
			}
			got.rows = append(got.rows, rowText(t, &row))
		}
	}
}

// playBytes is play of one stream.
func playBytes(t *testing.T, s *stream) played {
	t.Helper()
	return play(t, &fakemysql.Source{Streams: [][]byte{s.bytes()}}, nil)
}

func wantRows(t *testing.T, got played, want ...string) {
	t.Helper()
	if got.err != nil {
		t.Errorf("reading ended with %v", got.err)
	}
	equal(t, got.rows, want...)
}

// wantStop wants a source error that names transaction n, or none if n is 0, and the rows that came before.
func wantStop(t *testing.T, got played, reason binlog.Reason, n int64, words ...string) {
	t.Helper()
	wantReason(t, got.err, reason, words...)
	var s *binlog.SourceError
	errors.As(got.err, &s)
	want := ""
	if n > 0 {
		want = fmt.Sprintf("%s:%d", fakemysql.UUID, n)
	}
	if s.GTID != want {
		t.Errorf("the error names transaction %q, want %q", s.GTID, want)
	}
}

// group is one transaction of a binlog.
type group struct {
	number int64
	write  func(*stream)
}

// behind gives the stream of the groups that the set lacks, as a server does.
func behind(groups []group, set *gtid.Set) *stream {
	s := newStream()
	for _, g := range groups {
		if !set.Contains(fakeGTID(g.number)) {
			g.write(s.gtid(g.number))
		}
	}
	return s
}

func fakeGTID(n int64) gtid.GTID {
	u, err := gtid.ParseUUID(fakemysql.UUID)
	if err != nil {
		panic(err)
	}
	return gtid.GTID{UUID: u, Number: n}
}

func insertO(n uint64, aggregate, payload string) func(*stream) {
	return func(s *stream) {
		s.query("BEGIN").tableMap(tableO, "o").insert(tableO, n, aggregate, payload).xid()
	}
}

// noise is text that zstd cannot make smaller than two thirds.
func noise(n int) string {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range b {
		b[i] = ' ' + byte(r.IntN(64))
	}
	return string(b)
}

func xaPrepare(gtrid string, onePhase bool) []byte {
	b := []byte{0, 1, 0, 0, 0, byte(len(gtrid)), 0, 0, 0, 0, 0, 0, 0}
	if onePhase {
		b[0] = 1
	}
	return append(b, gtrid...)
}

func TestAConnectionLostAtAnyByteLosesAndDoublesNothing(t *testing.T) {
	t.Parallel()
	p, noise := strings.Repeat("p", 300), noise(600)
	groups := []group{
		{1, insertO(1, "a", p)},
		{2, func(s *stream) {
			s.query("BEGIN").tableMap(tableF, "f").insert(tableF, 1, "x", "y").tableMap(tableO, "o").insertMore(tableO, 2, "b", p).insert(tableO, 3, "c", p).xid()
		}},
		{3, func(s *stream) { s.payload(inner(insertO(4, "d", noise))) }},
		{4, func(s *stream) {
			s.query("XA START X'61',X'',1").tableMap(tableO, "o").insert(tableO, 5, "e", p).query("XA END X'61',X'',1").event(event.TypeXAPrepare, xaPrepare("a", false))
		}},
		{5, insertO(6, "f", p)},
		{6, func(s *stream) { s.query("XA COMMIT X'61',X'',1") }},
		{7, func(s *stream) {
			s.query("BEGIN").tableMap(tableO, "o").insert(tableO, 7, "g", p).query("ROLLBACK")
		}},
		{8, func(s *stream) {
			plain := inner(func(s *stream) {
				s.query("BEGIN").tableMap(tableF, "f").insert(tableF, 1, "x", p)
				insertO(8, "h", p)(s)
			})
			s.event(event.TypeTransactionPayload, payloadHead(event.CompressionNone, len(plain), len(plain)), plain)
		}},
	}
	whole := behind(groups, new(gtid.Set)).bytes()
	for name, test := range map[string]struct {
		buffers [2]int
		limit   int64
	}{"whole events": {[2]int{64 << 10, 64 << 10}, 1 << 20}, "streamed events": {[2]int{256, 256}, 1 << 20}, "split rows": {[2]int{256, 256}, 200}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				for cut := range whole {
					source := &fakemysql.Source{Chunk: 1 + cut%7*33, Send: func(i int, set *gtid.Set) ([]byte, bool) {
						if i == 0 {
							return whole[:cut], false
						}
						return behind(groups, set).bytes(), true
					}}
					got := playHere(t, source, func(o *binlog.Options) { o.RowLimit = test.limit }, func(r *binlog.Reader) { binlog.SetBuffers(r, test.buffers[0], test.buffers[1]) })
					wantRows(t, got, "1 a "+p, "2 b "+p, "3 c "+p, "4 d "+noise, "6 f "+p, "5 e "+p, "8 h "+p)
					if want := fakemysql.UUID + ":1-8"; got.position.String() != want {
						t.Errorf("the position is %s, want %s", got.position, want)
					}
					if t.Failed() {
						t.Fatalf("the connection was lost at byte %d of %d; the dumps began behind %q", cut, len(whole), got.asked)
					}
				}
			})
		})
	}
}
