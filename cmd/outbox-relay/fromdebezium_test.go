package main

import (
	"fmt"
	"strings"
	"testing"

	"outbox-relay/internal/sandbox"
)

// TestTranslatedConnectorGoesOnWhereItStopped translates a connector and its offset, and runs the result.
func TestTranslatedConnectorGoesOnWhereItStopped(t *testing.T) {
	t.Parallel()
	m := sandbox.SharedMySQL(t)
	db := m.NewDatabase(t)
	mysqlExec(t, m, "CREATE TABLE "+db+".outbox (id CHAR(36) PRIMARY KEY, aggregatetype VARCHAR(255) NOT NULL, aggregateid VARCHAR(255) NOT NULL, type VARCHAR(255) NOT NULL, payload JSON)")
	const insert = `INSERT INTO %s.outbox VALUES ('%s', 'Order', 'k1', 'Paid', '{"n": 1.5}')`
	mysqlExec(t, m, fmt.Sprintf(insert, db, "before"))
	executed := query(t, m, "SELECT @@global.gtid_executed")
	mysqlExec(t, m, fmt.Sprintf(insert, db, "after"))

	s := newSite(t, "")
	host, port, _ := strings.Cut(m.Addr(), ":")
	connector := s.write("connector.json", fmt.Sprintf(`{"name": %q, "config": {"connector.class": "io.debezium.connector.mysql.MySqlConnector", "topic.prefix": "shop",
		"database.hostname": %q, "database.port": %q, "database.user": "relay", "database.password": "relay", "table.include.list": "%s.outbox",
		"transforms": "outbox", "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter", "transforms.outbox.table.fields.additional.placement": "type:header:eventType",
		"key.converter": "org.apache.kafka.connect.storage.StringConverter", "value.converter": "org.apache.kafka.connect.storage.StringConverter",
		"producer.override.bootstrap.servers": %q, "time.precision.mode": "connect"}}`, relayName(t), host, port, db, nothingListens))
	offset := s.write("offset.json", fmt.Sprintf(`{"gtids": %q, "file": "binlog.000001", "pos": 4, "event": 2, "row": 1}`, executed))

	c := s.start("config", "from-debezium", connector, "--offset", offset)
	if code := c.wait(); code != 1 || c.last() != "not translated: time.precision.mode: times in headers, envelopes and keys have the form of adaptive_time_microseconds here" {
		t.Fatalf("exit code %d: %s", code, c.err.String())
	}
	s.write("translated.yaml", c.out.String())
	c = s.start("check", "--config", "translated.yaml", "--set", "source.password=relay", "--set", "source.password_file=", "--set", "checkpoint.path="+s.checkpoint(), "--set", "kafka.brokers="+nothingListens)
	if code := c.wait(); code != 1 { // there is no Kafka
		t.Errorf("check: exit code %d", code)
	}
	holds(t, c.out.String(), []string{"ok       table " + db + ".outbox"})
	c = s.start("run", "--config", "translated.yaml", "--sink", "stdout", "--until-caught-up", "--set", "source.password=relay", "--set", "source.password_file=",
		"--set", "checkpoint.path="+s.checkpoint(), "--set", "http.address="+s.http)
	if code := c.wait(); code != 0 {
		t.Fatalf("exit code %d: %s", code, c.err.String())
	}
	holds(t, c.out.String(), []string{"outbox.event.Order", "__debezium.context.connectorLogicalName", "shop", `"id","after"`, "eventType", "Paid", "outbox-relay-position", `{\"n\":1.5}`})
	if strings.Contains(c.out.String(), "before") {
		t.Errorf("a row that Debezium has published came again: %s", c.out.String())
	}

	for _, bad := range [][]string{{"config", "from-debezium"}, {"config", "from-debezium", "a", "b"}} {
		if c := s.start(bad...); c.wait() != 64 {
			t.Errorf("%v: %s", bad, c.err.String())
		}
	}
	c = s.start("config", "from-debezium", offset)
	if code := c.wait(); code != 1 || !strings.Contains(c.last(), "only Debezium's MySQL connector can be translated") {
		t.Errorf("%d: %s", code, c.err.String())
	}
}

func TestRunIDIsAUUIDOfVersion7(t *testing.T) {
	t.Parallel()
	id := runID()
	if len(id) != 36 || id[14] != '7' || !strings.ContainsRune("89ab", rune(id[19])) || id[:8] < "01900000" || id != runID() {
		t.Errorf("run id %s, then %s", id, runID())
	}
}
