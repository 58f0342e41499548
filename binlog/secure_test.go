package binlog_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"outbox-relay/binlog"
	"outbox-relay/internal/sandbox"
)

// secured is a server with a certificate of an authority of the test.
type secured struct {
	*sandbox.MySQL
	ca, other *sandbox.Authority
	own       sandbox.Certificate
}

func runSecured(t *testing.T) *secured {
	t.Helper()
	s := &secured{ca: sandbox.NewAuthority(t, "ours"), other: sandbox.NewAuthority(t, "theirs")}
	server := s.ca.Issue(sandbox.CertificateOptions{Name: "mysql"})
	s.own = s.ca.Issue(sandbox.CertificateOptions{Name: "relay"})
	s.MySQL = sandbox.RunMySQL(t, sandbox.MySQLOptions{Certificate: &server, ClientCA: s.ca.CAFile()})
	return s
}

// present makes the server show another certificate from now on.
func (s *secured) present(t *testing.T, c sandbox.Certificate, ca string) {
	t.Helper()
	err := s.Exec(context.Background(), fmt.Sprintf("SET GLOBAL ssl_cert = '%s'", c.CertFile), fmt.Sprintf("SET GLOBAL ssl_key = '%s'", c.KeyFile),
		fmt.Sprintf("SET GLOBAL ssl_ca = '%s'", ca), "ALTER INSTANCE RELOAD TLS")
	if err != nil {
		t.Fatal(err)
	}
}

// trusting verifies chain and name, and shows a certificate if there is one.
func trusting(ca *sandbox.Authority, own *sandbox.Certificate) func(string) (*tls.Config, error) {
	return func(host string) (*tls.Config, error) {
		c := ca.ClientConfig()
		c.ServerName = host
		if own != nil {
			pair, err := tls.LoadX509KeyPair(own.CertFile, own.KeyFile)
			if err != nil {
				return nil, err
			}
			c.Certificates = []tls.Certificate{pair}
		}
		return c, nil
	}
}

func unverified(string) (*tls.Config, error) {
	return &tls.Config{InsecureSkipVerify: true}, nil //nolint:gosec // the mode required
}

