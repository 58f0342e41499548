package binlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"outbox-relay/binlog/event"
)

// A rowLog keeps the row events of one open transaction, in order, until the transaction ends: in memory up to the
// memory limit shared by all open transactions, beyond it in a file that is already unlinked, so that nothing
// is left behind by a crash. One goroutine owns it.
//
// Entry layout, in memory and in the file alike: body length u32, table index u16, row event type u8, flags u8, body. The body is a row event's,
// and behind that of one row beyond the row limit: bitmap of the columns that were in its image, size of the image u64.
type rowLog struct {
	mem     *memory
	spool   *spool
	tables  []*event.Table // by table index
	buf     []byte         // entries not yet in the file
	file    *os.File       // nil while everything is in memory
	written int64          // bytes in the file
	entries int
}

const (
	entryHead = 8
	// entryTooLarge marks a row beyond the row limit, of which only short values are kept.
	entryTooLarge = 1
	// spoolChunk is how much is gathered before it goes to the file, once a log spools.
	spoolChunk = 256 << 10
	// keepBuffer is the largest buffer kept for the next transaction.
	keepBuffer = 1 << 20
)

// memory counts the bytes that all open transactions of one reader hold in memory.
type memory struct{ limit, used int64 }

// spool says where and how much open transactions may write to disk.
type spool struct {
	dir   string
	limit int64
	used  int64
}

// errSpoolFull is returned when open transactions need more than limits.spool.
var errSpoolFull = errors.New("spool limit reached")

// entry is one row event kept in a log.
type entry struct {
	table    *event.Table
	kind     byte // event type: WRITE_ROWS v1 or v2
	body     []byte
	tooLarge uint64 // size of a row beyond the row limit, else 0
	present  []byte // of such a row, the bitmap of the columns that were in its image
}

// add appends a row event whose body is copied.
func (l *rowLog) add(t *event.Table, kind byte, body []byte) error {
	return l.reserve(t, kind, len(body), func(dst []byte) error { copy(dst, body); return nil })
}

// addFrom appends a row event of n bytes that is read from r.
func (l *rowLog) addFrom(t *event.Table, kind byte, n int, r io.Reader) error {
	return l.reserve(t, kind, n, func(dst []byte) error {
		_, err := io.ReadFull(r, dst)
		return err
	})
}

// addSplit appends the rows of the row event that s is at, each as an entry of its own. limit is the row limit.
func (l *rowLog) addSplit(t *event.Table, s *event.Splitter, limit int64) error {
	for {
		more, err := l.addNext(t, s, limit)
		if err != nil || !more {
			return err
		}
	}
}

func (l *rowLog) addNext(t *event.Table, s *event.Splitter, limit int64) (more bool, err error) {
	i, err := l.tableIndex(t)
	if err != nil {
		return false, err
	}
	if l.entries > 0 && l.mustSpool(int(min(uint64(limit), s.Left()))) {
		if err := l.flush(); err != nil {
			return false, err
		}
	}
	at, room := len(l.buf), cap(l.buf)
	buf, err := s.Next(append(l.buf, make([]byte, entryHead)...))
	l.buf = buf[:at]
	l.mem.used += int64(cap(l.buf) - room)
	if errors.Is(err, io.EOF) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	flags := byte(0)
	if s.TooLarge() {
		flags = entryTooLarge
		buf = append(buf, s.Present()...)
		buf = binary.LittleEndian.AppendUint64(buf, s.Size())
		l.mem.used += int64(cap(buf) - cap(l.buf))
	}
	l.buf = buf
	putHead(buf[at:], len(buf)-at-entryHead, i, byte(event.TypeWriteRows), flags)
	l.entries++
	return true, nil
}

func putHead(b []byte, n int, table uint16, kind, flags byte) {
	binary.LittleEndian.PutUint32(b, uint32(n))
	binary.LittleEndian.PutUint16(b[4:], table)
	b[6], b[7] = kind, flags
}

func (l *rowLog) reserve(t *event.Table, kind byte, n int, put func([]byte) error) error {
	i, err := l.tableIndex(t)
	if err != nil {
		return err
	}
	if l.entries > 0 && l.mustSpool(entryHead+n) {
		if err := l.flush(); err != nil {
			return err
		}
	}
	at := len(l.buf)
	l.grow(entryHead + n)
	putHead(l.buf[at:], n, i, kind, 0)
	if err := put(l.buf[at+entryHead:]); err != nil {
		l.buf = l.buf[:at]
		return err
	}
	l.entries++
	return nil
}

// mustSpool reports whether n more bytes have to go to the file first.
func (l *rowLog) mustSpool(n int) bool {
	if len(l.buf) == 0 {
		return false
	}
	if l.file != nil {
		return len(l.buf)+n > spoolChunk
	}
	return len(l.buf)+n > cap(l.buf) && l.mem.used+int64(max(2*cap(l.buf), n)) > l.mem.limit
}

// grow extends buf by n bytes, by doubling while the memory limit allows it.
func (l *rowLog) grow(n int) {
	need := len(l.buf) + n
	if need <= cap(l.buf) {
		l.buf = l.buf[:need]
		return
	}
	size := max(need, 2*cap(l.buf), 4<<10)
	if l.file != nil {
		size = max(need, spoolChunk)
	}
	b := make([]byte, need, size)
	copy(b, l.buf)
	l.mem.used += int64(size - cap(l.buf))
	l.buf = b
}

