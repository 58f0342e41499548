package binlog

import (
	"errors"
	"io"

	"outbox-relay/binlog/event"
	"outbox-relay/binlog/gtid"
)

// SetBuffers makes the buffers of the stream and of the events inside a payload smaller, so that small events are taken the way of large ones. It
// is called before the first Next.
func SetBuffers(r *Reader, stream, inner int) {
	r.bufferSize = stream
	r.inflate = &inflater{buf: make([]byte, inner)}
}

// Held gives the bytes that open transactions hold in memory and on disk.
func Held(r *Reader) (memory, disk int64) { return r.mem.used, r.spool.used }

// MayChange is the judgement about a statement.
var MayChange = mayChange

// Explained reports whether an error that ended a connection counts as damage or is the server's own word. Any other one is taken for a failure of
// the network, after which the reader tries for ever.
func Explained(err error) bool {
	var s *serverError
	var lasting *SourceError
	return errors.Is(err, errCorrupt) || errors.Is(err, io.EOF) || errors.Is(err, ErrFenced) || errors.As(err, &s) || errors.As(err, &lasting)
}

// MayDropSchema is the judgement about a statement.
var MayDropSchema = mayDropSchema

// Events gives a Reader's way of taking events, apart from cutting packets and comparing checksums: each is handed to take as it stands in a
// binlog file. steps are the transactions of the steps so far.
func Events(tables ...TableName) (take func(whole []byte) error, steps func() int, err error) {
	r, err := newReader(Options{Name: "events", Addresses: []string{"none"}, Tables: tables, Start: new(gtid.Set), Memory: 1 << 20, RowLimit: 1 << 20})
	if err != nil {
		return nil, nil, err
	}
	r.server, r.target, r.pk = &Server{RowMetadata: "FULL"}, new(gtid.Set), newPackets(nil, 64, nil)
	count := 0
	take = func(whole []byte) error {
		ev := &r.event
		if err := ev.Header.Parse(whole); err != nil {
			return err
		}
		ev.Body = whole[headerSize : len(whole)-event.ChecksumSize]
		r.advance(&ev.Header)
		tx, err := r.handle(ev)
		if tx == nil && !r.group.open && r.pendingCount >= maxPending {
			tx = r.emitStep()
		}
		if tx != nil {
			count += tx.Transactions
		}
		return err
	}
	return take, func() int { return count + r.pendingCount }, nil
}
