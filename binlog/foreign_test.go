package binlog_test

import (
	"context"
	"testing"

	"outbox-relay/binlog"
	"outbox-relay/internal/fakemysql"
	"outbox-relay/internal/instructions"
)

// TestForeignTransactionsAllocateNothing compares a long stream with a short one. It is not parallel, as it counts what the process allocates.
func TestForeignTransactionsAllocateNothing(t *testing.T) {
	short, long := foreignStream(500), foreignStream(2500)
	read := func(stream []byte) float64 {
		return testing.AllocsPerRun(5, func() { readForeign(t, stream) })
	}
	few, many := read(short), read(long)
	if many > few+20 {
		t.Errorf("%v allocations for 500 transactions, %v for 2500", few, many)
	}
}

func TestInstructionsOfAForeignTransaction(t *testing.T) {
	t.Parallel()
	instructions.Check(t, instructions.Bound{Benchmark: "BenchmarkForeign", Of: 500, Most: 5200})
}

// BenchmarkForeign reads a stream of 500 foreign transactions.
func BenchmarkForeign(b *testing.B) {
	stream := foreignStream(500)
	for b.Loop() {
		readForeign(b, stream)
	}
}

func readForeign(tb testing.TB, stream []byte) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	source := &fakemysql.Source{Streams: [][]byte{stream}, Ended: cancel}
	o := fakeOptions(source)
	o.Tables = append(o.Tables, binlog.TableName{Schema: "%", Name: "outbox_%"}, binlog.TableName{Schema: fakeDatabase + "%", Name: "o%"})
	r, err := binlog.New(o)
	if err != nil {
		tb.Fatal(err)
	}
	defer r.Close()
	for err == nil {
		var tx *binlog.Transaction
		if tx, err = r.Next(ctx); err == nil && tx.HasRows {
			tb.Fatal("a row of a table that nobody watches")
		}
	}
}

func foreignStream(transactions int64) []byte {
	s := newStream()
	for n := range transactions {
		s.foreign(n + 1)
	}
	return s.bytes()
}