// S11: each way in works against a real server, and each wrong one is told in one sentence with what to do.
func TestWaysIntoARealServer(t *testing.T) {
	t.Parallel()
	s := runSecured(t)
	if err := s.Exec(t.Context(), "CREATE USER anyhow@'%' IDENTIFIED BY 'right'", "CREATE USER tls@'%' IDENTIFIED BY 'right' REQUIRE SSL", "CREATE USER x509@'%' IDENTIFIED BY 'right' REQUIRE X509",
		"CREATE USER subject@'%' IDENTIFIED BY 'right' REQUIRE SUBJECT '/CN=relay'"); err != nil {
		t.Fatal(err)
	}
	good := s.ca.Issue(sandbox.CertificateOptions{Name: "mysql"})
	elsewhere := s.ca.Issue(sandbox.CertificateOptions{Name: "mysql", Hosts: []string{"db.example"}})
	end := time.Now().Add(5 * time.Second)
	expired := s.ca.Issue(sandbox.CertificateOptions{Name: "mysql", Until: end})
	foreign := s.other.Issue(sandbox.CertificateOptions{Name: "relay"})
	at := "MySQL at " + s.Addr() + " "
	mine := trusting(s.ca, nil)
	broken := func(context.Context) (string, error) {
		return "", errors.New("the password from password_command vault is empty")
	}
	for _, c := range []struct {
		name     string
		shown    *sandbox.Certificate // nil = good
		expired  bool                 // it is shown already
		secure   bool                 // require_secure_transport
		user     string
		tls      func(string) (*tls.Config, error)
		optional bool
		password func(context.Context) (string, error)
		want     string // empty: it connects
		lasting  bool
	}{
		{name: "a certificate about to expire", user: "tls", tls: mine, shown: &expired},
		{name: "expired and not looked at", user: "tls", tls: unverified, shown: &expired, expired: true},
		{name: "expired certificate", expired: true, user: "tls", tls: mine, shown: &expired, lasting: true,
			want: "the certificate of " + at + "has expired at TIME; have the server's certificate renewed, or correct the clock of this host"},

		{name: "plain text, with the server's key for the password", user: "anyhow"},
		{name: "preferred", user: "anyhow", tls: unverified, optional: true},
		{name: "required", user: "tls", tls: unverified},
		{name: "verified", user: "tls", tls: mine},
		{name: "verified where nothing else is let in", user: "anyhow", tls: mine, secure: true},
		{name: "preferred where nothing else is let in", user: "anyhow", tls: unverified, optional: true, secure: true},
		{name: "certificate", user: "x509", tls: trusting(s.ca, &s.own)},
		{name: "certificate of a name", user: "subject", tls: trusting(s.ca, &s.own)},

		{name: "plain text where TLS is demanded", user: "anyhow", secure: true, lasting: true,
			want: at + "accepts encrypted connections only; set source.tls.mode to required or stricter"},
		{name: "plain text for an account with TLS", user: "tls", lasting: true,
			want: at + `refuses user "tls": Access denied for user 'tls'@'localhost' (using password: YES); check source.user and source.password, and whether the account demands TLS (REQUIRE SSL), which source.tls.mode leaves out`},
		{name: "no certificate for an account with one", user: "x509", tls: mine, lasting: true,
			want: at + `refuses user "x509": Access denied for user 'x509'@'localhost' (using password: YES); check source.user and source.password, and whether the account demands a certificate (REQUIRE X509), which source.tls.cert and source.tls.key give`},
		{name: "a certificate that the server does not trust", user: "x509", tls: trusting(s.ca, &foreign), lasting: true,
			want: at + "refuses the client's certificate (ALERT); check that the authority which signed source.tls.cert is among those that the server trusts, and that it is for clients and has not expired"},
		{name: "unknown authority", user: "tls", tls: trusting(s.other, nil), lasting: true,
			want: "the certificate of " + at + "is signed by an authority that is not trusted (CN=ours); set source.tls.ca to the PEM file of the authority that signed it"},
		{name: "wrong host name", user: "tls", tls: mine, shown: &elsewhere, lasting: true,
			want: "the certificate of " + at + "is not for the host 127.0.0.1 but for db.example; use a name of the certificate in source.address, have the certificate issued for this host, or set source.tls.mode to verify-ca, which does not look at names"},
		{name: "wrong password", user: "anyhow", tls: mine, password: func(context.Context) (string, error) { return "wrong", nil }, lasting: true,
			want: at + `refuses user "anyhow": Access denied for user 'anyhow'@'localhost' (using password: YES); check source.user and source.password, and whether the account demands a certificate (REQUIRE X509), which source.tls.cert and source.tls.key give`},
		{name: "a password that cannot be had", user: "anyhow", tls: mine, password: broken,
			want: "connecting to " + strings.TrimSuffix(at, " ") + ": the password cannot be read: the password from password_command vault is empty; check source.password_file and source.password_command"},
		{name: "a file that cannot be read", user: "anyhow", tls: func(string) (*tls.Config, error) {
			return nil, errors.New("reading the CA file: open /no/such/file: no such file or directory")
		},
			want: "connecting to " + strings.TrimSuffix(at, " ") + ": a TLS file cannot be read: reading the CA file: open /no/such/file: no such file or directory; check source.tls"},
	} {
		t.Run(c.name, func(t *testing.T) {
			shown := c.shown
			if shown == nil {
				shown = &good
			}
			if c.expired {
				time.Sleep(time.Until(end.Truncate(time.Second).Add(2 * time.Second))) // the certificate counts in seconds
			} else {
				s.present(t, *shown, s.ca.CAFile())
			}
			if err := s.Exec(context.Background(), fmt.Sprintf("SET GLOBAL require_secure_transport = %t", c.secure)); err != nil {
				t.Fatal(err)
			}
			l := binlog.Login{Address: s.Addr(), User: c.user, TLS: c.tls, TLSOptional: c.optional, Program: "test", Timeout: time.Minute, Password: c.password}
			if l.Password == nil {
				l.Password = func(context.Context) (string, error) { return "right", nil }
			}
			conn, err := binlog.Dial(t.Context(), l)
			// What the server says of a certificate is lost at times, when it closes the connection before what this end sent has arrived. The next attempt tells.
			for i := 0; i < 20 && err != nil && c.lasting && strings.Contains(err.Error(), "ends the connection during the login"); i++ {
				conn, err = binlog.Dial(t.Context(), l)
			}
			if c.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				r, err := conn.Execute("SELECT VARIABLE_VALUE FROM performance_schema.session_status WHERE VARIABLE_NAME = 'Ssl_version'")
				if err != nil {
					t.Fatal(err)
				}
				if v, _ := r.GetString(0, 0); (v != "") != (c.tls != nil) {
					t.Errorf("TLS version %q", v)
				}
				return
			}
			if err == nil {
				conn.Close()
				t.Fatal("it connects")
			}
			var fault *binlog.ConnectError
			if !errors.As(err, &fault) || fault.Lasting() != c.lasting {
				t.Errorf("lasting is not %v: %v", c.lasting, err)
			}
			before, after, _ := strings.Cut(strings.NewReplacer("TIME", "\x00", "ALERT", "\x00").Replace(c.want), "\x00")
			if text := err.Error(); !strings.HasPrefix(text, before) || !strings.HasSuffix(text, after) || after == "" && text != before {
				t.Errorf("it says\n%s\nand not\n%s", text, c.want)
			}
		})
	}
}

