package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"outbox-relay/internal/sandbox"
	"outbox-relay/relay/relaytest"
)

// Rows of a real table as events in both modes, with a JSON object spread into headers, from MySQL to Kafka.
func TestEventsOfRealRows(t *testing.T) {
	t.Parallel()
	m, k := sandbox.SharedMySQL(t), sandbox.SharedKafka(t)
	db := m.NewDatabase(t)
	topics := map[string]string{"binary": k.NewTopic(t, 1, nil), "structured": k.NewTopic(t, 1, nil), "bytes": k.NewTopic(t, 1, nil)}
	var b strings.Builder
	fmt.Fprintf(&b, "source: {address: %q, user: relay, password: relay, start: %q}\nkafka: {brokers: [%q]}\ntables:\n", m.Addr(), query(t, m, "SELECT @@global.gtid_executed"), k.Addrs()[0])
	fmt.Fprintf(&b, "  - {table: %s.o, preset: cloudevents, topic: %s, when: {event_type: [Placed]}, headers: [{name: '*', value: '{headers}'}]}\n", db, topics["binary"])
	fmt.Fprintf(&b, "  - {table: %s.o, preset: cloudevents, topic: %s, when: {event_type: [Paid]}, timestamp: at, cloudevents: {mode: structured, source: '//shop/{aggregate_type}', type: 'com.shop.{event_type}', extensions: [{name: tenant, value: '{tenant}'}]}}\n",
		db, topics["structured"])
	fmt.Fprintf(&b, "  - {table: %s.o, preset: cloudevents, topic: %s, when: {event_type: [Photo]}, value: '{photo}', cloudevents: {mode: structured, subject: '', data_content_type: image/png}}\n", db, topics["bytes"])
	mysqlExec(t, m, "CREATE TABLE "+db+".o (id BINARY(16) PRIMARY KEY, aggregate_type VARCHAR(64), aggregate_id VARCHAR(64), event_type VARCHAR(64), payload JSON, photo BLOB, headers JSON, tenant VARCHAR(20) CHARACTER SET latin1, at DATETIME(3))",
		"INSERT INTO "+db+`.o VALUES ('0123456789abcde1', 'order', 'o-1', 'Placed', '{"n": 1.10, "s": "ä\\n"}', NULL, '{"traceparent": "00-ab-01", "n": 1.50, "o": {"b": [1, null]}, "gone": null}', 'é', '2026-05-06 07:08:09.123')`,
		"INSERT INTO "+db+`.o VALUES ('0123456789abcde2', 'order', 'o-2', 'Paid', '{"n": 1.10, "s": "ä\\n"}', NULL, NULL, 'é', '2026-05-06 07:08:09.123')`,
		"INSERT INTO "+db+`.o VALUES ('0123456789abcde3', 'order', 'o-3', 'Photo', NULL, X'0001FF', NULL, NULL, NULL)`)
	s := newSite(t, b.String())
	if c := s.start("run", "--until-caught-up"); c.wait() != 0 {
		t.Fatalf("the relay said:\n%s", c.err.String())
	}
	read := func(mode string) (value string, headers []string) {
		t.Helper()
		err := relaytest.Consume(t.Context(), relaytest.ConsumeOptions{Brokers: k.Addrs(), Topics: []string{topics[mode]}}, func(r relaytest.Message) error {
			value = string(bytes.Clone(r.Value))
			for _, h := range r.Headers {
				if text := h.Key + "=" + string(h.Value); h.Key != "outbox-relay-position" {
					headers = append(headers, text)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return value, headers
	}
	payload := query(t, m, "SELECT payload FROM "+db+".o WHERE event_type = 'Paid'")
	value, headers := read("binary")
	at := slices.IndexFunc(headers, func(h string) bool { return strings.HasPrefix(h, "ce_time=20") && strings.HasSuffix(h, "Z") })
	if at < 0 {
		t.Fatalf("headers %q", headers)
	}
	headers = slices.Delete(headers, at, at+1) // the commit's
	source := "/" + relayName(t) + "/" + db + ".o"
	want := []string{"ce_specversion=1.0", "ce_id=0123456789abcde1", "ce_source=" + source, "ce_type=Placed", "ce_subject=o-1", "content-type=application/json",
		// The order is MySQL's: shorter names first.
		"n=1.5", `o={"b": [1, null]}`, "gone=", "traceparent=00-ab-01"}
	if value != payload || !slices.Equal(headers, want) {
		t.Errorf("value %s\nheaders %q\nwant    %q", value, headers, want)
	}
	value, headers = read("structured")
	wantValue := `{"specversion":"1.0","id":"0123456789abcde2","source":"//shop/order","type":"com.shop.Paid","subject":"o-2","time":"2026-05-06T07:08:09.123Z","tenant":"é","datacontenttype":"application/json","data":` + payload + `}`
	if value != wantValue || !json.Valid([]byte(value)) || !slices.Equal(headers, []string{"content-type=application/cloudevents+json; charset=UTF-8"}) {
		t.Errorf("value %s\nwant  %s\nheaders %q", value, wantValue, headers)
	}
	value, _ = read("bytes")
	if !strings.Contains(value, `"datacontenttype":"image/png","data_base64":"AAH/"}`) || strings.Contains(value, "subject") || !strings.Contains(value, `"source":"`+source+`"`) {
		t.Errorf("value %s", value)
	}
}
