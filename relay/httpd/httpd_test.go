package httpd_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"outbox-relay/relay"
	"outbox-relay/relay/httpd"
)

type fixed relay.Status

func (f fixed) Status() relay.Status                   { return relay.Status(f) }
func (fixed) Pause(context.Context) (string, error)    { return "paused", nil }
func (f fixed) Resume(context.Context) (string, error) { return "", errors.New("the disk is full") }

// start serves the status and gives the base URL.
func start(t *testing.T, s relay.Status) string {
	t.Helper()
	server, err := httpd.Listen(httpd.Options{Address: "127.0.0.1:0", Relays: []httpd.Relay{fixed(s)}, Gatherer: prometheus.NewRegistry(), Version: "v1.2.3"})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve() }()
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != http.ErrServerClosed {
			t.Errorf("Serve returned %v", err)
		}
	})
	return "http://" + server.Addr()
}

func ask(t *testing.T, method, url string) (*http.Response, string) {
	t.Helper()
	request, err := http.NewRequest(method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(body)
}

var active = relay.Status{
	Name: "orders", Instance: "host/1", Role: relay.RoleActive, Ready: true, StartedAt: time.Now().Add(-time.Minute), LagSeconds: 1.25, CaughtUp: true,
	Source:     relay.SourceStatus{Connected: true, Address: "db1:3306", ServerUUID: "11111111-1111-1111-1111-111111111111"},
	Sink:       relay.SinkStatus{InFlightRecords: 17, InFlightBytes: 5000, InFlightTransactions: 3},
	Checkpoint: relay.CheckpointStatus{GTIDSet: "11111111-1111-1111-1111-111111111111:1-99", BinlogFile: "binlog.000007", Position: 4711, SavedAt: time.Now()},
}

func notReady() relay.Status {
	s := active
	s.Ready, s.Cause, s.Reason = false, relay.CauseTopic, "topic <orders> does not exist"
	s.Sink.Stalled = []string{"topic <orders> does not exist"}
	return s
}

func TestReadyzTellsTheRoleOrTheReason(t *testing.T) {
	t.Parallel()
	standby := relay.Status{Name: "orders", Role: relay.RoleStandby, Ready: true}
	for _, c := range []struct {
		status relay.Status
		code   int
		body   string
	}{
		{active, 200, "active\n"},
		{standby, 200, "standby\n"},
		{notReady(), 503, "topic <orders> does not exist\n"},
	} {
		response, body := ask(t, http.MethodGet, start(t, c.status)+"/readyz")
		if response.StatusCode != c.code || body != c.body {
			t.Errorf("got %d %q, want %d %q", response.StatusCode, body, c.code, c.body)
		}
	}
}

func TestHeadHasTheStatusOfGetAndNoBody(t *testing.T) {
	t.Parallel()
	url := start(t, notReady())
	for path, code := range map[string]int{"/": 200, "/healthz": 200, "/readyz": 503, "/status": 200, "/metrics": 200, "/nowhere": 404} {
		response, body := ask(t, http.MethodHead, url+path)
		get, _ := ask(t, http.MethodGet, url+path)
		if response.StatusCode != code || get.StatusCode != code || body != "" {
			t.Errorf("%s: HEAD %d, GET %d, want %d; body %q", path, response.StatusCode, get.StatusCode, code, body)
		}
		if h, g := response.Header.Get("Content-Type"), get.Header.Get("Content-Type"); h != g {
			t.Errorf("%s: HEAD says %q, GET %q", path, h, g)
		}
	}
	if response, _ := ask(t, http.MethodPost, url+"/readyz"); response.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST gives %d", response.StatusCode)
	}
}

func TestStatusIsTheWholeState(t *testing.T) {
	t.Parallel()
	_, body := ask(t, http.MethodGet, start(t, notReady())+"/status")
	var got relay.Status
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	if got.Name != "orders" || got.Cause != relay.CauseTopic || got.Checkpoint.GTIDSet != active.Checkpoint.GTIDSet || got.Sink.InFlightRecords != 17 {
		t.Errorf("got %+v", got)
	}
}

func TestThePageShowsWhatPeopleLookFor(t *testing.T) {
	t.Parallel()
	response, body := ask(t, http.MethodGet, start(t, active)+"/")
	for _, want := range []string{"orders", "v1.2.3", "Ready", "1.2 s", "all read, not all acknowledged", "db1:3306", "17 records, 4.9 KiB, 3 transactions", ":1-99", "binlog.000007:4711", `href="status"`, `href="metrics"`} {
		if !strings.Contains(body, want) {
			t.Errorf("%q is missing", want)
		}
	}
	if policy := response.Header.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") {
		t.Errorf("policy %q", policy)
	}
	if strings.Contains(body, "http://") || strings.Contains(body, "https://") {
		t.Error("the page is not self-contained")
	}

	_, body = ask(t, http.MethodGet, start(t, notReady())+"/")
	for _, want := range []string{"Not ready", "topic &lt;orders&gt; does not exist"} {
		if !strings.Contains(body, want) {
			t.Errorf("not ready: %q is missing", want)
		}
	}
	halted := active
	halted.Ready, halted.Cause, halted.Halted, halted.Reason = false, relay.CauseHalted, "halted at transaction x", "halted at transaction x"
	if _, body = ask(t, http.MethodGet, start(t, halted)+"/"); !strings.Contains(body, "Halted until a person acts") {
		t.Error("a halt is not shown")
	}
	_, body = ask(t, http.MethodGet, start(t, relay.Status{Name: "orders", Role: relay.RoleStandby, Ready: true})+"/")
	if !strings.Contains(body, "Standing by") || strings.Contains(body, "Checkpoint") {
		t.Error("a standby shows what it does not have")
	}
}

