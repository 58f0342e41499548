// Package httpd answers /metrics, /healthz, /readyz, /status and a page for people.
//
// It only shows a relay's state and never changes it.
package httpd

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"outbox-relay/relay"
)

// Options configure a Server.
type Options struct {
	Address  string // host:port; an empty host listens on all addresses
	Relay    interface{ Status() relay.Status }
	Gatherer prometheus.Gatherer
	Version  string
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
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if s := o.Relay.Status(); s.Ready {
			plain(w, http.StatusOK, string(s.Role))
		} else {
			plain(w, http.StatusServiceUnavailable, s.Reason)
		}
	})
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		_ = e.Encode(o.Relay.Status()) // the client is gone
	})
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { servePage(w, o.Relay.Status(), o.Version) })
	return mux
}

func plain(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	fmt.Fprintln(w, text)
}
