package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"outbox-relay/config"
)

const shards = `name: orders
source: {user: relay, password: shared, heartbeat: 2s, tls: {mode: required, ca: ca.pem}}
sources:
  - {name: a, address: "db1:3306"}
  - {name: b, address: ["db2:3306", "db2b:3306"], user: other, password_file: /secret, start: earliest, server_id: 7, tls: {ca: b.pem}}
tables: [{table: app.outbox_events, preset: cloudevents}, {table: app.more, preset: debezium}]
kafka: {brokers: ["k1:9092"]}
limits: {buffer: 8MiB}
`

func TestSourcesShareWhatTheyDoNotGive(t *testing.T) {
	t.Parallel()
	c := load(t, shards, config.Options{Env: []string{"OUTBOX_RELAY__SOURCE__HEARTBEAT=3s"}, Sets: []string{"source.start=latest"}})
	each := c.Each()
	if len(each) != 2 {
		t.Fatalf("%d relays", len(each))
	}
	a, b := each[0], each[1]
	wantA := config.Source{
		Addresses: []string{"db1:3306"}, User: "relay", Password: config.Secret{Value: "shared"}, TLS: config.TLS{Mode: "required", CA: "ca.pem"},
		Start: "latest", OnGap: "halt", OnDivergence: "halt", ReadFrom: "any", OnStatementWrite: "halt", OnUnknownXA: "halt", Heartbeat: 3 * time.Second,
	}
	wantB := wantA
	wantB.Addresses, wantB.User, wantB.Password = []string{"db2:3306", "db2b:3306"}, "other", config.Secret{File: "/secret"}
	wantB.Start, wantB.ServerID, wantB.TLS.CA = "earliest", 7, "b.pem"
	if diff := cmp.Diff([]config.Source{wantA, wantB}, []config.Source{a.Source, b.Source}); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	for _, x := range []struct{ got, want string }{
		{a.Name, "orders-a"},
		{b.Name, "orders-b"},
		{a.Checkpoint.Path, "./outbox-relay.checkpoint.orders-a"},
		{b.Checkpoint.Topic, "outbox-relay.orders-b.checkpoint"},
		{a.Limits.Buffer.String(), "4MiB"},
		{a.Tables[0].CloudEvents.Source, "/orders-a/app.outbox_events"},
		{b.Tables[0].CloudEvents.Source, "/orders-b/app.outbox_events"},
		{b.Tables[1].Debezium.TopicPrefix, "orders-b"},
		{c.Tables[0].CloudEvents.Source, ""},
	} {
		if x.got != x.want {
			t.Errorf("got %q, want %q", x.got, x.want)
		}
	}
	if text := string(config.Print(c)); strings.Contains(text, "shared") || !strings.Contains(text, "name: b\n") {
		t.Errorf("printed is\n%s", text)
	}
	one := load(t, least, config.Options{Sets: []string{"checkpoint.path=/var/lib/{name}.cp"}})
	if each := one.Each(); len(each) != 1 || each[0] != one || one.Checkpoint.Path != "/var/lib/outbox-relay.cp" {
		t.Errorf("one source gives %d relays, with %s", len(each), one.Checkpoint.Path)
	}
	named := load(t, shards, config.Options{Sets: []string{"checkpoint.path=/data/{name}.cp"}}).Each()
	if named[1].Checkpoint.Path != "/data/orders-b.cp" {
		t.Error(named[1].Checkpoint.Path)
	}
}

func TestFaultsOfSources(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		source, sources string
		sets            []string
		want            []string
	}{
		"both": {"{address: 'db1:3306', server_id: 3, user: u}", "[{name: a, address: 'db2:3306'}]", nil, []string{
			"source.address: belongs to one source, and with sources this section only holds what they share (line 1) - move it into an entry of sources, or drop sources",
			"source.server_id: belongs to one source,",
		}},
		"neither":       {"{user: u}", "[]", nil, []string{"source.address: missing (line 1) - the MySQL server, such as db1:3306"}},
		"no name":       {"{user: u}", "[{address: 'db2:3306'}]", nil, []string{"sources[0].name: missing (line 2) - a short name that stays"}},
		"no address":    {"{user: u}", "[{name: a}]", nil, []string{"sources[0].address: missing (line 2)"}},
		"no user":       {"{}", "[{name: a, address: 'a:1', user: u}, {name: b, address: 'b:1'}]", nil, []string{"sources[1].user: missing (line 2)"}},
		"twice":         {"{user: u}", "[{name: a, address: 'a:1'}, {name: a, address: 'b:1'}]", nil, []string{`sources[1].name: sources[0] is called "a" too (line 2) - give each its own`}},
		"long":          {"{user: u}", "[{name: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa, address: 'a:1'}]", nil, []string{`sources[0].name: "outbox-relay-aaa`}},
		"bad once":      {"{user: u, heartbeat: 1ms, start: never}", "[{name: a, address: 'a:1'}, {name: b, address: 'b:1'}]", nil, []string{`source.start: "never" is not`, "source.heartbeat: 1ms is not between"}},
		"bad own":       {"{user: u}", "[{name: a, address: 'a:1', heartbeat: 1ms}]", nil, []string{"sources[0].heartbeat: 1ms is not between"}},
		"little buffer": {"{user: u}", "[{name: a, address: 'a:1'}, {name: b, address: 'b:1'}, {name: c, address: 'c:1'}, {name: d, address: 'd:1'}, {name: e, address: 'e:1'}]", []string{"limits.buffer=1MiB"}, []string{"limits.buffer: is shared by 5 sources, and 209715B is too little for each (--set limits.buffer) - set at least 1280KiB"}},
		"one topic":     {"{user: u}", "[{name: a, address: 'a:1'}]", []string{"checkpoint.store=kafka", "checkpoint.topic=cp"}, []string{"checkpoint.topic: would be the topic of several relays (--set checkpoint.topic) - write {name} in it"}},
		"environment":   {"{user: u}", "[{name: a, address: 'a:1'}]", []string{"sources=x"}, []string{"sources: sources can only be set in the file"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := "source: " + c.source + "\nsources: " + c.sources + "\ntables: [{table: app.outbox_events}]\nkafka: {brokers: ['k1:9092']}\n"
			_, err := config.Load(config.Options{File: write(t, text), Sets: c.sets})
			got := faultsOf(t, err)
			if len(got) != len(c.want) {
				t.Fatalf("got %q, want %q", got, c.want)
			}
			for i := range got {
				if !strings.HasPrefix(got[i], c.want[i]) {
					t.Errorf("got %q, want %q", got[i], c.want[i])
				}
			}
		})
	}
}

func faultsOf(t *testing.T, err error) (all []string) {
	t.Helper()
	for _, f := range err.(*config.Faults).List {
		all = append(all, f.String())
	}
	return all
}
