package binlog_test

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"outbox-relay/binlog"
	"outbox-relay/binlog/event"
)

// payloadBody is the body of a TRANSACTION_PAYLOAD.
func payloadBody(c event.Compression, body []byte) []byte {
	return append(payloadHead(c, 4*len(body), len(body)), body...)
}

func TestPayloadsThatAreTaken(t *testing.T) {
	t.Parallel()
	plain := inner(insertO(2, "b", "p"))
	half := len(plain) / 2
	skippable := append(binary.LittleEndian.AppendUint32([]byte{0x50, 0x2a, 0x4d, 0x18}, 3), "abc"...)
	for name, body := range map[string][]byte{
		"one frame":                   payloadBody(event.CompressionZSTD, packed(plain)),
		"not compressed":              payloadBody(event.CompressionNone, plain),
		"two frames":                  payloadBody(event.CompressionZSTD, append(packed(plain[:half]), packed(plain[half:])...)),
		"a frame of nothing in front": payloadBody(event.CompressionZSTD, slicesOf(packed(nil), packed(plain))),
		"a frame to be skipped":       payloadBody(event.CompressionZSTD, slicesOf(skippable, packed(plain), skippable)),
		"sizes that lie":              slicesOf(payloadHead(event.CompressionZSTD, 1<<62, 7), packed(plain)),
		"no sizes, and a new field":   slicesOf([]byte{2, 3, 0xfc, 0, 0, 0x63, 2, 1, 2, 0}, packed(plain)),
		"one-phase XA": payloadBody(event.CompressionZSTD, packed(inner(func(s *stream) {
			s.query("XA START X'61',X'',1").tableMap(tableO, "o").insert(tableO, 2, "b", "p").query("XA END X'61',X'',1").event(event.TypeXAPrepare, xaPrepare("a", true))
		}))),
		"BLACKHOLE": payloadBody(event.CompressionZSTD, packed(inner(func(s *stream) {
			s.query("BEGIN").tableMap(tableO, "o").insert(tableO, 2, "b", "p").query("COMMIT")
		}))),
		"an event that may be ignored": payloadBody(event.CompressionZSTD, packed(inner(func(s *stream) {
			s.query("BEGIN").eventWith(99, event.FlagIgnorable, make([]byte, 100<<10)).tableMap(tableO, "o").eventWith(98, event.FlagIgnorable).insert(tableO, 2, "b", "p").xid()
		}))),
		"300 MB of another table": payloadBody(event.CompressionZSTD, packedForeign(t, 3, 100<<20)),
	} {
		got := playBytes(t, newStream().transaction(1, "a").gtid(2).event(event.TypeTransactionPayload, body).transaction(3, "c"))
		t.Run(name, func(t *testing.T) {
			wantRows(t, got, "1 a p", "2 b p", "3 c p")
			equal(t, got.gtids, fakeGTID(1).String(), fakeGTID(2).String(), fakeGTID(3).String())
		})
	}
	// The same as large events, whose bytes lie in no buffer.
	body := payloadBody(event.CompressionNone, inner(func(s *stream) {
		s.query("BEGIN").tableMap(tableF, "f").insert(tableF, 1, "x", strings.Repeat("y", 700<<10)).tableMap(tableO, "o").insert(tableO, 2, "b", "p").xid()
	}))
	got := playBytes(t, newStream().gtid(2).event(event.TypeTransactionPayload, body).transaction(3, "c"))
	wantRows(t, got, "2 b p", "3 c p")
}

