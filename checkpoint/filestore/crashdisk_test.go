package filestore_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"

	"outbox-relay/checkpoint/filestore"
)

// loss says what a crash does with writes that were not synced. Journaling file
// systems do all of these: they may write names before contents, or contents in
// part.
type loss string

const (
	nothingLost  loss = "nothing lost"
	allLost      loss = "all unsynced lost"
	contentsLost loss = "names kept, unsynced contents lost"
	contentsTorn loss = "names kept, half of unsynced contents lost"
)

var losses = []loss{nothingLost, allLost, contentsLost, contentsTorn}

// errCrash is what every call gets from the moment of the crash on.
var errCrash = errors.New("the machine has crashed")

// disk is a filestore.Layer in memory that can crash, or fail, at any call that
// changes something. It is for one directory.
type disk struct {
	// names is the directory as processes see it, synced as a crash may leave it.
	names, synced map[string]*inode
	// trace are the changing calls so far.
	trace []string
	// crashAt is the index in trace before which the machine crashes; < 0 never.
	crashAt int
	// failAt is the index in trace of a call that fails with failure; < 0 none.
	failAt  int
	failure error
	locked  bool
	// lazy makes Sync, or SyncDir, do nothing: the bug the tests must notice.
	lazySync, lazySyncDir bool
}

type inode struct{ data, synced []byte }

func newDisk() *disk {
	return &disk{names: map[string]*inode{}, synced: map[string]*inode{}, crashAt: -1, failAt: -1}
}

// step notes a changing call and tells whether it happens.
func (d *disk) step(call string) error {
	if d.crashAt >= 0 && len(d.trace) >= d.crashAt {
		return errCrash
	}
	d.trace = append(d.trace, call)
	if d.failAt == len(d.trace)-1 {
		return &fs.PathError{Op: call, Path: "disk", Err: d.failure}
	}
	return nil
}

// reboot returns the disk as the next process finds it.
func (d *disk) reboot(l loss) *disk {
	next := newDisk()
	names := d.names
	if l == allLost {
		names = d.synced
	}
	for name, f := range names {
		data := f.data
		switch l {
		case allLost, contentsLost:
			data = f.synced
		case contentsTorn:
			data = slices.Concat(f.synced, f.data[len(f.synced):(len(f.data)+len(f.synced))/2])
		}
		next.names[name] = &inode{data: data, synced: data}
	}
	next.synced = maps.Clone(next.names)
	return next
}

func (d *disk) ReadFile(path string) ([]byte, error) {
	f := d.names[path]
	if f == nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	return slices.Clone(f.data), nil
}

func (d *disk) Create(path string) (filestore.File, error) {
	if err := d.step("create"); err != nil {
		return nil, err
	}
	if d.names[path] != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrExist}
	}
	d.names[path] = &inode{}
	return &openFile{disk: d, inode: d.names[path]}, nil
}

func (d *disk) Rename(from, to string) error {
	if err := d.step("rename"); err != nil {
		return err
	}
	d.names[to] = d.names[from]
	delete(d.names, from)
	return nil
}

func (d *disk) Remove(path string) error {
	if d.names[path] == nil {
		return &fs.PathError{Op: "remove", Path: path, Err: fs.ErrNotExist}
	}
	if err := d.step("remove"); err != nil {
		return err
	}
	delete(d.names, path)
	return nil
}

func (d *disk) SyncDir(path string) error {
	if err := d.step("sync directory"); err != nil {
		return err
	}
	if path != filepath.Dir(target) {
		return fmt.Errorf("wrong directory %s", path)
	}
	if !d.lazySyncDir {
		d.synced = maps.Clone(d.names)
	}
	return nil
}

func (d *disk) Lock(string) (io.Closer, error) {
	if d.locked {
		return nil, errors.New("locked")
	}
	d.locked = true
	return unlocker{d}, nil
}

type unlocker struct{ *disk }

func (u unlocker) Close() error { u.locked = false; return nil }

type openFile struct {
	disk  *disk
	inode *inode
}

func (f *openFile) Write(p []byte) (int, error) {
	err := f.disk.step("write")
	if errors.Is(err, errCrash) {
		return 0, err
	}
	if err != nil {
		// A disk that fills up takes a part.
		f.inode.data = append(f.inode.data, p[:len(p)/2]...)
		return len(p) / 2, err
	}
	f.inode.data = append(f.inode.data, p...)
	return len(p), nil
}

func (f *openFile) Sync() error {
	if err := f.disk.step("sync"); err != nil {
		return err
	}
	if !f.disk.lazySync {
		f.inode.synced = slices.Clone(f.inode.data)
	}
	return nil
}

func (f *openFile) Close() error { return f.disk.step("close") }
