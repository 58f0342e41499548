package binlog

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"outbox-relay/binlog/event"
)

const (
	// maxWindow is the largest zstd window accepted: the memory that inflating may take, whatever a payload claims to hold.
	maxWindow = 32 << 20
	// innerBuffer is the size up to which events inside a payload are read as a whole; larger ones are streamed.
	innerBuffer = 64 << 10
)

// inflater reads the events of a compressed transaction one after the other, never the payload as a whole.
type inflater struct {
	zstd  *zstd.Decoder
	buf   []byte
	first [1]byte // of the next event, if ahead
	ahead bool
}

func (i *inflater) close() {
	if i != nil && i.zstd != nil {
		i.zstd.Close()
	}
}

func (r *Reader) inflated(packed io.Reader, c event.Compression) (io.Reader, error) {
	if r.inflate == nil {
		r.inflate = &inflater{buf: make([]byte, innerBuffer)}
	}
	if c == event.CompressionNone {
		return packed, nil
	}
	i := r.inflate
	var err error
	if i.zstd == nil {
		i.zstd, err = zstd.NewReader(packed, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
	} else {
		err = i.zstd.Reset(packed)
	}
	return i.zstd, err
}

// payload handles a TRANSACTION_PAYLOAD: the events of a group, packed. The last one decides how the group ends, as if they stood outside.
func (r *Reader) payload(ev *raw) (*Transaction, error) {
	if err := r.inGroup(ev.Type); err != nil {
		return nil, err
	}
	packed, head, err := payloadReader(ev)
	if err != nil {
		return nil, err
	}
	in, err := r.inflated(packed, head.Compression)
	if err != nil {
		return nil, fmt.Errorf("%w: payload: %w", errCorrupt, err)
	}
	return r.innerEvents(in, ev)
}

// payloadReader parses the head of a payload and returns the packed bytes behind it.
func payloadReader(ev *raw) (io.Reader, event.PayloadHead, error) {
	start := ev.Body
	if ev.Big != nil {
		start = make([]byte, min(event.MaxPayloadHead, ev.Big.Len()))
		if _, err := io.ReadFull(ev.Big, start); err != nil {
			return nil, event.PayloadHead{}, err
		}
	}
	head, err := event.ParsePayloadHead(start)
	if err != nil {
		return nil, head, fmt.Errorf("%w: %w", errCorrupt, err)
	}
	if err := checkWindow(head.Compression, start[head.Offset:]); err != nil {
		return nil, head, fmt.Errorf("%w: %w", errCorrupt, err)
	}
	rest := io.Reader(bytes.NewReader(start[head.Offset:]))
	if ev.Big != nil {
		rest = io.MultiReader(rest, ev.Big)
	}
	return rest, head, nil
}

// windowError is a payload that takes more memory to inflate than is allowed.
type windowError struct{ window uint64 }

func (e *windowError) Error() string {
	return fmt.Sprintf("the compressed transaction needs a window of %d MiB, more than the %d MiB that inflating may take", e.window>>20, maxWindow>>20)
}

// checkWindow looks at the head of the compressed bytes. A server compresses with windows beyond maxWindow only from level 21 on and only what is
// itself larger than that.
func checkWindow(c event.Compression, packed []byte) error {
	var h zstd.Header
	if c != event.CompressionZSTD || h.Decode(packed) != nil || h.Skippable {
		return nil
	}
	window := h.WindowSize
	if h.SingleSegment {
		window = h.FrameContentSize
	}
	if window > maxWindow {
		return &windowError{window}
	}
	return nil
}

// innerEvents handles the events inside a payload. Before the last one ends the group, the rest of the payload is read and its checksum
// compared: a group that has ended cannot be taken back when the connection is lost or the bytes turn out to be damaged.
func (r *Reader) innerEvents(in io.Reader, payload *raw) (*Transaction, error) {
	r.inflate.ahead = false
	for {
		ev, err := r.innerEvent(in)
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%w: %w", errCorrupt, errUnfinished)
		}
		if err != nil {
			return nil, err
		}
		last := false
		if mayEndGroup(&ev) {
			if last, err = r.inflate.atEnd(in); err != nil {
				return nil, err
			}
		}
		if last {
			if err := payload.skip(); err != nil {
				return nil, err
			}
		}
		if ev.Type == event.TypeTransactionPayload {
			return nil, r.stopInside(ev.Type)
		}
		tx, err := r.handle(&ev)
		switch {
		case err != nil:
			return nil, err
		case !r.group.open && !last:
			return nil, r.stopInside(ev.Type)
		case last && r.group.open:
			return nil, fmt.Errorf("%w: %w", errCorrupt, errUnfinished)
		case last:
			return tx, nil
		}
	}
}

func (r *Reader) stopInside(t event.Type) error {
	return &SourceError{
		Reason: ReasonUnknownEvent, GTID: r.group.gtid.String(), Hint: "report it with this part of the binlog",
		Detail: fmt.Sprintf("%s inside a compressed transaction, or with events behind it, at %s:%d", t, r.file, r.pos),
	}
}

// mayEndGroup reports whether the group may end with the event. None of these is large.
func mayEndGroup(ev *raw) bool {
	return ev.Big == nil && (ev.Type == event.TypeXID || ev.Type == event.TypeXAPrepare || ev.Type == event.TypeQuery)
}

// atEnd reports whether nothing follows, by reading one byte ahead.
func (i *inflater) atEnd(in io.Reader) (bool, error) {
	_, err := io.ReadFull(in, i.first[:])
	if err == io.EOF {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("%w: payload: %w", errCorrupt, err)
	}
	i.ahead = true
	return false, nil
}

// innerEvent reads the next event inside a payload: no checksum, no log position. io.EOF after the last one.
func (r *Reader) innerEvent(in io.Reader) (raw, error) {
	i := r.inflate
	buf, n := i.buf, 0
	if i.ahead {
		n, i.ahead = copy(buf, i.first[:]), false
	}
	if _, err := io.ReadFull(in, buf[n:headerSize]); err != nil {
		if err == io.EOF && n == 0 {
			return raw{}, err
		}
		return raw{}, fmt.Errorf("%w: payload: %w", errCorrupt, unexpected(err))
	}
	h, err := event.ParseHeader(buf[:headerSize])
	if err != nil {
		return raw{}, fmt.Errorf("%w: %w", errCorrupt, err)
	}
	n = int(h.Size) - headerSize
	if n > len(buf) {
		return raw{Header: h, Big: &innerBody{in: in, left: n}}, nil
	}
	if _, err := io.ReadFull(in, buf[:n]); err != nil {
		return raw{}, fmt.Errorf("%w: payload: %w", errCorrupt, unexpected(err))
	}
	return raw{Header: h, Body: buf[:n]}, nil
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// innerBody is the body of a large event inside a payload.
type innerBody struct {
	in   io.Reader
	left int
}

func (b *innerBody) Len() int { return b.left }

func (b *innerBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	n, err := b.in.Read(p[:min(len(p), b.left)])
	b.left -= n
	if err == io.EOF && b.left > 0 {
		return n, fmt.Errorf("%w: payload: %w", errCorrupt, io.ErrUnexpectedEOF)
	}
	if err != nil && err != io.EOF {
		return n, fmt.Errorf("%w: payload: %w", errCorrupt, err)
	}
	return n, nil
}

func (b *innerBody) Skip() error {
	_, err := io.Copy(io.Discard, b)
	return err
}