func (l *rowLog) tableIndex(t *event.Table) (uint16, error) {
	for i := len(l.tables) - 1; i >= 0; i-- {
		if l.tables[i] == t {
			return uint16(i), nil
		}
	}
	if len(l.tables) > 0xffff {
		return 0, fmt.Errorf("transaction with more than %d table versions", len(l.tables))
	}
	l.tables = append(l.tables, t)
	return uint16(len(l.tables) - 1), nil
}

// flush moves the entries in memory to the file.
func (l *rowLog) flush() error {
	if len(l.buf) == 0 {
		return nil
	}
	if l.spool.used+int64(len(l.buf)) > l.spool.limit {
		return fmt.Errorf("%w: open transactions need more than %d bytes on disk", errSpoolFull, l.spool.limit)
	}
	if l.file == nil {
		f, err := os.CreateTemp(l.spool.dir, ".outbox-relay-spool-*")
		if err != nil {
			return fmt.Errorf("spooling a large transaction: %w", err)
		}
		if err := os.Remove(f.Name()); err != nil {
			f.Close()
			return fmt.Errorf("spooling a large transaction into %s: %w", filepath.Dir(f.Name()), err)
		}
		l.file = f
	}
	if _, err := l.file.Write(l.buf); err != nil {
		return fmt.Errorf("spooling a large transaction into %s: %w", l.spool.dir, err)
	}
	l.spool.used += int64(len(l.buf))
	l.written += int64(len(l.buf))
	if cap(l.buf) > spoolChunk {
		l.release()
	}
	l.buf = l.buf[:0]
	return nil
}

// release gives the buffer back.
func (l *rowLog) release() {
	l.mem.used -= int64(cap(l.buf))
	l.buf = nil
}

// hold shrinks a log that will be kept for long (a prepared XA branch): what is worth more than a quarter of the
// memory limit goes to the file, and so does anything once all logs together need more than half of it.
func (l *rowLog) hold() error {
	if int64(len(l.buf)) > l.mem.limit/4 || l.mem.used > l.mem.limit/2 || l.file != nil {
		if err := l.flush(); err != nil {
			return err
		}
		l.release()
		return nil
	}
	if cap(l.buf) > len(l.buf) {
		b := append(make([]byte, 0, len(l.buf)), l.buf...)
		l.mem.used -= int64(cap(l.buf) - cap(b))
		l.buf = b
	}
	return nil
}

// reset forgets all entries, so that the log serves the next transaction.
func (l *rowLog) reset() {
	if l.file != nil {
		l.file.Close()
		l.spool.used -= l.written
		l.file, l.written = nil, 0
	}
	if cap(l.buf) > keepBuffer {
		l.release()
	}
	l.buf = l.buf[:0]
	clear(l.tables)
	l.tables = l.tables[:0]
	l.entries = 0
}

// discard forgets all entries and the buffer.
func (l *rowLog) discard() {
	l.reset()
	l.release()
}

// A logReader walks the entries of a rowLog once, the file first, then the memory.
type logReader struct {
	log  *rowLog
	off  int64  // read offset in the file
	page []byte // file bytes read and not yet given out: page[r:w]
	r, w int
	pos  int // read offset in log.buf
}

// next returns the next entry, or false after the last one. The entry's body is valid until the next call.
func (r *logReader) next(e *entry) (bool, error) {
	l := r.log
	if l.file != nil && (r.off < l.written || r.r < r.w) {
		return r.nextSpooled(e)
	}
	if r.pos == len(l.buf) {
		return false, nil
	}
	head := l.buf[r.pos:]
	n := int(binary.LittleEndian.Uint32(head))
	r.fillEntry(e, head, head[entryHead:entryHead+n])
	r.pos += entryHead + n
	return true, nil
}

func (r *logReader) fillEntry(e *entry, head, body []byte) {
	e.table, e.kind, e.body, e.tooLarge, e.present = r.log.tables[binary.LittleEndian.Uint16(head[4:])], head[6], body, 0, nil
	if head[7]&entryTooLarge != 0 {
		at := len(body) - 8
		e.tooLarge, body = binary.LittleEndian.Uint64(body[at:]), body[:at]
		at -= (len(e.table.Columns) + 7) / 8
		e.body, e.present = body[:at], body[at:]
	}
}

func (r *logReader) nextSpooled(e *entry) (bool, error) {
	if err := r.load(entryHead); err != nil {
		return false, err
	}
	n := int(binary.LittleEndian.Uint32(r.page[r.r:]))
	if err := r.load(entryHead + n); err != nil {
		return false, err
	}
	head := r.page[r.r:]
	r.fillEntry(e, head, head[entryHead:entryHead+n])
	r.r += entryHead + n
	return true, nil
}

// load makes n bytes of the file available at page[r.r:].
func (r *logReader) load(n int) error {
	if r.w-r.r >= n {
		return nil
	}
	rest := r.page[r.r:r.w]
	if n > cap(r.page) {
		r.page = make([]byte, max(n, spoolChunk))
	}
	r.page = r.page[:cap(r.page)]
	r.w = copy(r.page, rest)
	r.r = 0
	want := int(min(int64(len(r.page)-r.w), r.log.written-r.off))
	m, err := r.log.file.ReadAt(r.page[r.w:r.w+want], r.off)
	r.w += m
	r.off += int64(m)
	if r.w < n {
		if err == nil {
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("reading a spooled transaction: %w", err)
	}
	return nil
}
