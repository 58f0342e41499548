package sandbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// Ports are taken below the kernel's default range for outgoing connections (32768 and
// up): a port of that range can be lost to any client while its server is down.
const (
	firstPort = 15000
	lastPort  = 31999
)

// port is a TCP port of 127.0.0.1 that no other sandbox of this cache folder uses.
type port struct {
	number  int
	release func()
}

func (p port) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.number)) }

// reservePort finds a port nobody listens on and keeps a file lock on its number until
// release, so that the number stays the server's own while the server is down.
func reservePort() (port, error) {
	cache, err := CacheDir()
	if err != nil {
		return port{}, err
	}
	dir := filepath.Join(cache, "ports")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return port{}, err
	}
	for range 200 {
		n := firstPort + rand.IntN(lastPort-firstPort+1)
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		unlock, err := lockFile(ctx, filepath.Join(dir, strconv.Itoa(n)), nil)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			continue
		}
		if err != nil {
			return port{}, err
		}
		p := port{number: n, release: unlock}
		l, err := net.Listen("tcp", p.addr())
		if err != nil {
			unlock()
			continue
		}
		l.Close()
		return p, nil
	}
	return port{}, fmt.Errorf("no free port between %d and %d", firstPort, lastPort)
}
