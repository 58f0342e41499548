package binlog

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"
)

// Tour goes through all servers that a list of addresses stands for, in order, again and again. A name is resolved once in each round, and each of its
// IP addresses is a server of its own. It is for one goroutine.
type Tour struct {
	login     Login
	addresses []string

	round  []Login // servers of the present round
	at     int     // how many of them were given out
	tried  int     // servers given out since the start
	rounds int     // that are over

	open, absent bool  // of the present round: a failure that time may heal, a server of several that is not there
	lasting      error // of the present round: the first failure that time cannot heal
}

// firstTimeout bounds a connect of the first round where there are several servers, and doubles with each round: one that is gone must not keep the
// next one waiting, and one that is only slow gets more time the next time.
const firstTimeout = 3 * time.Second

// NewTour makes a Tour. Address of the login is replaced.
func NewTour(login Login, addresses []string) *Tour {
	return &Tour{login: login, addresses: addresses}
}

// Next gives the login of the next server. It may ask for the addresses of names, for a second or two at most.
func (t *Tour) Next(ctx context.Context) Login {
	if t.at == len(t.round) {
		if t.at > 0 {
			t.rounds++
		}
		t.round, t.at = t.resolve(ctx), 0
		t.open, t.absent, t.lasting = false, false, nil
	}
	l := t.round[t.at]
	t.at++
	t.tried++
	if len(t.round) > 1 && l.Timeout == 0 {
		l.Timeout = min(firstTimeout<<min(t.rounds, 10), defaultConnectTimeout)
	}
	return l
}

// Fresh reports whether the next server is the first of a round, and how many rounds are over by then.
func (t *Tour) Fresh() (fresh bool, rounds int) {
	if t.at == len(t.round) && t.at > 0 {
		return true, t.rounds + 1
	}
	return t.at == 0, t.rounds
}

// Restart begins again with the first address.
func (t *Tour) Restart() {
	t.round, t.at, t.tried, t.rounds = nil, 0, 0, 0
}

// All reports whether every server was given out by now.
func (t *Tour) All() bool { return t.tried >= len(t.round) }

// Worked notes that the server that was given out last can be used.
func (t *Tour) Worked() { t.open = true }

// Failed notes why the server that was given out last cannot be used, and whether time can heal that. At the end of a round in which time can heal
// nothing it returns the first of the reasons, else nil.
func (t *Tour) Failed(err error, lasting bool) error {
	var c *ConnectError
	switch {
	case lasting && t.lasting == nil:
		t.lasting = err
	case lasting:
	case t.round[t.at-1].dialTo != "" && isAbsent(err):
		t.absent = true
	default:
		t.open = true
	}
	// A name often has an address that nothing listens at. It is no reason to try a wrong password for ever, but a server that is down may
	// have what another one has purged or lost.
	if t.at < len(t.round) || t.open || t.lasting == nil || t.absent && !errors.As(t.lasting, &c) {
		return nil
	}
	return t.lasting
}

// isAbsent reports whether nothing answers at an address.
func isAbsent(err error) bool {
	for _, code := range []error{syscall.ECONNREFUSED, syscall.ENETUNREACH, syscall.EHOSTUNREACH, syscall.EADDRNOTAVAIL} {
		if errors.Is(err, code) {
			return true
		}
	}
	return false
}

// resolveTimeout bounds the question for the addresses of a name.
const resolveTimeout = 2 * time.Second

// resolve gives the servers of a round. A name without an answer stays as it is, so that connecting tells what is wrong with it.
func (t *Tour) resolve(ctx context.Context) []Login {
	lookup := t.login.Lookup
	if lookup == nil && t.login.Dial == nil {
		lookup = net.DefaultResolver.LookupHost
	}
	if t.login.dialTo != "" { // the very server of another connection
		return []Login{t.login}
	}
	var logins []Login
	for _, address := range t.addresses {
		l := t.login
		l.Address = address
		logins = append(logins, l)
		host, port, err := net.SplitHostPort(address)
		if err != nil || network(address) == "unix" || lookup == nil || net.ParseIP(host) != nil {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, resolveTimeout)
		ips, err := lookup(limited, host)
		cancel()
		if err != nil || len(ips) < 2 {
			continue
		}
		logins = logins[:len(logins)-1]
		for _, ip := range ips {
			l.dialTo = net.JoinHostPort(ip, port)
			logins = append(logins, l)
		}
	}
	return logins
}
