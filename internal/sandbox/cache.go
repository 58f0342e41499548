package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// CacheDir returns the folder that keeps fetched programs: $OUTBOX_RELAY_CACHE, else
// outbox-relay in the user's cache folder, else (for a user without a home) a folder of
// that user in the temporary folder. It may be deleted whenever no sandbox runs.
func CacheDir() (string, error) {
	dir := os.Getenv("OUTBOX_RELAY_CACHE")
	if dir == "" {
		if base, err := os.UserCacheDir(); err == nil {
			dir = filepath.Join(base, "outbox-relay")
		} else {
			dir = filepath.Join(os.TempDir(), fmt.Sprintf("outbox-relay-cache-%d", os.Getuid()))
		}
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("finding the cache folder: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("making the cache folder: %w", err)
	}
	return dir, nil
}

// cached returns the folder name in the cache and, if it is not there yet, has fill make
// it. Only complete folders get their name (fill works in name.partial, renamed at the
// end), and a file lock lets one process make it while others wait.
func cached(ctx context.Context, name string, say func(string), fill func(dir string) error) (string, error) {
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	final := filepath.Join(cache, name)
	if _, err := os.Stat(final); err == nil {
		return final, nil
	}
	unlock, err := lockFile(ctx, filepath.Join(cache, name+".lock"), func() {
		say("waiting for another process that prepares " + name)
	})
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(final); err == nil {
		return final, nil
	}
	partial := final + ".partial"
	if err := os.RemoveAll(partial); err != nil {
		return "", fmt.Errorf("clearing an unfinished %s: %w", name, err)
	}
	if err := os.Mkdir(partial, 0o755); err != nil {
		return "", err
	}
	if err := fill(partial); err != nil {
		return "", errors.Join(err, os.RemoveAll(partial))
	}
	if err := os.Rename(partial, final); err != nil {
		return "", fmt.Errorf("publishing %s in the cache: %w", name, err)
	}
	return final, nil
}

// lockFile takes an exclusive lock on path, which the kernel drops with the process. It
// calls waiting once if another holder makes it wait.
func lockFile(ctx context.Context, path string, waiting func()) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening a lock file: %w", err)
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			f.Close()
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		if waiting != nil {
			waiting()
			waiting = nil
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// copyTree copies a folder with its files, links and permissions; dst must not exist.
func copyTree(dst, src string) error {
	return filepath.WalkDir(src, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(src, path)
		if err != nil {
			return err
		}
		to := filepath.Join(dst, rel)
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			return os.Mkdir(to, info.Mode().Perm()|0o700)
		case d.Type()&fs.ModeSymlink != 0:
			link, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return os.Symlink(link, to)
		case d.Type().IsRegular():
			return copyFile(to, path, info.Mode().Perm())
		}
		return nil
	})
}

func copyFile(dst, src string, mode fs.FileMode) error {
	in, err := os.Open(src)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(dst, os.O_CREATE|os.O_WRONLY|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}
