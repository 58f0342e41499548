//go:build unix && !linux

package sandbox

import "syscall"

// ownGroup puts a child into its own process group. Here only the watchdog ends it when
// this process dies.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// stopped cannot be asked cheaply here; the signal was sent.
func stopped(int) bool { return true }
