package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// Build says which relay binary to run. The zero value is the one that users run.
type Build struct {
	// Failpoints lets RelayOptions.Failpoint name a moment at which the process kills itself.
	Failpoints bool
	// Race adds the race detector. It is slow to build and to run. Builds of test binaries with the race detector have it always.
	Race bool
}

func (b Build) name() string {
	name := "outbox-relay"
	if b.Failpoints {
		name += "-failpoints"
	}
	if b.Race {
		name += "-race"
	}
	return name
}

// Builder builds each relay binary once.
type Builder struct {
	dir string

	mu    sync.Mutex
	built map[Build]string
}

// NewBuilder makes a folder for binaries. The caller calls Close.
func NewBuilder() (*Builder, error) {
	dir, err := os.MkdirTemp("", "outbox-relay-e2e-bin-")
	if err != nil {
		return nil, err
	}
	return &Builder{dir: dir, built: map[Build]string{}}, nil
}

// Close removes the binaries.
func (b *Builder) Close() error { return os.RemoveAll(b.dir) }

// Binary gives the path of the relay, built from the module of the working directory. It blocks while building.
func (b *Builder) Binary(ctx context.Context, build Build) (string, error) {
	build.Race = build.Race || raceEnabled || os.Getenv("E2E_RACE") != ""
	b.mu.Lock()
	defer b.mu.Unlock()
	if path, ok := b.built[build]; ok {
		return path, nil
	}
	module, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("finding the module: %w", err)
	}
	path := filepath.Join(b.dir, build.name())
	args := []string{"build", "-o", path}
	if build.Failpoints {
		args = append(args, "-tags", "failpoints")
	}
	if build.Race {
		args = append(args, "-race")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./cmd/outbox-relay")...)
	cmd.Dir = strings.TrimSpace(string(module))
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the relay: %w\n%s", err, out)
	}
	b.built[build] = path
	return path, nil
}