// packedForeign gives a transaction of rows of app.f of n zeros each, and one of app.o.
func packedForeign(t *testing.T, rows, n int) []byte {
	t.Helper()
	var b bytes.Buffer
	e, err := zstd.NewWriter(&b, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<20))
	if err != nil {
		t.Fatal(err)
	}
	foreign := inner(func(s *stream) { s.tableMap(tableF, "f").insert(tableF, 1, "x", string(make([]byte, n))) })
	e.Write(inner(func(s *stream) { s.query("BEGIN") }))
	for range rows {
		e.Write(foreign)
	}
	e.Write(inner(func(s *stream) { s.tableMap(tableO, "o").insert(tableO, 2, "b", "p").xid() }))
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestAPreparedXABranchInAPayloadWaitsForItsCommit(t *testing.T) {
	t.Parallel()
	prepared := inner(func(s *stream) {
		s.query("XA START X'61',X'',1").tableMap(tableO, "o").insert(tableO, 1, "a", "p").query("XA END X'61',X'',1").event(event.TypeXAPrepare, xaPrepare("a", false))
	})
	got := playBytes(t, newStream().gtid(1).payload(prepared).transaction(2, "b").gtid(3).query("XA COMMIT X'61',X'',1"))
	wantRows(t, got, "2 b p", "1 a p")
	got = playBytes(t, newStream().gtid(1).payload(prepared).transaction(2, "b").gtid(3).query("XA ROLLBACK X'61',X'',1"))
	wantRows(t, got, "2 b p")
}

