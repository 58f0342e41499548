package preflight

import "golang.org/x/sys/unix"

// volatileFileSystem tells whether a directory lies in memory, and how the file system is called.
func volatileFileSystem(dir string) (string, bool) {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return "", false
	}
	switch int64(st.Type) {
	case unix.TMPFS_MAGIC:
		return "tmpfs", true
	case unix.RAMFS_MAGIC:
		return "ramfs", true
	}
	return "", false
}
