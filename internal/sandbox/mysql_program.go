package sandbox

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// mysqlProgram is a mysqld that can be run, and where its parts are.
type mysqlProgram struct {
	key     string   // folder name for what is prepared with it
	version string   // such as 9.7.4
	argv    []string // how to run mysqld
	env     []string // added to the environment
	paths   []string // options that point to its files
}

func (p *mysqlProgram) command(args ...string) *exec.Cmd {
	argv := append(append([]string{}, p.argv...), args...)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), p.env...)
	return cmd
}

var versionPattern = regexp.MustCompile(`Ver (\d+\.\d+\.\d+)`)

// identify asks mysqld for its version.
func (p *mysqlProgram) identify(ctx context.Context) error {
	out, err := runTool(ctx, p.command("--no-defaults", "--version"))
	if err != nil {
		return err
	}
	m := versionPattern.FindStringSubmatch(out)
	if m == nil || strings.Contains(out, "MariaDB") {
		return fmt.Errorf("%s is no MySQL server: %s", p.argv[0], strings.TrimSpace(out))
	}
	p.version = m[1]
	return nil
}

// mysqlSource is a way to get a mysqld.
type mysqlSource struct {
	name string
	// may says, before anything is fetched, whether it can have that version.
	may  func(version string) bool
	find func(ctx context.Context, say func(string)) (*mysqlProgram, error)
}

var mysqlSources = []mysqlSource{
	{"path", func(string) bool { return true }, mysqlFromPath},
	{"debian", func(v string) bool { return !strings.HasPrefix(v, "8.") }, mysqlFromDebian},
	{"maven", func(v string) bool { return strings.HasPrefix("8.0.33", v) }, mysqlFromMaven},
}

// findMySQL returns the first mysqld of that version ("" for any) that a source has, with
// an initialized data folder to copy from. OUTBOX_RELAY_SANDBOX_MYSQL names the only
// source to ask.
func findMySQL(ctx context.Context, version string, say func(string)) (*mysqlProgram, string, error) {
	only := os.Getenv("OUTBOX_RELAY_SANDBOX_MYSQL")
	var faults []error
	missing := true
	for _, source := range mysqlSources {
		if only != "" && only != source.name {
			continue
		}
		if !source.may(version) {
			continue
		}
		program, err := source.find(ctx, say)
		if err == nil && version != "" && !strings.HasPrefix(program.version+".", version+".") {
			err = &MissingError{Need: "MySQL " + version, For: "the sandbox",
				Remedy: "the one of the source " + source.name + " is " + program.version}
		}
		if err == nil {
			var data string
			if data, err = program.emptyData(ctx, say); err == nil {
				return program, data, nil
			}
		}
		if ctx.Err() != nil {
			return nil, "", err
		}
		var m *MissingError
		if !errors.As(err, &m) {
			missing = false
			say("no MySQL from the source " + source.name + ": " + err.Error())
		}
		faults = append(faults, fmt.Errorf("source %s: %w", source.name, err))
	}
	if len(faults) == 0 {
		return nil, "", fmt.Errorf("no source of MySQL %s (OUTBOX_RELAY_SANDBOX_MYSQL is %q, of path, debian, maven)", version, only)
	}
	if missing {
		return nil, "", &MissingError{Need: "MySQL", For: "the sandbox",
			Remedy: strings.ReplaceAll(errors.Join(faults...).Error(), "\n", "; ")}
	}
	return nil, "", fmt.Errorf("getting MySQL: %w", errors.Join(faults...))
}

// mysqlFromPath takes a mysqld that the user has installed, MySQL 8.0 or newer.
func mysqlFromPath(ctx context.Context, _ func(string)) (*mysqlProgram, error) {
	found, err := exec.LookPath("mysqld")
	if err != nil {
		return nil, &MissingError{Need: "mysqld on the PATH", For: "MySQL"}
	}
	p := &mysqlProgram{argv: []string{found}}
	if err := p.identify(ctx); err != nil {
		return nil, &MissingError{Need: "a MySQL mysqld on the PATH", For: "MySQL", Remedy: err.Error()}
	}
	if strings.HasPrefix(p.version, "5.") {
		return nil, &MissingError{Need: "MySQL 8.0 or newer", For: "the relay", Remedy: found + " is " + p.version}
	}
	p.key = fmt.Sprintf("mysql-path-%s-%x", p.version, sha256.Sum256([]byte(found)))[:len("mysql-path-")+len(p.version)+9]
	return p, nil
}

