//go:build unix && !linux

package preflight

// volatileFileSystem knows no such file systems on this system.
func volatileFileSystem(string) (string, bool) { return "", false }
