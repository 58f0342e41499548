package relay

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"outbox-relay/binlog"
	"outbox-relay/checkpoint"
	"outbox-relay/router"
	"outbox-relay/snapshot"
)

// Poison describes a record that can never be published.
type Poison struct {
	Reason   string // fixed set: a metric label
	GTID     string
	Table    string
	ID       string // the row's id column, where there is one
	Position string // gtid#n
	Topic    string
	Size     int64 // of the whole row in bytes where its value is gone; else 0
	Err      error
	Hint     string // what an operator can do; empty for the usual: change the rule or the topic
}

// locate fills the GTID from the position.
func (p *Poison) locate() {
	if p.GTID == "" {
		p.GTID, _ = cutPosition(p.Position)
	}
}

// cutPosition takes a position, `name#n`, apart. A name may hold a #: that of a table does.
func cutPosition(position string) (name, row string) {
	i := strings.LastIndexByte(position, '#')
	if i < 0 {
		return position, ""
	}
	return position[:i], position[i+1:]
}

func (p *Poison) Unwrap() error { return p.Err }

func (p *Poison) Error() string {
	text := fmt.Sprintf("row of %s can never be published (%s)", p.Table, p.Reason)
	switch {
	case p.Table == "": // the sink's state, not a row
		text = fmt.Sprintf("rows can not be published (%s)", p.Reason)
	case p.ID != "":
		text = fmt.Sprintf("row %s of %s can never be published (%s)", p.ID, p.Table, p.Reason)
	}
	if p.Err != nil {
		text += ": " + p.Err.Error()
	}
	return text
}

// HaltError is why a relay stands still until a person acts: a poison record or a source that cannot continue. Exactly one of both is set.
type HaltError struct {
	Poison *Poison
	Source error // a *binlog.SourceError, or an error of columns that rules need
}

// Columns reports whether the rules do not fit the columns of a row, which is the row's or the rules' fault and not the source's. A binlog that
// names no columns is the source's.
func (h *HaltError) Columns() bool {
	var c *columnsError
	var unnamed *router.NamesError
	return errors.As(h.Source, &c) && !errors.As(h.Source, &unnamed)
}

// Unwrap gives the cause.
func (h *HaltError) Unwrap() error {
	if h.Poison != nil {
		return h.Poison
	}
	return h.Source
}

func (h *HaltError) Error() string {
	if h.Poison != nil {
		hint := h.Poison.Hint
		if hint == "" {
			hint = "change the rule or the topic so that the row fits, or set the checkpoint behind it"
		}
		at := ""
		if h.Poison.GTID != "" {
			at = " at transaction " + h.Poison.GTID
		}
		if strings.HasPrefix(h.Poison.GTID, snapshot.PositionPrefix) {
			at = ", reading the rows that exist"
			if h.Poison.Hint == "" {
				hint = "change the rule or the topic so that the row fits, or leave it out by snapshot.where of the table"
			}
		}
		return fmt.Sprintf("halted%s: %v; %s", at, h.Poison, hint)
	}
	return fmt.Sprintf("halted: %v", h.Source)
}

// Reason is the value of the label reason of the halted metric.
func (h *HaltError) Reason() string {
	if h.Poison != nil {
		return "poison"
	}
	var s *binlog.SourceError
	if errors.As(h.Source, &s) {
		return string(s.Reason)
	}
	return "columns"
}

// columnsError says that the rules do not fit the columns of a table as the binlog describes it.
type columnsError struct {
	gtid string
	err  error // of the router: one or several, joined
}

func (e *columnsError) Unwrap() error { return e.err }

func (e *columnsError) Error() string {
	faults := strings.ReplaceAll(e.err.Error(), "\n", "; ")
	return fmt.Sprintf("the rules do not fit the rows of transaction %s: %s; correct the rules or the table", e.gtid, faults)
}

// Sentence gives the text of an error with what its checkpoint store advises, where it does.
func Sentence(err error) string {
	if err == nil {
		return ""
	}
	var c *checkpoint.Error
	if errors.As(err, &c) && c.Hint != "" {
		return err.Error() + "; " + c.Hint
	}
	return err.Error()
}

// standAside is a relay that cannot even begin: it stays up and shows why, or returns the cause under ExitOnHalt.
func (r *Relay) standAside(ctx context.Context, h *HaltError) error {
	r.mu.Lock()
	r.halt = h
	r.mu.Unlock()
	r.log.Error("halted", "reason", h.Reason(), "err", h)
	if r.o.ExitOnHalt {
		return h
	}
	<-ctx.Done()
	return nil
}

var (
	// ErrActive is returned when another relay of this name is active and the relay may not stand by.
	ErrActive = errors.New("another relay of this name is active")
	// ErrTables is returned when the tables may not be changed now.
	ErrTables = errors.New("the tables cannot be changed yet")
	// errTakenOver ends a session whose activity another instance has taken.
	errTakenOver = errors.New("another instance of this relay has taken over")
)
