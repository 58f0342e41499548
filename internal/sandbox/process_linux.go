package sandbox

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
)

// ownGroup puts a child into its own process group, out of reach of the terminal's
// signals, and has the kernel kill it when the thread that started it ends.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// stopped reports whether the process is in the stopped state (proc(5), field 3 of stat).
func stopped(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	i := bytes.LastIndexByte(stat, ')')
	return i >= 0 && i+2 < len(stat) && stat[i+2] == 'T'
}
