package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"outbox-relay/internal/sandbox"
)

// marker is part of every secret of these tests, and of nothing else.
const marker = "xSECRETx"

// silent fails the test if the marker is in a text.
func silent(t *testing.T, what, text string) {
	t.Helper()
	if at := strings.Index(text, marker); at >= 0 {
		t.Errorf("%s shows a secret: ...%s...", what, text[max(0, at-200):min(len(text), at+100)])
	}
}

// quiet runs a command to its end and looks for the marker in all it says. It has to say something.
func (s *site) quiet(env []string, args ...string) {
	s.t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Dir, cmd.Env = s.dir, append(append(os.Environ(), childVariable+"=1"), env...)
	out, _ := cmd.CombinedOutput()
	silent(s.t, strings.Join(args[:1], " "), string(out))
	if len(out) == 0 {
		s.t.Errorf("%q says nothing", args)
	}
}

// Whatever is wrong in a configuration, the sentence about it does not repeat what may be a secret.
func TestNoFaultOfTheConfigurationShowsASecret(t *testing.T) {
	t.Parallel()
	good := rules(nothingListens, nothingListens, "app.o", "")
	for name, text := range map[string]string{
		"not closed":         strings.Replace(good, "password: relay", `password: "`+marker, 1),
		"two colons":         strings.Replace(good, "password: relay", "password: "+marker+": "+marker, 1),
		"a list":             strings.Replace(good, "password: relay", "password: ["+marker+"]", 1),
		"a section":          strings.Replace(good, "password: relay", "password: {"+marker+"a: "+marker+"}", 1),
		"given twice":        strings.Replace(good, "password: relay", "password: "+marker+"1, password: "+marker+"2", 1),
		"misspelled":         strings.Replace(good, "password: relay", "pasword: "+marker, 1),
		"two ways":           strings.Replace(good, "password: relay", "password: "+marker+", password_file: x", 1),
		"a command as text":  strings.Replace(good, "password: relay", "password_command: echo "+marker, 1),
		"an empty command":   strings.Replace(good, "password: relay", `password_command: ["", `+marker+`]`, 1),
		"missing command":    strings.Replace(good, "password: relay", `password_command: [/no/such/program, `+marker+`]`, 1),
		"an unknown alias":   strings.Replace(good, "password: relay", "password: *"+marker, 1),
		"an unknown tag":     strings.Replace(good, "password: relay", "password: !!int "+marker, 1),
		"a tab":              "source:\n\tpassword: " + marker + "\n",
		"a wrong level":      good + "password: " + marker + "\n",
		"SASL without a way": good + "kafka: {sasl: {password: " + marker + "}}\n",
		"wrong mechanism":    strings.Replace(good, "kafka: {", "kafka: {sasl: {mechanism: plane, user: u, password: "+marker+"}, ", 1),
		"of the checkpoint":  strings.Replace(good, "source:", "checkpoint: {password: "+marker+"}\nsource:", 1),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, "")
			s.write("outbox-relay.yaml", text)
			for _, command := range []string{"check", "status"} { // a run that the faults do not stop would go on
				s.quiet(nil, command)
			}
			s.quiet(nil, "config", "print")
		})
	}
	for name, set := range map[string]string{
		"misspelled": "source.pasword=" + marker, "too deep": "source.password.x=" + marker, "no key": "=" + marker, "a list": "source.password=[" + marker, "another section": "source=" + marker,
		"of tables": "tables=" + marker, "no sign": "source.password:" + marker,
	} {
		t.Run("set and environment, "+name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, good)
			s.quiet(nil, "check", "--set", set)
			key, value, _ := strings.Cut(set, "=")
			s.quiet([]string{"OUTBOX_RELAY__" + strings.ToUpper(strings.ReplaceAll(key, ".", "__")) + "=" + value}, "check")
		})
	}
}