func TestPayloadsThatStopTheReader(t *testing.T) {
	t.Parallel()
	plain := inner(insertO(2, "b", "p"))
	zip := packed(plain)
	zipped := func(write func(*stream)) []byte { return payloadBody(event.CompressionZSTD, packed(inner(write))) }
	large := packed(inner(func(s *stream) {
		s.query("BEGIN").tableMap(tableF, "f").insert(tableF, 1, "x", noise(200<<10)).tableMap(tableO, "o").insert(tableO, 2, "b", noise(200<<10)).xid()
	}))
	damaged := append([]byte(nil), large...)
	clear(damaged[len(large)/4 : len(large)/4+2000])
	open := func(s *stream) { s.query("BEGIN").tableMap(tableO, "o").insert(tableO, 2, "b", "p") }
	for name, test := range map[string]struct {
		body   []byte
		reason binlog.Reason
		words  []string
	}{
		"no bytes":                    {nil, binlog.ReasonCorrupt, []string{"3 times", "head is cut off"}},
		"no events":                   {payloadBody(event.CompressionZSTD, packed(nil)), binlog.ReasonCorrupt, []string{"3 times", "ends inside its transaction"}},
		"no packed bytes":             {payloadBody(event.CompressionZSTD, nil), binlog.ReasonCorrupt, []string{"3 times", "ends inside its transaction"}},
		"no end":                      {zipped(open), binlog.ReasonCorrupt, []string{"3 times", "ends inside its transaction"}},
		"an end that is none":         {zipped(func(s *stream) { open(s); s.query("SAVEPOINT x") }), binlog.ReasonCorrupt, []string{"ends inside its transaction"}},
		"a row behind the end":        {zipped(func(s *stream) { open(s); s.xid().tableMap(tableO, "o") }), binlog.ReasonUnknownEvent, []string{"XID inside a compressed transaction, or with events behind it"}},
		"a byte behind the end":       {payloadBody(event.CompressionNone, append(plain[:len(plain):len(plain)], 0)), binlog.ReasonUnknownEvent, []string{"XID", "events behind it"}},
		"two ends":                    {zipped(func(s *stream) { open(s); s.xid().xid() }), binlog.ReasonUnknownEvent, []string{"XID", "events behind it"}},
		"DDL behind the end":          {zipped(func(s *stream) { open(s); s.query("COMMIT").query("DROP TABLE f") }), binlog.ReasonUnknownEvent, []string{"QUERY", "events behind it"}},
		"a payload in a payload":      {zipped(func(s *stream) { s.event(event.TypeTransactionPayload, payloadBody(event.CompressionZSTD, zip)) }), binlog.ReasonUnknownEvent, []string{"TRANSACTION_PAYLOAD inside"}},
		"a GTID in a payload":         {zipped(func(s *stream) { s.gtid(3); open(s) }), binlog.ReasonUnknownEvent, []string{":3 begins"}},
		"an unknown event":            {zipped(func(s *stream) { s.event(99); open(s) }), binlog.ReasonUnknownEvent, []string{"unknown type 99", "a relay that knows"}},
		"a large unknown event":       {zipped(func(s *stream) { s.event(99, make([]byte, 70<<10)); open(s) }), binlog.ReasonUnknownEvent, []string{"unknown type 99"}},
		"an incident":                 {zipped(func(s *stream) { s.event(event.TypeIncident, incident) }), binlog.ReasonIncident, []string{"lost rows"}},
		"rows without a table map":    {zipped(func(s *stream) { s.query("BEGIN").insert(tableO, 2, "b", "p") }), binlog.ReasonUnknownEvent, []string{"without a table map"}},
		"compression of later days":   {payloadBody(1, zip), binlog.ReasonUnknownEvent, []string{"unknown compression 1", "a relay that knows"}},
		"packed bytes cut off":        {payloadBody(event.CompressionZSTD, zip[:len(zip)-9]), binlog.ReasonCorrupt, []string{"3 times"}},
		"packed bytes damaged":        {payloadBody(event.CompressionZSTD, append(append([]byte(nil), zip[:20]...), bytes.Repeat([]byte{0xff}, len(zip)-20)...)), binlog.ReasonCorrupt, []string{"3 times"}},
		"cut off in a large event":    {payloadBody(event.CompressionZSTD, large[:len(large)/4]), binlog.ReasonCorrupt, []string{"3 times"}},
		"cut off in a large row":      {payloadBody(event.CompressionZSTD, large[:len(large)-len(large)/4]), binlog.ReasonCorrupt, []string{"3 times"}},
		"damaged in a large event":    {payloadBody(event.CompressionZSTD, damaged), binlog.ReasonCorrupt, []string{"3 times"}},
		"no packed bytes but others":  {payloadBody(event.CompressionZSTD, []byte("these bytes are no zstd frame")), binlog.ReasonCorrupt, []string{"3 times"}},
		"an event cut off":            {payloadBody(event.CompressionNone, plain[:len(plain)-3]), binlog.ReasonCorrupt, []string{"3 times", "unexpected EOF"}},
		"an event's head cut off":     {payloadBody(event.CompressionNone, plain[:10]), binlog.ReasonCorrupt, []string{"3 times", "unexpected EOF"}},
		"an event of no size":         {payloadBody(event.CompressionNone, makeEvent(event.TypeXID, 0, 0, xidBody(), 0)), binlog.ReasonCorrupt, []string{"size field"}},
		"an event of 4 GB":            {payloadBody(event.CompressionNone, makeEvent(event.TypeWriteRows, 0, 0, rowsHead(tableO, 0), 1<<32-1)), binlog.ReasonUnknownEvent, []string{"without a table map"}},
		"a window beyond the limit":   {payloadBody(event.CompressionZSTD, wide(t, plain)), binlog.ReasonCompression, []string{"64 MiB", "32 MiB", "binlog_transaction_compression_level_zstd"}},
		"a frame beyond the limit":    {payloadBody(event.CompressionZSTD, []byte{0x28, 0xb5, 0x2f, 0xfd, 0xa0, 0, 0, 0, 8, 1, 0, 0}), binlog.ReasonCompression, []string{"128 MiB", "32 MiB"}},
		"behind a window that is one": {payloadBody(event.CompressionZSTD, slicesOf(packed(plain[:40]), wide(t, plain[40:]))), binlog.ReasonCorrupt, []string{"window"}},
	} {
		got := playBytes(t, newStream().transaction(1, "a").gtid(2).event(event.TypeTransactionPayload, test.body).transaction(3, "c"))
		t.Run(name, func(t *testing.T) {
			wantStop(t, got, test.reason, 2, test.words...)
			equal(t, got.rows, "1 a p")
		})
	}
}

// wide compresses with a window of 64 MiB.
func wide(t *testing.T, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	e, err := zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(64<<20))
	if err != nil {
		t.Fatal(err)
	}
	e.Write(b)
	if err := e.Flush(); err != nil { // before the encoder knows that it is all
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
