package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"outbox-relay/binlog/gtid"
)

// Version is the newest version of the encoding. A new field or a new meaning
// needs a new one: an older relay must refuse what it would drop. Version 2 has
// begun transactions, version 3 a pause, version 4 a snapshot, version 5 the
// last transaction; a checkpoint is written as the oldest version that can say what it holds.
const Version = 5

// format tells a checkpoint from any other JSON.
const format = "outbox-relay checkpoint"

// envelope is the outer object. Checksum is the hexadecimal SHA-256 of Content
// in compact form, so that indentation does not matter.
type envelope struct {
	Format   string          `json:"format"`
	Version  int             `json:"version"`
	Checksum string          `json:"checksum"`
	Content  json.RawMessage `json:"checkpoint"`
}

// content is the inner object.
type content struct {
	Name           string          `json:"name"`
	GTIDSet        *gtid.Set       `json:"gtid_set"`
	Begun          []Begun         `json:"begun,omitempty"`
	Snapshot       *Snapshot       `json:"snapshot,omitempty"`
	SourceUUID     string          `json:"source_uuid"`
	BinlogFile     string          `json:"binlog_file"`
	BinlogPosition uint64          `json:"binlog_position"`
	Last           *Last           `json:"last,omitempty"`
	Tables         []string        `json:"tables"`
	Columns        json.RawMessage `json:"columns,omitempty"`
	Paused         time.Time       `json:"paused,omitzero"`
	FencingToken   uint64          `json:"fencing_token"`
	Instance       string          `json:"instance"`
	Time           time.Time       `json:"time"`
}

// Marshal encodes c as indented JSON for a store. Its error is an *Error with
// ErrInvalid. The caller owns the bytes.
func Marshal(c *Checkpoint) ([]byte, error) {
	invalid := func(detail string) error {
		return &Error{Op: "encoding checkpoint", Err: ErrInvalid, Detail: detail}
	}
	switch {
	case c.Name == "":
		return nil, invalid("it has no name")
	case c.GTIDSet == nil:
		return nil, invalid("it has no GTID set")
	}
	version := 1
	for _, b := range c.Begun {
		if version = 2; b.GTID == "" || b.Rows < 1 {
			return nil, invalid(fmt.Sprintf("%d rows of the transaction %q are done", b.Rows, b.GTID))
		}
	}
	if !c.Paused.IsZero() {
		version = 3
	}
	if c.Snapshot != nil {
		if version = 4; !c.Snapshot.sound() {
			return nil, invalid("its snapshot has an end and tables to read")
		}
	}
	if c.Last != nil {
		version = 5
	}
	in := content(*c)
	in.Time, in.Paused = c.Time.UTC(), c.Paused.UTC()
	compact, err := json.Marshal(in)
	if err != nil {
		return nil, invalid(err.Error())
	}
	out, err := json.MarshalIndent(envelope{format, version, checksum(compact), compact}, "", "  ")
	if err != nil {
		return nil, invalid(err.Error())
	}
	return append(out, '\n'), nil
}

func checksum(compact []byte) string {
	sum := sha256.Sum256(compact)
	return hex.EncodeToString(sum[:])
}

const (
	hintDamaged = "find out what changed it; then put a copy back, or set a position with `outbox-relay checkpoint set`"
	hintForeign = "give every relay a checkpoint of its own, or restore the name that this one had"
	hintVersion = "run the version of the relay that wrote it, or a newer one"
)

// Unmarshal decodes what Marshal gave for the relay called name. Its error is an
// *Error with ErrDamaged, ErrForeign or ErrVersion. The result shares no memory
// with data.
func Unmarshal(data []byte, name string) (*Checkpoint, error) {
	env, err := openEnvelope(data)
	if err != nil {
		return nil, err
	}
	var in content
	decoder := json.NewDecoder(bytes.NewReader(env.Content))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&in); err != nil {
		return nil, refuse(ErrDamaged, hintDamaged, "%v", err)
	}
	if in.GTIDSet == nil {
		return nil, refuse(ErrDamaged, hintDamaged, "it has no GTID set")
	}
	for _, b := range in.Begun {
		if b.GTID == "" || b.Rows < 1 {
			return nil, refuse(ErrDamaged, hintDamaged, "%d rows of the transaction %q are said to be done", b.Rows, b.GTID)
		}
	}
	if in.Snapshot != nil && !in.Snapshot.sound() {
		return nil, refuse(ErrDamaged, hintDamaged, "its snapshot has an end and tables to read")
	}
	if in.Name != name {
		return nil, refuse(ErrForeign, hintForeign, "it belongs to the relay %q, this one is %q", in.Name, name)
	}
	c := Checkpoint(in)
	return &c, nil
}

// openEnvelope checks everything around the content.
func openEnvelope(data []byte) (envelope, error) {
	var env envelope
	switch {
	case len(data) == 0:
		return env, refuse(ErrDamaged, hintDamaged, "it is empty")
	case len(bytes.Trim(data, "\x00")) == 0:
		return env, refuse(ErrDamaged, hintDamaged, "it holds nothing but zero bytes, as a machine crash can leave it")
	case data[0] != '{':
		return env, refuse(ErrForeign, hintForeign, "it is no checkpoint")
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	err := decoder.Decode(&env)
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return env, refuse(ErrDamaged, hintDamaged, "it is cut off after %d bytes", len(data))
	case err != nil:
		return env, refuse(ErrDamaged, hintDamaged, "%v", err)
	case env.Format != format:
		return env, refuse(ErrForeign, hintForeign, "it is JSON, but no checkpoint")
	case env.Version > Version:
		return env, refuse(ErrVersion, hintVersion, "it has version %d, this relay knows up to %d", env.Version, Version)
	case env.Version < 1:
		return env, refuse(ErrDamaged, hintDamaged, "it has version %d", env.Version)
	case len(bytes.TrimSpace(data[decoder.InputOffset():])) > 0:
		return env, refuse(ErrDamaged, hintDamaged, "something follows the checkpoint")
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, env.Content); err != nil {
		return env, refuse(ErrDamaged, hintDamaged, "it has no content")
	}
	if got := checksum(compact.Bytes()); got != env.Checksum {
		return env, refuse(ErrDamaged, hintDamaged, "its checksum does not match: it was changed by hand, or written in part")
	}
	env.Content = compact.Bytes()
	return env, nil
}

func refuse(reason error, hint, format string, args ...any) error {
	return &Error{Op: "reading checkpoint", Err: reason, Hint: hint, Detail: fmt.Sprintf(format, args...)}
}