// mysqlFromDebian unpacks Debian's packages of the suite sid, with their own libc, and
// runs mysqld through their own dynamic loader. The host's libraries stay out of it.
func mysqlFromDebian(ctx context.Context, say func(string)) (*mysqlProgram, error) {
	const key = "mysql-debian-1"
	root, err := cached(ctx, key, say, func(dir string) error {
		say("fetching MySQL from Debian's packages (about 80 MB)")
		work := filepath.Join(dir, "apt")
		a, err := newApt(ctx, work, "sid")
		if err != nil {
			return err
		}
		noPerl := func(file string) bool { return strings.HasPrefix(file, "perl") || strings.HasPrefix(file, "libperl") }
		if err := a.unpack(ctx, dir, noPerl, "mysql-server-core", "mysql-client-core"); err != nil {
			return err
		}
		return os.RemoveAll(work)
	})
	if err != nil {
		return nil, err
	}
	p := &mysqlProgram{key: key}
	if p.argv, err = throughLoader(root, "usr/sbin/mysqld"); err != nil {
		return nil, err
	}
	p.paths = []string{
		"--basedir=" + filepath.Join(root, "usr"),
		"--lc-messages-dir=" + filepath.Join(root, "usr/share/mysql"),
		"--plugin-dir=" + filepath.Join(root, "usr/lib/mysql/plugin"),
	}
	return p, p.identify(ctx)
}

// throughLoader returns how to run a program of an unpacked tree with the tree's loader
// and libraries: ld.so --library-path <libraries> <program>.
func throughLoader(root, program string) ([]string, error) {
	var loaders, libraries []string
	for _, pattern := range []string{"usr/lib64/ld-linux-*.so.*", "usr/lib/ld-linux-*.so.*"} {
		found, _ := filepath.Glob(filepath.Join(root, pattern))
		loaders = append(loaders, found...)
	}
	libraries, _ = filepath.Glob(filepath.Join(root, "usr/lib/*-linux-gnu*"))
	if len(loaders) == 0 || len(libraries) == 0 {
		return nil, fmt.Errorf("no dynamic loader in %s", root)
	}
	program = filepath.Join(root, program)
	return []string{loaders[0], "--argv0", program, "--library-path", strings.Join(libraries, ":"), program}, nil
}

// accountsSQL runs once while a data folder is initialized, so it is in no binlog. Each
// statement stands on one line (init_file). relay has what the relay needs to read the
// binlog, to see prepared XA branches and to keep its checkpoints in MySQL.
const accountsSQL = `CREATE USER 'root'@'%' IDENTIFIED WITH caching_sha2_password BY '';
GRANT ALL ON *.* TO 'root'@'%' WITH GRANT OPTION;
CREATE USER 'relay'@'%' IDENTIFIED WITH caching_sha2_password BY 'relay';
GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT, XA_RECOVER_ADMIN ON *.* TO 'relay'@'%';
GRANT CREATE, ALTER, DROP, INDEX, SELECT, INSERT, UPDATE, DELETE ON outbox_relay.* TO 'relay'@'%';
`

// foldNames is an option that a data folder is made with.
const foldNames = "--lower-case-table-names=1"

// emptyData returns an initialized data folder without a server UUID, to be copied. One for more options is another.
func (p *mysqlProgram) emptyData(ctx context.Context, say func(string), more ...string) (string, error) {
	key := p.key + "-data-1" + strings.TrimPrefix(strings.ReplaceAll(strings.Join(more, ""), "=", "-"), "-")
	dir, err := cached(ctx, key, say, func(dir string) error {
		say("initializing a data folder of MySQL " + p.version)
		initFile := filepath.Join(dir, "accounts.sql")
		if err := os.WriteFile(initFile, []byte(accountsSQL), 0o644); err != nil {
			return err
		}
		data := filepath.Join(dir, "data")
		args := append([]string{"--no-defaults", "--initialize-insecure"}, p.paths...)
		args = append(append(args, more...), "--datadir="+data, "--init-file="+initFile, "--innodb-redo-log-capacity="+redoCapacity)
		if out, err := runTool(ctx, p.command(append(args, userArgs()...)...)); err != nil {
			return fmt.Errorf("initializing MySQL %s: %w", p.version, err)
		} else if strings.Contains(out, "[ERROR]") {
			return fmt.Errorf("initializing MySQL %s:\n%s", p.version, tail(out, 20))
		}
		return os.Remove(filepath.Join(data, "auto.cnf"))
	})
	return filepath.Join(dir, "data"), err
}

// userArgs lets mysqld run as root where the sandbox does.
func userArgs() []string {
	if os.Getuid() == 0 {
		return []string{"--user=root"}
	}
	return nil
}
