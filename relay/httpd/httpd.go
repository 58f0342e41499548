// Package httpd answers /metrics, /healthz, /readyz, /status and a page for people, and takes /pause and /resume.
//
// It shows the state of one relay or of several. It changes nothing but whether they are paused, and that only for programs on the same machine.
package httpd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"outbox-relay/relay"
)

// Options configure a Server.
type Options struct {
	Address string // host:port; an empty host listens on all addresses
	// Name is that of a process with several relays: its answers are lists. Empty for one with one relay.
	Name     string
	Relays   []Relay
	Gatherer prometheus.Gatherer
	Version  string
}

// Relay is what a Server shows. *relay.Relay is one.
type Relay interface {
	Status() relay.Status
	Pause(ctx context.Context) (string, error)
	Resume(ctx context.Context) (string, error)
}

// Server is a listening HTTP server.
type Server struct {
	http     http.Server
	listener net.Listener
}

// Listen takes the address. The error is a sentence for people.
func Listen(o Options) (*Server, error) {
	l, err := net.Listen("tcp", o.Address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("http.address %s is in use by another program; stop it or set http.address to a free port", o.Address)
	}
	if err != nil {
		return nil, fmt.Errorf("http.address %s cannot be listened on: %w", o.Address, err)
	}
	s := &Server{listener: l}
	s.http.Handler = handler(o)
	s.http.ReadHeaderTimeout = 10 * time.Second
	return s, nil
}

// Addr is the address listened on.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Serve answers requests until Close.
func (s *Server) Serve() error { return s.http.Serve(s.listener) }

// Close ends the server at once.
func (s *Server) Close() error { return s.http.Close() }

// handler answers GET and HEAD; a HEAD gets the headers and status of its GET.
func handler(o Options) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(o.Gatherer, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { plain(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { serveReady(w, o) })
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		if o.Name == "" {
			_ = e.Encode(o.Relays[0].Status()) // the client is gone
		} else {
			_ = e.Encode(overview(o))
		}
	})
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		switch chosen, err := choose(o, r); {
		case err != nil:
			plain(w, http.StatusNotFound, err.Error())
		case len(chosen) == 1:
			servePage(w, pageTemplate, newPage(chosen[0].Status(), o.Version, time.Now()))
		default:
			servePage(w, listTemplate, newList(overview(o), o.Version))
		}
	})
	mux.Handle("POST /pause", control(o, Relay.Pause))
	mux.Handle("POST /resume", control(o, Relay.Resume))
	return mux
}

// overview is the state of all relays of a process with several.
func overview(o Options) relay.Overview {
	v := relay.Overview{Name: o.Name, Ready: true}
	for _, r := range o.Relays {
		s := r.Status()
		v.Sources = append(v.Sources, s)
		v.Ready = v.Ready && s.Ready
	}
	return v
}

// serveReady gives the role or the reason; of several relays one line each, and 200 only when all are ready.
func serveReady(w http.ResponseWriter, o Options) {
	v := overview(o)
	var lines []string
	for _, s := range v.Sources {
		line := s.Reason
		if s.Ready {
			line = string(s.Role)
		} else if o.Name != "" {
			line = "not ready: " + line
		}
		if o.Name != "" {
			line = s.Name + " " + line
		}
		lines = append(lines, line)
	}
	code := http.StatusOK
	if !v.Ready {
		code = http.StatusServiceUnavailable
	}
	plain(w, code, strings.Join(lines, "\n"))
}

// choose gives the relay that ?source= names, or all.
func choose(o Options, r *http.Request) ([]Relay, error) {
	name := r.URL.Query().Get("source")
	if name == "" {
		return o.Relays, nil
	}
	var names []string
	for _, one := range o.Relays {
		s := one.Status()
		if s.Name == name || o.Name != "" && s.Name == o.Name+"-"+name {
			return []Relay{one}, nil
		}
		names = append(names, s.Name)
	}
	return nil, fmt.Errorf("no source is called %q; there are %s", name, strings.Join(names, ", "))
}

func plain(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	fmt.Fprintln(w, text)
}
