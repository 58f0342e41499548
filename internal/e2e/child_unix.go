//go:build unix && !linux

package e2e

import "syscall"

// ownProcess keeps a child out of reach of the terminal's signals. Here nothing ends it when this process is killed.
func ownProcess() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
