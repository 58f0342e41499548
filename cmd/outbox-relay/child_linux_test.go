package main

import "syscall"

// childAttributes makes a child end with the test process, however that ends.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
