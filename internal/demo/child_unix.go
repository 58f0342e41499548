//go:build unix && !linux

package main

import "syscall"

// childAttributes keep the terminal's signals away from a child.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
