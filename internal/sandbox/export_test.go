package sandbox

import (
	"strings"
	"testing/fstest"
)

// Parts that the tests reach directly.
var (
	Cached     = cached
	NewFolder  = newFolder
	UnzipMySQL = unzipMySQL
)

// WatchPid gives the watchdog a process that this package did not start, so that nothing
// but the watchdog can end it.
func WatchPid(pid int) error {
	dog, err := theWatchdog()
	if err != nil {
		return err
	}
	dog.watchProcess(pid)
	return nil
}

// FindDebianSource reads apt's configuration from files.
func FindDebianSource(etc fstest.MapFS, haveDebianKeyring bool) (uri, keyring string, err error) {
	s, err := findDebianSource(etc, func(path string) bool { return haveDebianKeyring && path == debianKeyring })
	return s.uri, s.keyring, err
}

// ShellCommand returns how a shell script runs the program of m with the script's arguments.
func ShellCommand(m *MySQL) string {
	return "'" + strings.Join(m.program.argv, "' '") + "' \"$@\" '" + strings.Join(m.program.paths, "' '") + "'"
}