func TestAPortInUseIsNamed(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = httpd.Listen(httpd.Options{Address: l.Addr().String()})
	if err == nil || !strings.Contains(err.Error(), l.Addr().String()+" is in use") || !strings.Contains(err.Error(), "set http.address") {
		t.Errorf("got %v", err)
	}
}

func TestOnlyProgramsOnThisMachineMayPause(t *testing.T) {
	t.Parallel()
	url := start(t, active)
	post := func(path string, headers ...string) (int, string) {
		t.Helper()
		request, err := http.NewRequest(http.MethodPost, url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(headers); i += 2 {
			request.Header.Set(headers[i], headers[i+1])
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		return response.StatusCode, string(body)
	}
	for _, c := range []struct {
		path    string
		headers []string
		code    int
		body    string
	}{
		{"/pause", []string{httpd.ControlHeader, "1"}, 200, "paused\n"},
		{"/resume", []string{httpd.ControlHeader, "1"}, 503, "the disk is full\n"},
		{"/pause", nil, 403, "the header Outbox-Relay-Control: 1 is missing"},
		{"/pause", []string{httpd.ControlHeader, "1", "Origin", "http://localhost:9733"}, 403, "a browser may not do this (Origin)"},
		{"/pause", []string{httpd.ControlHeader, "1", "Sec-Fetch-Site", "cross-site"}, 403, "a browser may not do this"},
		{"/pause", []string{httpd.ControlHeader, "1", "X-Forwarded-For", "10.0.0.7"}, 403, "through a proxy (X-Forwarded-For)"},
		{"/pause?source=other", []string{httpd.ControlHeader, "1"}, 404, `no source is called "other"; there are orders`},
		{"/pause?source=orders", []string{httpd.ControlHeader, "1"}, 200, "paused\n"},
	} {
		if code, body := post(c.path, c.headers...); code != c.code || !strings.Contains(body, c.body) {
			t.Errorf("%s %q: got %d %q, want %d %q", c.path, c.headers, code, body, c.code, c.body)
		}
	}
	if response, _ := ask(t, http.MethodGet, url+"/pause"); response.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("GET gives %d", response.StatusCode)
	}
}

// A connection from elsewhere needs an address of this machine that is not its own; without one the judgement itself is asked.
func TestAConnectionFromElsewhereMayNotPause(t *testing.T) {
	t.Parallel()
	for from, ok := range map[string]bool{"127.0.0.1:5": true, "[::1]:5": true, "10.0.0.1:5": false, "[fe80::1%eth0]:5": false, "": false} {
		request, err := http.NewRequest(http.MethodPost, "http://localhost/pause", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.RemoteAddr = from
		request.Header.Set(httpd.ControlHeader, "1")
		if err := httpd.Local(request); (err == nil) != ok {
			t.Errorf("from %q: %v", from, err)
		}
	}
}

func TestSeveralRelaysAreAList(t *testing.T) {
	t.Parallel()
	one, two := active, notReady()
	one.Name, two.Name = "orders-a", "orders-b"
	server, err := httpd.Listen(httpd.Options{Address: "127.0.0.1:0", Name: "orders", Relays: []httpd.Relay{fixed(one), fixed(two)}, Gatherer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve() }() // ends with Close
	t.Cleanup(func() { server.Close() })
	url := "http://" + server.Addr()
	response, body := ask(t, http.MethodGet, url+"/readyz")
	if want := "orders-a active\norders-b not ready: topic <orders> does not exist\n"; response.StatusCode != http.StatusServiceUnavailable || body != want {
		t.Errorf("got %d %q, want 503 %q", response.StatusCode, body, want)
	}
	_, body = ask(t, http.MethodGet, url+"/status")
	var v relay.Overview
	if err := json.Unmarshal([]byte(body), &v); err != nil || v.Name != "orders" || v.Ready || len(v.Sources) != 2 || v.Sources[1].Name != "orders-b" {
		t.Errorf("got %+v, %v", v, err)
	}
	_, body = ask(t, http.MethodGet, url+"/")
	for _, want := range []string{"1 of 2 sources are not ready", `href="?source=orders-a"`, "topic &lt;orders&gt; does not exist"} {
		if !strings.Contains(body, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if _, body = ask(t, http.MethodGet, url+"/?source=b"); !strings.Contains(body, "Not ready") || !strings.Contains(body, "<h1>orders-b</h1>") {
		t.Error("the page of one relay is not that")
	}
	for path, want := range map[string]string{"/pause?source=b": "orders-b: paused\n", "/pause": "orders-a: paused\norders-b: paused\n"} {
		request, err := http.NewRequest(http.MethodPost, url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set(httpd.ControlHeader, "1")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if response.StatusCode != http.StatusOK || string(text) != want {
			t.Errorf("%s: got %d %q, want %q", path, response.StatusCode, text, want)
		}
	}
}