// What is printed of a good configuration has no secret, and a translated connector has none either.
func TestPrintedAndTranslatedConfigurationsShowNoSecret(t *testing.T) {
	t.Parallel()
	s := newSite(t, strings.Replace(rules(nothingListens, nothingListens, "app.o", ""), "password: relay", "password: "+marker, 1)+
		"checkpoint: {store: mysql, address: "+nothingListens+", user: u, password_command: [sh, -c, echo "+marker+"]}\n")
	s.write("outbox-relay.yaml", strings.Replace(s.read("outbox-relay.yaml"), fmt.Sprintf("checkpoint: {path: %q}\n", s.checkpoint()), "", 1))
	sasl := []string{"--set", "kafka.sasl.mechanism=plain", "--set", "kafka.sasl.user=u", "--set", "kafka.sasl.password=" + marker}
	s.quiet(nil, append([]string{"config", "print"}, sasl...)...)
	s.quiet([]string{"OUTBOX_RELAY__KAFKA__SASL__MECHANISM=plain", "OUTBOX_RELAY__KAFKA__SASL__USER=u", "OUTBOX_RELAY__KAFKA__SASL__PASSWORD=" + marker}, "config", "print")
	s.quiet(nil, append([]string{"check"}, sasl...)...)
	s.quiet(nil, append([]string{"checkpoint", "show"}, sasl...)...)

	connector := s.write("connector.json", `{"name": "x", "config": {"connector.class": "io.debezium.connector.mysql.MySqlConnector", "topic.prefix": "shop", "database.hostname": "db",
		"database.user": "relay", "database.password": "`+marker+`", "database.ssl.keystore.password": "`+marker+`", "database.ssl.truststore.password": "`+marker+`",
		"schema.history.internal.producer.sasl.jaas.config": "org.x.PlainLoginModule required username=\"a\" password=\"`+marker+`\";", "producer.override.sasl.mechanism": "PLAIN",
		"producer.override.security.protocol": "SASL_SSL", "producer.override.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"a\" password=\"`+marker+`\";",
		"producer.override.ssl.keystore.password": "`+marker+`", "producer.override.ssl.key.password": "`+marker+`", "producer.override.ssl.keystore.key": "`+marker+`",
		"producer.override.bootstrap.servers": "k:9092", "some.unknown.password": "`+marker+`", "table.include.list": "app.outbox",
		"transforms": "outbox", "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter"}}`)
	s.quiet(nil, "config", "from-debezium", connector)
}

func (s *site) read(name string) string {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, name))
	if err != nil {
		s.t.Fatal(err)
	}
	return string(text)
}

// looks asks a running relay all that it tells.
func (s *site) looks(c *child) {
	s.t.Helper()
	for _, path := range []string{"/status", "/metrics", "/readyz", "/healthz", "/"} {
		code, text := s.get(path)
		if code == 0 {
			s.t.Errorf("%s: %s", path, text)
		}
		silent(s.t, path, text)
	}
	status := s.start("status", "--json")
	status.wait()
	silent(s.t, "status", status.out.String()+status.err.String())
	silent(s.t, "the log", c.out.String()+c.err.String())
}

// gossip is a broker that repeats the password in its refusal.
func gossip(t *testing.T) string {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(), kfake.Superuser("PLAIN", "u", "right"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	cluster.ControlKey(int16(kmsg.SASLAuthenticate), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		asked := r.(*kmsg.SASLAuthenticateRequest)
		resp := asked.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		said := "no such login: " + strings.ReplaceAll(string(asked.SASLAuthBytes), "\x00", "|")
		resp.ErrorCode, resp.ErrorMessage = 58, &said
		return resp, nil, true
	})
	return cluster.ListenAddrs()[0]
}

// gossipMySQL is a server that repeats a password in its refusal.
func gossipMySQL(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() { // ends with the listener
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { // ends with the connection
				defer c.Close()
				write := func(seq byte, payload string) {
					_, _ = c.Write(append([]byte{byte(len(payload)), byte(len(payload) >> 8), 0, seq}, payload...))
				}
				write(0, "\x0a8.4.0\x00\x01\x00\x00\x00abcdefgh\x00\x00\x82\xff\x02\x00\x18\x00\x15"+strings.Repeat("\x00", 10)+"ijklmnopqrst\x00caching_sha2_password\x00")
				buf := make([]byte, 4096)
				if n, _ := c.Read(buf); n > 0 {
					write(2, "\xff\x15\x04#28000you said "+marker)
				}
			}()
		}
	}()
	return l.Addr().String()
}

