// Package filestore keeps a relay's checkpoint in a file.
//
// A save writes a temporary file beside it, syncs that, renames it over the
// checkpoint and syncs the directory, so that a crash at any moment leaves the
// old or the new checkpoint. A lock on <path>.lock keeps a second process out;
// the lock goes away with the process, the lock file stays.
//
// The package deliberately does not protect against a second relay of the same
// name on another host (the lock is local), does not keep old checkpoints and
// does not repair: what it cannot trust it refuses. Unix only.
package filestore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"sync"
	"syscall"

	"outbox-relay/checkpoint"
)

// Options say which file.
type Options struct {
	// Path is the checkpoint file. Its directory must exist and be writable.
	// The file itself must not be a mount point or a symbolic link: a save
	// replaces it.
	Path string
	// Name is the relay's name; a checkpoint of another one is refused.
	Name string
	// Layer replaces the operating system; nil means OS. Tests crash in it.
	Layer Layer
}

// Store is a checkpoint.Store in a file.
type Store struct {
	path, name string
	layer      Layer

	mu     sync.Mutex
	lock   io.Closer
	closed bool
	// known is true once the file was read, or found missing, without fault;
	// until then a Save reads it first, so that it overwrites nothing foreign.
	known bool
	// token is the fencing token of the stored checkpoint; valid if known.
	token uint64
}

var _ checkpoint.Store = (*Store)(nil)

// Open takes the lock and removes what a crashed save may have left. Its error
// is an *checkpoint.Error: with ErrHeld, and the holder in Detail, if another
// process has the file open. It does not wait for the lock.
func Open(o Options) (*Store, error) {
	if o.Path == "" || o.Name == "" {
		return nil, &checkpoint.Error{Op: "opening checkpoint", Err: checkpoint.ErrInvalid, Detail: "path and name are needed"}
	}
	s := &Store{path: o.Path, name: o.Name, layer: o.Layer}
	if s.layer == nil {
		s.layer = OS{}
	}
	lock, err := s.layer.Lock(s.path + ".lock")
	if err != nil {
		return nil, s.failed("opening checkpoint", err)
	}
	s.lock = lock
	if err := s.layer.Remove(s.temporary()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(s.failed("opening checkpoint", err), lock.Close())
	}
	return s, nil
}

func (s *Store) temporary() string { return s.path + ".tmp" }

// Read returns the checkpoint of the relay called name from a file that another
// process may have open. It takes no lock: a rename swaps whole files. Errors
// are those of Store.Load.
func Read(path, name string) (*checkpoint.Checkpoint, error) {
	return (&Store{path: path, name: name, layer: OS{}}).read()
}

// Load returns the checkpoint; see checkpoint.Store.
func (s *Store) Load(ctx context.Context) (*checkpoint.Checkpoint, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx, "loading checkpoint"); err != nil {
		return nil, err
	}
	c, err := s.read()
	s.learn(c, err)
	return c, err
}

// Save replaces the checkpoint; see checkpoint.Store. It looks at ctx before it
// begins and cannot be interrupted by it later: file I/O has no way to be.
func (s *Store) Save(ctx context.Context, c *checkpoint.Checkpoint) error {
	const op = "saving checkpoint"
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx, op); err != nil {
		return err
	}
	if c.Name != s.name {
		return &checkpoint.Error{Op: op, Path: s.path, Err: checkpoint.ErrInvalid, Detail: fmt.Sprintf("it is of the relay %q, the store of %q", c.Name, s.name)}
	}
	data, err := checkpoint.Marshal(c)
	if err != nil {
		return s.failed(op, err)
	}
	if !s.known {
		stored, err := s.read()
		if s.learn(stored, err); !s.known {
			return err
		}
	}
	if c.FencingToken < s.token {
		return &checkpoint.Error{
			Op: op, Path: s.path, Err: checkpoint.ErrFenced,
			Detail: fmt.Sprintf("its token is %d, the stored one's %d", c.FencingToken, s.token),
			Hint:   "another instance of this relay has taken over; this one must stop",
		}
	}
	if err := s.replace(data, c.FencingToken); err != nil {
		return s.failed(op, err)
	}
	return nil
}

