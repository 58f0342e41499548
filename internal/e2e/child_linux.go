package e2e

import "syscall"

// ownProcess keeps a child out of reach of the terminal's signals and has the kernel kill it when the thread that started it ends.
func ownProcess() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