// The server gets a certificate of a new authority, and the files of the reader follow later: it waits and goes on, nothing is lost.
func TestCertificatesAreRenewedWhileTheReaderRuns(t *testing.T) {
	t.Parallel()
	s := runSecured(t)
	if err := s.Exec(t.Context(), "ALTER USER relay@'%' REQUIRE X509"); err != nil {
		t.Fatal(err)
	}
	var settings atomic.Value
	settings.Store(trusting(s.ca, &s.own))
	b := newBench(t, s.MySQL, func(o *binlog.Options) {
		o.Login.TLS = func(host string) (*tls.Config, error) {
			return settings.Load().(func(string) (*tls.Config, error))(host)
		}
	})
	b.exec("INSERT INTO o (payload) VALUES ('a')")
	b.rows(1)
	s.present(t, s.other.Issue(sandbox.CertificateOptions{Name: "mysql"}), s.other.CAFile())
	var id int
	if err := b.db.QueryRow("SELECT id FROM performance_schema.processlist WHERE command = 'Binlog Dump GTID'").Scan(&id); err != nil {
		t.Fatal(err)
	}
	b.exec(fmt.Sprintf("KILL %d", id))
	b.exec("INSERT INTO o (payload) VALUES ('b')")
	ended := make(chan []string, 1)
	go func() { ended <- b.rows(1) }()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		err := b.reader.Status().LastError
		if err != nil && strings.Contains(err.Error(), "is signed by an authority that is not trusted (CN=theirs)") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the last error is %v", err)
		}
	}
	own := s.other.Issue(sandbox.CertificateOptions{Name: "relay"})
	settings.Store(trusting(s.other, &own))
	if got := <-ended; len(got) != 1 || !strings.Contains(got[0], "b") {
		t.Errorf("got %q", got)
	}
}

// Each plugin for passwords, with TLS and without, where the password crosses the wire encrypted with the server's key.
func TestPluginsForPasswords(t *testing.T) {
	t.Parallel()
	m := sandbox.RunMySQL(t, sandbox.MySQLOptions{Version: "8.0"})
	for _, plugin := range []string{"mysql_native_password", "sha256_password", "caching_sha2_password"} {
		if err := m.Exec(t.Context(), "CREATE USER "+plugin+"@'%' IDENTIFIED WITH "+plugin+" BY 'right'"); err != nil {
			t.Fatal(err)
		}
		for name, secure := range map[string]func(string) (*tls.Config, error){"plain": nil, "TLS": unverified} {
			for _, again := range []bool{false, true} { // the second time the server has the password in its cache
				conn, err := binlog.Dial(t.Context(), binlog.Login{Address: m.Addr(), User: plugin, TLS: secure, Password: func(context.Context) (string, error) { return "right", nil }, Timeout: time.Minute})
				if err != nil {
					t.Errorf("%s, %s, again %v: %v", plugin, name, again, err)
					continue
				}
				conn.Close()
			}
			if err := m.Exec(t.Context(), "FLUSH PRIVILEGES"); err != nil { // empties the cache of caching_sha2_password
				t.Fatal(err)
			}
		}
	}
}