// A relay that is refused everywhere, by servers that repeat what they were told, shows no secret at its most talkative.
func TestARunningRelayShowsNoSecret(t *testing.T) {
	t.Parallel()
	m := sandbox.SharedMySQL(t)
	db := m.NewDatabase(t)
	user := strings.ReplaceAll(relayName(t), "-", "")[:20]
	mysqlExec(t, m, "CREATE TABLE "+db+".o "+outboxColumns, "CREATE USER "+user+"@'%' IDENTIFIED BY '"+marker+"'", "GRANT REPLICATION SLAVE, REPLICATION CLIENT, SELECT ON *.* TO "+user+"@'%'")
	t.Cleanup(func() { mysqlExec(t, m, "DROP USER "+user+"@'%'") })
	broker := gossip(t)
	debug := []string{"--set", "log.level=debug", "--set", "source.user=" + user, "--set", "kafka.sasl.mechanism=plain", "--set", "kafka.sasl.user=u"}
	config := strings.Replace(rules(m.Addr(), broker, db+".o", ""), "password: relay, ", "", 1)
	panics := "echo panic: " + marker + " >&2; exit 2"

	t.Run("refused by a broker", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, config)
		file := s.write("password", marker+"\n")
		c := s.start(append([]string{"run", "--set", "source.password=" + marker, "--set", "kafka.sasl.password_file=" + file}, debug...)...)
		s.awaitReadyz(c, 503, "Kafka cannot be used: the Kafka broker at "+broker+` refuses the login of user "u" by plain: no such login: |u|***; check kafka.sasl.user`)
		mysqlExec(t, m, "INSERT INTO "+db+".o (aggregate_type, aggregate_id, event_type, payload) VALUES ('order', '1', 'Made', '{}')")
		c.awaitLog("not ready")
		s.looks(c)
		s.quiet(nil, append([]string{"check", "--set", "source.password=" + marker, "--set", "kafka.sasl.password_file=" + file}, debug...)...)
		s.quiet(nil, append([]string{"dead-letter", "list", "--set", "source.password=" + marker, "--set", "kafka.sasl.password_file=" + file}, debug...)...)
		c.stop()
		silent(t, "the log", c.out.String()+c.err.String())
	})
	t.Run("a command that dies", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, config+"  # the end\n")
		text := strings.Replace(s.read("outbox-relay.yaml"), "kafka: {", fmt.Sprintf("kafka: {sasl: {mechanism: plain, user: u, password_command: [sh, -c, %q]}, ", panics), 1)
		s.write("outbox-relay.yaml", text)
		c := s.start("run", "--set", "log.level=debug", "--set", "source.user="+user, "--set", "source.password="+marker)
		s.awaitReadyz(c, 503, "the secret cannot be read: running the password command sh: exit status 2")
		s.looks(c)
		s.quiet(nil, "check", "--set", "source.user="+user, "--set", "source.password="+marker)
		c.stop()
		silent(t, "the log", c.out.String()+c.err.String())
	})
	t.Run("a command of the source that dies", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, config)
		s.write("outbox-relay.yaml", strings.Replace(s.read("outbox-relay.yaml"), "source: {", fmt.Sprintf("source: {password_command: [sh, -c, %q], ", panics), 1))
		c := s.start("run", "--set", "log.level=debug")
		c.awaitLog("running the password command sh: exit status 2")
		s.looks(c)
		c.stop()
		silent(t, "the log", c.out.String()+c.err.String())
	})
	t.Run("refused by a server", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, strings.Replace(config, m.Addr(), gossipMySQL(t), 1))
		c := s.start(append([]string{"run", "--set", "source.password=" + marker, "--set", "kafka.sasl.password=" + marker}, debug...)...)
		if code := c.wait(); code != 1 {
			t.Errorf("exit code %d", code)
		}
		holds(t, c.last(), []string{"refuses user", "you said ***"})
		silent(t, "the log", c.out.String()+c.err.String())
		c = s.start(append([]string{"run", "--set", "source.password=" + marker, "--set", "kafka.sasl.password=" + marker, "--set", "checkpoint.store=mysql"}, debug...)...)
		c.wait()
		silent(t, "the log", c.out.String()+c.err.String())
		s.quiet(nil, append([]string{"check", "--set", "source.password=" + marker, "--set", "kafka.sasl.password=" + marker}, debug...)...)
		s.quiet(nil, append([]string{"checkpoint", "show", "--set", "source.password=" + marker, "--set", "kafka.sasl.password=" + marker, "--set", "checkpoint.store=mysql"}, debug...)...)
	})
}