// replace makes data the content of the file. The order is the whole point:
// content before name, name before return.
func (s *Store) replace(data []byte, token uint64) error {
	temporary := s.temporary()
	// After a failed sync the kernel may have dropped what it could not write
	// and call a second sync a success, so each save begins a new file.
	if err := s.layer.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := s.write(temporary, data); err != nil {
		// Frees the space on a full disk; a failure changes nothing.
		_ = s.layer.Remove(temporary)
		return err
	}
	if err := s.layer.Rename(temporary, s.path); err != nil {
		_ = s.layer.Remove(temporary)
		return err
	}
	// From here on the new checkpoint may survive, durable or not.
	s.token = token
	return s.layer.SyncDir(filepath.Dir(s.path))
}

func (s *Store) write(path string, data []byte) error {
	f, err := s.layer.Create(path)
	if err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := f.Sync(); err != nil {
		return errors.Join(err, f.Close())
	}
	return f.Close()
}

// Remove deletes the checkpoint, whatever is in the file, and returns nil only
// once that is durable. A missing file is no error. Tokens begin anew.
func (s *Store) Remove(ctx context.Context) error {
	const op = "removing checkpoint"
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx, op); err != nil {
		return err
	}
	if err := s.layer.Remove(s.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s.failed(op, err)
	}
	s.known, s.token = true, 0
	if err := s.layer.SyncDir(filepath.Dir(s.path)); err != nil {
		return s.failed(op, err)
	}
	return nil
}

// Close releases the lock.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	if err := s.lock.Close(); err != nil {
		return s.failed("closing checkpoint", err)
	}
	return nil
}

func (s *Store) usable(ctx context.Context, op string) error {
	if s.closed {
		return &checkpoint.Error{Op: op, Path: s.path, Err: checkpoint.ErrClosed}
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s %s: %w", op, s.path, context.Cause(ctx))
	}
	return nil
}

func (s *Store) read() (*checkpoint.Checkpoint, error) {
	const op = "loading checkpoint"
	data, err := s.layer.ReadFile(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &checkpoint.Error{Op: op, Path: s.path, Err: checkpoint.ErrNotFound}
	}
	if err != nil {
		return nil, s.failed(op, err)
	}
	c, err := checkpoint.Unmarshal(data, s.name)
	if err != nil {
		return nil, s.failed(op, err)
	}
	return c, nil
}

// learn notes what a read found.
func (s *Store) learn(c *checkpoint.Checkpoint, err error) {
	switch {
	case err == nil:
		s.known, s.token = true, c.FencingToken
	case errors.Is(err, checkpoint.ErrNotFound):
		s.known, s.token = true, 0
	default:
		s.known = false
	}
}

// failed makes err an *checkpoint.Error of this file.
func (s *Store) failed(op string, err error) error {
	var known *checkpoint.Error
	if errors.As(err, &known) {
		full := *known
		full.Op, full.Path = op, s.path
		return &full
	}
	return &checkpoint.Error{Op: op, Path: s.path, Err: err, Hint: hint(err)}
}

// hint says what an operator can do about an error of the operating system.
func hint(err error) string {
	for _, one := range []struct {
		err  error
		hint string
	}{
		{syscall.ENOSPC, "the disk is full: free some space; the old checkpoint is kept"},
		{syscall.EDQUOT, "the disk quota is used up: free some space; the old checkpoint is kept"},
		{syscall.EROFS, "the file system is read-only: give checkpoint.path a place that can be written"},
		{syscall.EBUSY, "if the file itself is a mount point, mount its directory instead: a save replaces the file"},
		{syscall.EISDIR, "the path is a directory: name a file in it"},
		{syscall.ENOTDIR, "a part of the path is not a directory"},
		{fs.ErrPermission, "let the relay's user write to the directory: a save makes a new file there"},
		{fs.ErrNotExist, "create the directory and let the relay's user write to it"},
		{syscall.EINVAL, "the file system cannot make names durable: keep the checkpoint on a local disk"},
		{syscall.ENOLCK, "the file system has no locks: keep the checkpoint on a local disk"},
		{syscall.EIO, "the disk fails: look at the kernel's log; the old checkpoint is kept if it can be read"},
	} {
		if errors.Is(err, one.err) {
			return one.hint
		}
	}
	return ""
}
