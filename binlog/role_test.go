package binlog_test

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"outbox-relay/binlog"
	"outbox-relay/binlog/gtid"
	"outbox-relay/internal/sandbox"
)

// names is a resolver and a network in which addresses stand for servers.
type names struct {
	mu      sync.Mutex
	ips     []string
	servers map[string]string // host:port that is dialled, to the server's own; others refuse
}

func (n *names) set(servers map[string]string, ips ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ips, n.servers = ips, servers
}

func (n *names) use(l *binlog.Login) {
	l.Lookup = func(context.Context, string) ([]string, error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		return slices.Clone(n.ips), nil
	}
	l.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		n.mu.Lock()
		to, ok := n.servers[address]
		n.mu.Unlock()
		if !ok {
			to = "127.0.0.1:1" // nothing listens there
		}
		return new(net.Dialer).DialContext(ctx, network, to)
	}
}

// pair is a server and a replica of it.
func pair(t *testing.T) (source, replica *sandbox.MySQL) {
	t.Helper()
	source, replica = sandbox.RunMySQL(t, sandbox.MySQLOptions{}), sandbox.RunMySQL(t, sandbox.MySQLOptions{})
	if err := replica.CloneFrom(t.Context(), source); err != nil {
		t.Fatal(err)
	}
	if err := replica.Follow(t.Context(), source); err != nil {
		t.Fatal(err)
	}
	return source, replica
}

// A name with three addresses: one that nothing listens at, a replica, and the primary. Then the roles change, and then the name's answer.
func TestOfAllAddressesOfANameOnlyThePrimaryIsRead(t *testing.T) {
	t.Parallel()
	source, replica := pair(t)
	dns := &names{}
	dns.set(map[string]string{"10.0.0.2:3306": replica.Addr(), "10.0.0.3:3306": source.Addr()}, "10.0.0.1", "10.0.0.2", "10.0.0.3")
	b := newBench(t, source, func(o *binlog.Options) {
		o.Addresses, o.Primary = []string{"db.example:3306"}, true
		dns.use(&o.Login)
	})
	b.exec("INSERT INTO o(aggregate_id) VALUES ('first')")
	equal(t, b.rows(1), "1 first NULL")
	at := func(part string) {
		t.Helper()
		if s := b.reader.Status(); !strings.Contains(s.Address, part) {
			t.Errorf("reads from %q, want %q", s.Address, part)
		}
	}
	at("10.0.0.3")

	if err := source.Exec(b.ctx, "SET GLOBAL super_read_only = ON"); err != nil {
		t.Fatal(err)
	}
	waitForSet(t, replica, b.executed())
	if err := replica.Promote(b.ctx); err != nil {
		t.Fatal(err)
	}
	onServer(t, replica, "USE "+b.name, "INSERT INTO o(aggregate_id) VALUES ('second')")
	equal(t, b.rows(1), "2 second NULL")
	at("10.0.0.2")

	// Blue and green: the name stands for one other server.
	if err := source.Follow(b.ctx, replica); err != nil {
		t.Fatal(err)
	}
	waitForSet(t, source, executedOn(t, replica))
	dns.set(map[string]string{"db.example:3306": source.Addr()}, "10.0.0.9")
	if err := replica.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := source.Promote(b.ctx); err != nil {
		t.Fatal(err)
	}
	b.exec("INSERT INTO o(aggregate_id) VALUES ('third')")
	equal(t, b.rows(1), "3 third NULL")
}

func executedOn(t *testing.T, m *sandbox.MySQL) *gtid.Set {
	t.Helper()
	set, err := gtid.ParseSet(text(t, m, "SELECT @@global.gtid_executed"))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// The password is wrong at the one address that answers: a relay that starts says so instead of trying for ever.
func TestAWrongPasswordIsToldThoughAnAddressOfTheNameIsDown(t *testing.T) {
	t.Parallel()
	m := sandbox.SharedMySQL(t)
	dns := &names{}
	dns.set(map[string]string{"10.0.0.2:3306": m.Addr()}, "10.0.0.1", "10.0.0.2")
	b := newBench(t, m, func(o *binlog.Options) {
		o.Addresses = []string{"db.example:3306"}
		o.Login.Password = func(context.Context) (string, error) { return "wrong", nil }
		dns.use(&o.Login)
	})
	if err := <-next(b.ctx, b.reader); err == nil || !strings.Contains(err.Error(), "refuses user") || !strings.Contains(err.Error(), "10.0.0.2") {
		t.Errorf("got %v", err)
	}
}

func TestAnIPv6AddressIsRead(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skip("this machine has no IPv6")
	}
	l.Close()
	m := sandbox.RunMySQL(t, sandbox.MySQLOptions{Args: []string{"--bind-address=127.0.0.1,::1"}})
	_, port, err := net.SplitHostPort(m.Addr())
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t, m, func(o *binlog.Options) { o.Addresses = []string{"[::1]:" + port} })
	b.exec("INSERT INTO o(aggregate_id) VALUES ('six')")
	equal(t, b.rows(1), "1 six NULL")
}

// The first address names a server that cannot be read at all, the second one that can.
func TestAFirstStartTriesEachServer(t *testing.T) {
	t.Parallel()
	off, m := sandbox.RunMySQL(t, sandbox.MySQLOptions{Args: []string{"--gtid-mode=OFF"}}), sandbox.SharedMySQL(t)
	o := binlog.StartOptions{
		Name: t.Name(), Addresses: []string{off.Addr(), m.Addr()}, Start: "earliest",
		Login: binlog.Login{User: "relay", Password: func(context.Context) (string, error) { return "relay", nil }},
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := binlog.FirstPosition(ctx, o); err != nil {
		t.Errorf("with a server that can be read: %v", err)
	}
	o.Addresses = o.Addresses[:1]
	_, err := binlog.FirstPosition(ctx, o)
	wantReason(t, err, binlog.ReasonGTIDMode, "gtid_mode=OFF")
}