// Servers that want passwords in ways the relay does not take.
func TestPluginsThatAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		greeting, change string // the plugins of the greeting and of the server's wish to change it
		want             string
	}{
		{"authentication_ldap_sasl_client", "", `wants the password of user "relay" by the plugin authentication_ldap_sasl_client, which the relay does not speak; make an account for it with CREATE USER ... IDENTIFIED WITH caching_sha2_password`},
		{"caching_sha2_password", "authentication_kerberos_client", `wants the password of user "relay" by the plugin authentication_kerberos_client, which the relay does not speak; make`},
		{"caching_sha2_password", "mysql_clear_password", `asks for the password of user "relay" in clear text, on a connection without TLS; set source.tls.mode to verify-identity, or make the account with caching_sha2_password`},
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		heard := make(chan string, 1)
		go func() { // ends with the connection
			conn, err := l.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			write := func(seq byte, payload string) {
				_, _ = conn.Write(append([]byte{byte(len(payload)), byte(len(payload) >> 8), 0, seq}, payload...))
			}
			// Handshake version 10: capabilities PROTOCOL_41, SECURE_CONNECTION, PLUGIN_AUTH and CONNECT_ATTRS; a scramble of 8 and 12 bytes.
			write(0, "\x0a8.4.0\x00\x01\x00\x00\x00abcdefgh\x00\x00\x82\xff\x02\x00\x18\x00\x15"+strings.Repeat("\x00", 10)+"ijklmnopqrst\x00"+c.greeting+"\x00")
			buf := make([]byte, 4096)
			n, _ := conn.Read(buf)
			all := string(buf[:n])
			if c.change != "" && n > 0 {
				write(2, "\xfe"+c.change+"\x00abcdefghijklmnopqrst\x00")
				for n > 0 {
					n, _ = conn.Read(buf)
					all += string(buf[:n])
				}
			}
			heard <- all
		}()
		_, err = binlog.Dial(t.Context(), binlog.Login{Address: l.Addr().String(), User: "relay", Password: func(context.Context) (string, error) { return "s3cret", nil }, Timeout: time.Minute})
		l.Close()
		var fault *binlog.ConnectError
		if !errors.As(err, &fault) || !fault.Lasting() || !strings.Contains(err.Error(), "MySQL at "+l.Addr().String()+" "+c.want) {
			t.Errorf("%s, %s: got %v", c.greeting, c.change, err)
		}
		if all := <-heard; strings.Contains(all, "s3cret") {
			t.Errorf("%s, %s: the password was sent: %q", c.greeting, c.change, all)
		}
	}
}

// Two names stand for one server, whose certificate has the second one alone. That name has two addresses, and the certificate is judged by the name.
func TestTheNameOfTheCertificateIsFoundAmongSeveral(t *testing.T) {
	t.Parallel()
	ca := sandbox.NewAuthority(t, "ours")
	own := ca.Issue(sandbox.CertificateOptions{Name: "mysql", Hosts: []string{"green.example"}})
	m := sandbox.RunMySQL(t, sandbox.MySQLOptions{Certificate: &own, ClientCA: ca.CAFile()})
	dns := &names{}
	dns.set(map[string]string{"10.0.0.2:3306": m.Addr(), "10.0.0.3:3306": m.Addr()}, "10.0.0.1", "10.0.0.2")
	b := newBench(t, m, func(o *binlog.Options) {
		o.Addresses = []string{"blue.example:3306", "green.example:3306"}
		o.Login.TLS = trusting(ca, nil)
		dns.use(&o.Login)
	})
	b.exec("INSERT INTO o(aggregate_id) VALUES ('green')")
	equal(t, b.rows(1), "1 green NULL")
	if s := b.reader.Status(); s.Address != "green.example:3306 (10.0.0.2:3306)" {
		t.Errorf("reads from %s", s.Address)
	}
}
