//go:build failpoints

package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"outbox-relay/checkpoint/filestore"
	"outbox-relay/relay"
)

// A build with the tag failpoints kills itself where the environment says so; it is for tests of crashes and nothing else.
//
// OUTBOX_RELAY_FAILPOINT=acked:1,before-save:2 waits for the first hit of "acked" and then for the second one of "before-save" behind it, and sends
// itself SIGKILL there. Points are those of package relay, those of transactions (the Step constants of package relay/kafka), and of the checkpoint file: save-created, save-written, save-synced, save-renamed,
// save-durable, each right after that step.
const failpointVariable = "OUTBOX_RELAY_FAILPOINT"

func init() {
	text := os.Getenv(failpointVariable)
	if text == "" {
		return
	}
	f := &failpoint{}
	for _, part := range strings.Split(text, ",") {
		name, count, _ := strings.Cut(part, ":")
		n, err := strconv.Atoi(count)
		if err != nil || n < 1 {
			fmt.Fprintf(os.Stderr, "outbox-relay: %s=%q: want point:n[,point:n]\n", failpointVariable, text)
			os.Exit(exitUsage)
		}
		f.steps = append(f.steps, failpointStep{relay.Point(name), n})
	}
	points, layer = f.hit, failpointLayer{filestore.OS{}, f}
}

// failpoint is the chain of moments that lead to the kill.
type failpoint struct {
	mu    sync.Mutex
	steps []failpointStep
}

type failpointStep struct {
	point relay.Point
	left  int
}

func (f *failpoint) hit(at relay.Point) {
	f.mu.Lock()
	defer f.mu.Unlock()
	step := &f.steps[0]
	if step.point != at {
		return
	}
	if step.left--; step.left > 0 {
		return
	}
	if f.steps = f.steps[1:]; len(f.steps) > 0 {
		return
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // nothing more happens, other goroutines that come here included
}

// failpointLayer hits a point after each step of a save.
type failpointLayer struct {
	filestore.Layer
	f *failpoint
}

func (l failpointLayer) Create(path string) (filestore.File, error) {
	file, err := l.Layer.Create(path)
	l.f.hit("save-created")
	return failpointFile{file, l.f}, err
}

func (l failpointLayer) Rename(from, to string) error {
	err := l.Layer.Rename(from, to)
	l.f.hit("save-renamed")
	return err
}

func (l failpointLayer) SyncDir(path string) error {
	err := l.Layer.SyncDir(path)
	l.f.hit("save-durable")
	return err
}

type failpointFile struct {
	filestore.File
	f *failpoint
}

func (f failpointFile) Write(b []byte) (int, error) {
	n, err := f.File.Write(b)
	f.f.hit("save-written")
	return n, err
}

func (f failpointFile) Sync() error {
	err := f.File.Sync()
	f.f.hit("save-synced")
	return err
}
