//go:build unix && !linux

package main

import "syscall"

func childAttributes() *syscall.SysProcAttr { return nil }
