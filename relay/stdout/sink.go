// Package stdout is a sink that prints records as JSON lines instead of publishing them: for a dry run of rules against a real source.
//
// A printed record counts as acknowledged, so the checkpoint advances over it. It batches nothing and bounds nothing: a slow reader of the
// output slows the relay.
package stdout

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"
	"unicode/utf8"

	"outbox-relay/router"
)

// Sink prints records. Publish is for one goroutine.
type Sink struct {
	acked   func([]uint64)
	mu      sync.Mutex
	out     *bufio.Writer
	text    bytes.Buffer // the line being made
	pending []uint64
	err     error
}

// New returns a sink that writes to w and reports printed records to acked.
func New(w io.Writer, acked func(seqs []uint64)) *Sink {
	return &Sink{acked: acked, out: bufio.NewWriterSize(w, 64<<10)}
}

// line is one record. Bytes that are no UTF-8 are printed as {"base64": …}.
type line struct {
	Topic     string   `json:"topic"`
	Partition *int32   `json:"partition,omitempty"`
	Key       any      `json:"key"`
	Headers   [][2]any `json:"headers"`
	Timestamp string   `json:"timestamp"`
	Value     any      `json:"value"`
}

type binary struct {
	Base64 []byte `json:"base64"`
}

func bytesValue(b []byte) any {
	switch {
	case b == nil:
		return nil
	case utf8.Valid(b):
		return string(b)
	}
	return binary{b}
}

// Run waits for ctx: printing happens in Publish.
func (s *Sink) Run(ctx context.Context) error {
	<-ctx.Done()
	s.Flush()
	return nil
}

// Publish prints one record.
func (s *Sink) Publish(_ context.Context, rec *router.Record, seq uint64) error {
	l := line{Topic: rec.Topic, Key: bytesValue(rec.Key), Value: bytesValue(rec.Value), Timestamp: time.UnixMilli(rec.TimestampMillis).UTC().Format("2006-01-02T15:04:05.000Z")}
	if rec.Partition >= 0 {
		l.Partition = &rec.Partition
	}
	for _, h := range rec.Headers {
		l.Headers = append(l.Headers, [2]any{h.Key, bytesValue(h.Value)})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text.Reset()
	enc := json.NewEncoder(&s.text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(l); err != nil {
		return fmt.Errorf("printing a record: %w", err)
	}
	if s.text.Len() > s.out.Available() { // whole lines in each write: other relays of the process may print to the same place
		if err := s.flush(); err != nil {
			return err
		}
	}
	if _, err := s.out.Write(s.text.Bytes()); err != nil {
		return fmt.Errorf("printing a record: %w", err)
	}
	if s.pending = append(s.pending, seq); len(s.pending) < 1000 {
		return nil
	}
	return s.flush()
}

// Flush writes what is buffered and acknowledges it.
func (s *Sink) Flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.flush() // kept for the next Publish or Drain
}

func (s *Sink) flush() error {
	if s.err != nil || len(s.pending) == 0 {
		return s.err
	}
	if err := s.out.Flush(); err != nil {
		s.err = fmt.Errorf("printing records: %w", err)
		return s.err
	}
	s.acked(s.pending)
	s.pending = s.pending[:0]
	return nil
}

// Drain writes what is buffered.
func (s *Sink) Drain(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.flush()
}
