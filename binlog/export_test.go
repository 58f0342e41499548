package binlog

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
