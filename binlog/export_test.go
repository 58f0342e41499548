package binlog

import (
	"errors"
	"io"
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
