package preflight

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"outbox-relay/checkpoint"
	"outbox-relay/router"
)

// local looks at what lies on this machine.
func (p *plan) local(ctx context.Context) []Item {
	s := &section{area: "checkpoint"}
	p.checkpoint(s)
	p.probe(ctx, s)
	p.newTables(s)
	if p.CheckpointPath != "" {
		p.file(s)
	}
	sp := &section{area: "spool"}
	p.spool(sp)
	return append(s.items, sp.items...)
}

// file looks at the place of a checkpoint file.
func (p *plan) file(s *section) {
	dir := filepath.Dir(p.CheckpointPath)
	if writable(s, "directory", dir, "checkpoint.path") {
		if name, volatile := volatileFileSystem(dir); volatile {
			s.add(Warning, "file system", "%s is on %s, which a reboot empties: the relay would start as if for the first time", dir, name).
				do("put checkpoint.path on a disk")
		}
		if info, err := os.Lstat(p.CheckpointPath); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			s.add(Warning, "file", "%s is a symbolic link, which the first save replaces by a file", p.CheckpointPath).do("set checkpoint.path to the file it points to")
		}
	}
}

func (p *plan) checkpoint(s *section) {
	c, err := p.ReadCheckpoint()
	place := p.CheckpointPlace
	if place == "" {
		place = p.CheckpointPath
	}
	var fault *checkpoint.Error
	switch {
	case err == nil:
		p.stored = c
		s.add(OK, "position", "%s, saved %s ago by %s", place, span(p.Now().Sub(c.Time)), c.Instance)
	case errors.Is(err, checkpoint.ErrNotFound) && p.Start == "":
		s.add(Failed, "position", "there is no checkpoint at %s and source.start is not set", place).do("set source.start to latest, earliest or a GTID set")
	case errors.Is(err, checkpoint.ErrNotFound):
		s.add(OK, "position", "none yet at %s: the first run starts at %s", place, p.Start)
	case errors.As(err, &fault):
		p.damaged = true
		s.add(Failed, "position", "%v", err).do(fault.Hint)
	default:
		p.damaged = true
		s.add(Failed, "position", "%v", err)
	}
}

// probe tries the rights to save. A place that cannot be reached or read is an item already.
func (p *plan) probe(ctx context.Context, s *section) {
	if p.ProbeCheckpoint == nil || p.damaged {
		return
	}
	const name = "rights"
	err := p.ProbeCheckpoint(ctx)
	var fault *checkpoint.Error
	switch {
	case err == nil:
		s.add(OK, name, "the checkpoint can be saved at %s", p.CheckpointPlace)
	case errors.As(err, &fault):
		s.add(Failed, name, "the checkpoint cannot be saved: %v", err).do(fault.Hint)
	default:
		s.add(Unknown, name, "%v", err)
	}
}

// newTables finds tables that the checkpoint does not know and no rule says from where to read.
func (p *plan) newTables(s *section) {
	if p.stored == nil {
		return
	}
	said := map[router.TableName]bool{}
	for i, r := range p.Rules { // one rule of a table is enough
		if name, err := router.ParseTableName(r.Table); err == nil && p.FromLatest[i] {
			said[name] = true
		}
	}
	for i, r := range p.Rules {
		name, err := router.ParseTableName(r.Table)
		if err == nil && !router.Watches(p.stored.Tables, name.String()) && !said[name] {
			said[name] = true
			s.add(Failed, "new table", "table %s is new to this relay, whose checkpoint already exists", name).
				do(fmt.Sprintf("set from on tables[%d]: latest publishes what is inserted from the checkpoint on, snapshot the rows that exist first", i))
		}
	}
}

func (p *plan) spool(s *section) {
	if !writable(s, "directory", p.SpoolDir, "limits.spool_dir") {
		return
	}
	if name, volatile := volatileFileSystem(p.SpoolDir); volatile {
		s.add(Warning, "file system", "%s is on %s: large transactions would be held in memory", p.SpoolDir, name).do("set limits.spool_dir to a directory on a disk")
	}
	var st unix.Statfs_t
	if err := unix.Statfs(p.SpoolDir, &st); err != nil {
		s.add(Unknown, "space", "the free space of %s cannot be read: %v", p.SpoolDir, err)
		return
	}
	free := int64(st.Bavail) * int64(st.Bsize) //nolint:unconvert // the types differ between systems
	if free < p.SpoolLimit {
		s.add(Warning, "space", "%s has %s free, limits.spool allows %s: a transaction that large would halt the relay", p.SpoolDir, size(free), size(p.SpoolLimit)).
			do("free some space, or lower limits.spool")
		return
	}
	s.add(OK, "space", "%s free, limits.spool allows %s", size(free), size(p.SpoolLimit))
}

// writable makes and removes a file, and notes what came of it.
func writable(s *section, name, dir, key string) bool {
	f, err := os.CreateTemp(dir, ".outbox-relay-check-*")
	if err == nil {
		_, err = f.Write([]byte("x"))
		err = errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	switch {
	case err == nil:
		s.add(OK, name, "%s can be written", dir)
		return true
	case errors.Is(err, fs.ErrNotExist):
		s.add(Failed, name, "%s does not exist", dir).do("create it and let the relay's user write to it, or change "+key, "mkdir -p "+dir)
	default:
		s.add(Failed, name, "%s cannot be written: %v", dir, cause(err)).do("let the relay's user write to it, or change " + key)
	}
	return false
}

// cause leaves out the name of the temporary file.
func cause(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// span gives a duration for people.
func span(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return fmt.Sprintf("%.0f minutes", d.Minutes())
	case d < 2*day:
		return fmt.Sprintf("%.0f hours", d.Hours())
	}
	return fmt.Sprintf("%.0f days", d.Hours()/24)
}

func size(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	f, i := float64(n)/unit, 0
	for f >= unit && i < 4 {
		f /= unit
		i++
	}
	return fmt.Sprintf("%.1f %ciB", f, "KMGTP"[i])
}
