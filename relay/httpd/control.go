package httpd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// ControlHeader has to be in a request that changes something. A page of another site cannot send it without asking first, which is never answered.
const ControlHeader = "Outbox-Relay-Control"

// controlTimeout is how long a request waits for what it asks for.
const controlTimeout = 3 * time.Second

// control does something with the relays that ?source= names, or all, at the same time. One line each tells what was reached.
func control(o Options, do func(Relay, context.Context) (string, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := local(r); err != nil {
			plain(w, http.StatusForbidden, err.Error())
			return
		}
		chosen, err := choose(o, r)
		if err != nil {
			plain(w, http.StatusNotFound, err.Error())
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), controlTimeout)
		defer cancel()
		lines, faults := make([]string, len(chosen)), make([]error, len(chosen))
		var wg sync.WaitGroup
		for i, one := range chosen {
			wg.Go(func() {
				if lines[i], faults[i] = do(one, ctx); faults[i] != nil {
					lines[i] = faults[i].Error()
				}
				if o.Name != "" {
					lines[i] = one.Status().Name + ": " + lines[i]
				}
			})
		}
		wg.Wait()
		code := http.StatusOK
		if errors.Join(faults...) != nil {
			code = http.StatusServiceUnavailable
		}
		plain(w, code, strings.Join(lines, "\n"))
	})
}

// local refuses a request that does not come from a program on this machine: from elsewhere, through a proxy, or from a browser, in which any site may
// speak to it.
func local(r *http.Request) error {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
		return fmt.Errorf("only a connection from the machine itself may do this, and this one comes from %s; call outbox-relay pause or resume there, with an http.address that can be reached at 127.0.0.1", r.RemoteAddr)
	}
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Real-Ip", "Via"} {
		if r.Header.Get(name) != "" {
			return fmt.Errorf("only a connection from the machine itself may do this, and this one comes through a proxy (%s)", name)
		}
	}
	for _, name := range []string{"Origin", "Sec-Fetch-Site"} {
		if r.Header.Get(name) != "" {
			return fmt.Errorf("a browser may not do this (%s); call outbox-relay pause or resume", name)
		}
	}
	if r.Header.Get(ControlHeader) == "" {
		return errors.New("the header " + ControlHeader + ": 1 is missing; outbox-relay pause and resume send it")
	}
	return nil
}
