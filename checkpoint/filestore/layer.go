package filestore

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"outbox-relay/checkpoint"
)

// Layer is what the store needs of a file system. Errors are those of package
// os or wrap fs.ErrNotExist and the like as they do. A Layer is used by one
// goroutine at a time.
type Layer interface {
	// ReadFile returns the whole content.
	ReadFile(path string) ([]byte, error)
	// Create makes a new file and fails if there is one.
	Create(path string) (File, error)
	// Rename replaces to by from in one step.
	Rename(from, to string) error
	Remove(path string) error
	// SyncDir returns once the names in the directory are durable.
	SyncDir(path string) error
	// Lock takes an exclusive lock that the end of the process releases, or
	// fails with checkpoint.ErrHeld at once.
	Lock(path string) (io.Closer, error)
}

// File is a new file being written.
type File interface {
	io.WriteCloser
	// Sync returns once everything written is durable.
	Sync() error
}

// OS is the Layer of the operating system.
type OS struct{}

// ReadFile implements Layer.
func (OS) ReadFile(path string) ([]byte, error) { return os.ReadFile(path) }

// Create implements Layer. O_EXCL also keeps it from following a link.
func (OS) Create(path string) (File, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
}

// Rename implements Layer.
func (OS) Rename(from, to string) error { return os.Rename(from, to) }

// Remove implements Layer.
func (OS) Remove(path string) error { return os.Remove(path) }

// SyncDir implements Layer.
func (OS) SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Lock implements Layer with flock. The file holds the process id and host of
// the holder and is left behind: removing it would let two processes lock two
// files of the same name.
func (OS) Lock(path string) (io.Closer, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		held := &checkpoint.Error{
			Err: checkpoint.ErrHeld, Detail: holder(f),
			Hint: "stop that process, or give this relay a checkpoint.path of its own",
		}
		return nil, errors.Join(held, f.Close())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("locking %s: %w", path, err), f.Close())
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	// The text serves the message of ErrHeld alone, so a full disk does not
	// matter: the lock is held.
	who := fmt.Appendf(nil, "process %d on %s\n", os.Getpid(), host)
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt(who, 0)
	}
	return f, nil
}

// holder reads who wrote the lock file.
func holder(f *os.File) string {
	buf := make([]byte, 300)
	n, _ := f.ReadAt(buf, 0)
	if text := strings.TrimSpace(string(buf[:n])); text != "" {
		return text
	}
	return "the process has not yet written its id"
}
