package checkpoint

import "errors"

// The reasons that callers tell apart, found in an *Error with errors.Is.
var (
	// ErrNotFound means that no checkpoint was ever saved.
	ErrNotFound = errors.New("no checkpoint")
	// ErrDamaged means that it is empty, cut off or changed.
	ErrDamaged = errors.New("damaged checkpoint")
	// ErrForeign means that it is none of this relay: another relay's, or no
	// checkpoint at all.
	ErrForeign = errors.New("not a checkpoint of this relay")
	// ErrVersion means that another version of the relay wrote it.
	ErrVersion = errors.New("unknown checkpoint version")
	// ErrFenced means that an instance with a higher token has saved.
	ErrFenced = errors.New("fenced by another instance")
	// ErrHeld means that another process has the store open.
	ErrHeld = errors.New("checkpoint held by another process")
	// ErrInvalid means that a checkpoint passed to Save or Marshal breaks the
	// contract of its fields.
	ErrInvalid = errors.New("invalid checkpoint")
	// ErrUnfit means that the place cannot keep a checkpoint until somebody changes it, such as a topic of several partitions.
	ErrUnfit = errors.New("not a place for a checkpoint")
	// ErrClosed means that the store was closed.
	ErrClosed = errors.New("checkpoint store closed")
)

// Error is the error of stores and of the encoding.
type Error struct {
	// Op is what was being done, such as "loading checkpoint".
	Op string
	// Path is the place: a file, a table, a topic; empty in errors of
	// Unmarshal, which does not know it.
	Path string
	// Detail says what is wrong, beyond Err; may be empty.
	Detail string
	// Err is one of the reasons above or the error of the place.
	Err error
	// Passing is set where time may heal it, as with a server that cannot be reached: trying again later makes sense.
	Passing bool
	// Hint tells an operator what to do; may be empty. It is not part of the
	// text, so that it can be shown apart.
	Hint string
}

// Error renders everything but the hint.
func (e *Error) Error() string {
	text := e.Op
	if e.Path != "" {
		text += " " + e.Path
	}
	text += ": " + e.Err.Error()
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	return text
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }
