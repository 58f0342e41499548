package httpd

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"net/http"
	"time"

	"outbox-relay/relay"
)

//go:embed frame.html page.html list.html
var pages embed.FS

var (
	pageTemplate = template.Must(template.ParseFS(pages, "page.html", "frame.html"))
	listTemplate = template.Must(template.ParseFS(pages, "list.html", "frame.html"))
)

// list is what the template of several relays shows.
type list struct {
	relay.Overview
	Version  string
	Colour   string
	Headline string
}

func newList(v relay.Overview, version string) list {
	bad := 0
	for _, s := range v.Sources {
		if !s.Ready {
			bad++
		}
	}
	if bad > 0 {
		return list{v, version, "bad", fmt.Sprintf("%d of %d sources are not ready", bad, len(v.Sources))}
	}
	return list{v, version, "good", "Ready"}
}

// page is what the template shows.
type page struct {
	relay.Status
	Version    string
	Up         time.Duration
	Colour     string // good, idle or bad
	Headline   string
	Active     bool
	SourceText string
	Bytes      string
	Set        string
	Saved      string
}

// longestSet is how much of a GTID set the page shows.
const longestSet = 2000

func newPage(s relay.Status, version string, now time.Time) page {
	p := page{
		Status: s, Version: version, Up: now.Sub(s.StartedAt).Round(time.Second), Active: s.Role == relay.RoleActive,
		Bytes: size(s.Sink.InFlightBytes), Set: s.Checkpoint.GTIDSet,
	}
	switch {
	case s.Halted != "":
		p.Colour, p.Headline = "bad", "Halted until a person acts"
	case s.Cause == relay.CausePaused:
		p.Colour, p.Headline = "idle", "Paused"
	case !s.Ready:
		p.Colour, p.Headline = "bad", "Not ready"
	case p.Active:
		p.Colour, p.Headline = "good", "Ready"
	default:
		p.Colour, p.Headline = "idle", "Standing by"
	}
	if s.Cause == relay.CauseStarting {
		p.Colour = "idle"
	}
	switch src := s.Source; {
	case src.Searching:
		p.SourceText = "connected to " + src.Address + ", which looks for the position in its binlogs"
	case src.Connected:
		p.SourceText = "connected to " + src.Address + ", server " + src.ServerUUID
	default:
		p.SourceText = "not connected since " + src.Since.UTC().Format(time.RFC3339)
	}
	if len(p.Set) > longestSet {
		p.Set = p.Set[:longestSet] + "… (all of it in status)"
	}
	if at := s.Checkpoint.SavedAt; !at.IsZero() {
		p.Saved = max(now.Sub(at), 0).Round(100 * time.Millisecond).String()
	}
	return p
}

func servePage(w http.ResponseWriter, t *template.Template, data any) {
	var b bytes.Buffer
	if err := t.Execute(&b, data); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
	h.Set("Cache-Control", "no-store")
	_, _ = w.Write(b.Bytes()) // the client is gone
}

func size(n int64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}
