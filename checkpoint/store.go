package checkpoint

import "context"

// Store keeps the checkpoint of one relay.
//
// Implementations are safe for concurrent use. They do not retry: the relay
// does, and it goes on publishing meanwhile. Every error other than that of an
// ended ctx is an *Error, so that it names the place and what to do. After Close
// all methods return ErrClosed.
type Store interface {
	// Load returns the last checkpoint that was saved, ErrNotFound if there
	// is none, and ErrDamaged, ErrForeign or ErrVersion if what is there
	// cannot be trusted. It blocks for I/O. The caller owns the result.
	Load(ctx context.Context) (*Checkpoint, error)
	// Save replaces the checkpoint and returns nil only once the new one is
	// durable: a crash of the process or of the machine afterwards cannot
	// bring back the old one. After an error either the old or the new
	// checkpoint is there, never a mixture and never none. A checkpoint whose
	// FencingToken is lower than that of the stored one is refused with
	// ErrFenced: another instance has taken over. What Load refuses is not
	// overwritten either. Save blocks for I/O and does not keep c.
	Save(ctx context.Context, c *Checkpoint) error
	// Close releases the place for another process. It may be called twice.
	Close() error
}
