package sandbox

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

// The watchdog is a small shell that reads from a pipe what this process has started. At
// the end of the pipe, which comes however this process ends, it kills the servers that
// are left and removes their folders. On Linux the kernel kills the servers too; the
// watchdog serves other systems and the folders.
//
// Lines: "+p <pid>" and "+d <folder>" add, "-p <pid>" and "-d <folder>" remove.
const watchdogScript = `
trap '' INT TERM HUP
set --
while IFS= read -r line; do
  what=${line#?}
  case $line in
  +*) set -- "$@" "$what" ;;
  -*)
    n=$#
    while [ $n -gt 0 ]; do
      one=$1; shift; n=$((n-1))
      [ "$one" = "$what" ] || set -- "$@" "$one"
    done ;;
  esac
done
for one do
  case $one in "p "*) kill -9 "${one#p }" 2>/dev/null ;; esac
done
for one do
  case $one in "d "*)
    tries=0
    until rm -rf -- "${one#d }" 2>/dev/null || [ $tries -ge 50 ]; do sleep 0.1; tries=$((tries+1)); done ;;
  esac
done
`

type watchdog struct {
	mu   sync.Mutex
	pipe io.Writer
}

// theWatchdog starts the process's one watchdog with the first server.
var theWatchdog = sync.OnceValues(func() (*watchdog, error) {
	cmd := exec.Command("/bin/sh", "-c", watchdogScript)
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	// No Pdeathsig here: it has to outlive this process for a moment.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the sandbox's watchdog: %w", err)
	}
	go func() { _ = cmd.Wait() }() // ends with the watchdog
	return &watchdog{pipe: pipe}, nil
})

func (w *watchdog) tell(line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, _ = io.WriteString(w.pipe, line+"\n")
}

func (w *watchdog) watchProcess(pid int)  { w.tell(fmt.Sprintf("+p %d", pid)) }
func (w *watchdog) forgetProcess(pid int) { w.tell(fmt.Sprintf("-p %d", pid)) }

// newFolder makes a temporary folder that is removed by removeFolder, or by the watchdog
// when this process ends without having done so.
func newFolder(kind string) (string, error) {
	dog, err := theWatchdog()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "outbox-relay-"+kind+"-*")
	if err != nil {
		return "", err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return "", err
	}
	if strings.ContainsRune(dir, '\n') {
		return "", fmt.Errorf("the temporary folder has a line break in its name: %q", dir)
	}
	dog.tell("+d " + dir)
	return dir, nil
}

func removeFolder(dir string) error {
	err := os.RemoveAll(dir)
	if dog, dogErr := theWatchdog(); dogErr == nil && err == nil {
		dog.tell("-d " + dir)
	}
	return err
}
