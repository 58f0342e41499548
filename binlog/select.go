package binlog

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"
)

// Result is a result set that is read row by row, as the server sends it. Nothing else may be asked on its connection before its end. Not for
// concurrent use.
type Result struct {
	c       *Conn
	ctx     context.Context
	r       *bufio.Reader
	timeout time.Duration
	until   time.Time // the deadline that is set
	columns int
	row     []byte
	head    [4]byte
	done    bool
}

// keepRow is how large a row may be whose memory is used again.
const keepRow = 256 << 10

// Select runs a statement that gives rows. It waits at most first for the first answer, and the result at most timeout for each further row.
func (c *Conn) Select(ctx context.Context, first, timeout time.Duration, statement string) (*Result, error) {
	if err := c.net.SetDeadline(time.Now().Add(first)); err != nil {
		return nil, err
	}
	// Packet COM_QUERY: u8 3 · with CLIENT_QUERY_ATTRIBUTES: lenenc number of attributes, lenenc 1 · the statement.
	capabilities := "|" + c.CapabilityString() + "|"
	packet := append(make([]byte, 4, 16+len(statement)), mysql.COM_QUERY)
	if strings.Contains(capabilities, "|CLIENT_QUERY_ATTRIBUTES|") {
		packet = append(packet, 0, 1)
	}
	c.ResetSequence()
	if err := c.WritePacket(append(packet, statement...)); err != nil {
		return nil, c.ended(ctx, err)
	}
	if c.rows == nil {
		c.rows = bufio.NewReaderSize(c.Conn.Conn.Conn, 64<<10)
	}
	r := &Result{c: c, ctx: ctx, r: c.rows, timeout: timeout}
	err := r.begin(strings.Contains(capabilities, "|CLIENT_DEPRECATE_EOF|"))
	if err != nil {
		return nil, c.ended(ctx, err)
	}
	return r, nil
}

// ended prefers the end of ctx, which closes the connection, to the error that this causes.
func (c *Conn) ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// begin reads what comes before the rows: the number of columns, a description of each and, on old servers, an EOF.
func (r *Result) begin(noEOF bool) error {
	body, err := r.packet()
	if err != nil {
		return err
	}
	if len(body) > 0 && body[0] == mysql.ERR_HEADER {
		return errorPacket(body)
	}
	if len(body) == 0 {
		return errNoResult
	}
	n, isNull, size := mysql.LengthEncodedInt(body)
	if isNull || size != len(body) || n == 0 || n > 1<<16 {
		return errNoResult
	}
	r.columns = int(n)
	skip := r.columns
	if !noEOF {
		skip++
	}
	for range skip {
		if _, err := r.packet(); err != nil {
			return err
		}
	}
	return nil
}

var errNoResult = errors.New("the answer of the server is no result set")

// packet reads one packet: `u24 length, u8 sequence, payload`, of which one with the greatest length goes on in the next one.
func (r *Result) packet() ([]byte, error) {
	if cap(r.row) > keepRow {
		r.row = nil
	}
	r.row = r.row[:0]
	for {
		if _, err := io.ReadFull(r.r, r.head[:]); err != nil {
			return nil, err
		}
		n := int(r.head[0]) | int(r.head[1])<<8 | int(r.head[2])<<16
		from := len(r.row)
		if cap(r.row) < from+n {
			grown := make([]byte, from, from+n)
			copy(grown, r.row)
			r.row = grown
		}
		r.row = r.row[:from+n]
		if _, err := io.ReadFull(r.r, r.row[from:]); err != nil {
			return nil, err
		}
		if n < mysql.MaxPayloadLen {
			return r.row, nil
		}
	}
}

// Columns is the number of columns.
func (r *Result) Columns() int { return r.columns }

// Next reads the next row into cells, one for each column, and gives false behind the last one. The cells hold the text of the values, nil for NULL; they
// are valid until the next call. After an error the connection can only be closed.
func (r *Result) Next(cells [][]byte) (bool, error) {
	if r.done {
		return false, nil
	}
	if now := time.Now(); r.until.Sub(now) < r.timeout/2 {
		r.until = now.Add(r.timeout)
		if err := r.c.net.SetDeadline(r.until); err != nil {
			return false, r.c.ended(r.ctx, err)
		}
	}
	body, err := r.packet()
	if err != nil {
		return false, r.c.ended(r.ctx, err)
	}
	switch {
	case len(body) > 0 && body[0] == mysql.ERR_HEADER:
		r.done = true
		return false, errorPacket(body)
	case len(body) > 0 && body[0] == mysql.EOF_HEADER && len(body) < mysql.MaxPayloadLen: // no row: its first text would have more than 2^24 bytes
		r.done = true
		return false, nil
	}
	for i := range cells {
		if len(body) == 0 {
			return false, fmt.Errorf("a row of a result is cut off: %w", io.ErrUnexpectedEOF)
		}
		value, isNull, n, err := mysql.LengthEncodedString(body)
		if err != nil {
			return false, fmt.Errorf("a row of a result is cut off: %w", err)
		}
		if cells[i] = value; isNull {
			cells[i] = nil
		}
		body = body[n:]
	}
	return true, nil
}

// errorPacket reads an ERR packet: `u8 255, u16 code, # and five characters of state, message`.
func errorPacket(body []byte) error {
	e := &mysql.MyError{Code: mysql.ER_UNKNOWN_ERROR}
	if len(body) >= 3 {
		e.Code = binary.LittleEndian.Uint16(body[1:])
		body = body[3:]
	}
	if len(body) >= 6 && body[0] == '#' {
		e.State, body = string(body[1:6]), body[6:]
	}
	e.Message = string(body)
	return e
}

// SilentFor reports whether an error is that of a server that did not answer in time.
func SilentFor(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }
