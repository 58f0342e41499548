package e2e_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"outbox-relay/internal/e2e"
	"outbox-relay/internal/sandbox"
	"outbox-relay/relay"
	"outbox-relay/relay/relaytest"
)

// Kinds of poison rows, by the reason that the relay gives.
const (
	poisonRows   = 100 // of each kind
	rowsInAll    = 10_000
	baseID       = 1_000_000 // the markers of waitMarked have small ids
	rowLimit     = 256 << 10
	topicLimit   = 64 << 10
	deadLimit    = 128 << 10
	tooLarge     = "too_large"
	muchTooLarge = "too_large, also for the dead-letter topic"
	rowTooLarge  = "row_too_large"
	badTopic     = "invalid_topic"
)

// noise does not compress: a broker compares what it gets, compressed, with its limit.
var noise = func() string {
	b := make([]byte, rowLimit)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(b)
	return base64.RawURLEncoding.EncodeToString(b)
}()

// poisonLoad writes 10,000 rows with 100 keys, among them poison ones of every kind, and gives the kind of each poison row by its id.
func poisonLoad(t *testing.T, s *e2e.Site) map[int]string {
	t.Helper()
	kinds := map[int]string{}
	pad := map[string]int{tooLarge: topicLimit + 1000, muchTooLarge: deadLimit + 1000, rowTooLarge: rowLimit + 1000}
	const perTransaction = 50
	for from := 1; from <= rowsInAll; from += perTransaction {
		var b strings.Builder
		b.WriteString("INSERT INTO orders_outbox (id, aggregate_type, aggregate_id, event_type, payload, idempotency_key) VALUES ")
		for id := from; id < from+perTransaction; id++ {
			kind, aggregate := "", "order"
			if k := id % 100; k < 4 {
				kind = []string{tooLarge, muchTooLarge, rowTooLarge, badTopic}[k]
				kinds[id] = kind
			}
			if kind == badTopic {
				aggregate = "no topic!"
			}
			fmt.Fprintf(&b, "%s(%d, '%s', 'k%d', 'e', JSON_OBJECT('n', %d, 'pad', '%s'), 'i%d')", []string{",", ""}[min(1, max(0, 1-(id-from)))], baseID+id, aggregate, id%97, id, noise[:pad[kind]], id)
		}
		if _, err := s.DB.ExecContext(testContext(t), b.String()); err != nil {
			t.Fatal(err)
		}
	}
	return kinds
}

// read gives the messages of a topic by key, in order, as their ids; see checks each.
func read(t *testing.T, k *sandbox.Kafka, topics []string, see func(id int, headers map[string]string, m relaytest.Message)) map[string][]int {
	t.Helper()
	got := map[string][]int{}
	err := relaytest.Consume(testContext(t), relaytest.ConsumeOptions{Brokers: k.Addrs(), Topics: topics}, func(m relaytest.Message) error {
		headers := map[string]string{}
		for _, h := range m.Headers {
			headers[h.Key] = string(h.Value)
		}
		id, err := strconv.Atoi(headers["id"])
		if err != nil {
			return err
		}
		if id -= baseID; id < 0 || id > rowsInAll {
			return nil
		}
		got[string(m.Key)] = append(got[string(m.Key)], id)
		if see != nil {
			see(id, headers, m)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// wanted gives the ids of rows by key, in order, for which keep is true.
func wanted(keep func(id int) bool) map[string][]int {
	want := map[string][]int{}
	for id := 1; id <= rowsInAll; id++ {
		if keep(id) {
			key := fmt.Sprintf("k%d", id%97)
			want[key] = append(want[key], id)
		}
	}
	return want
}

func sameRows(t *testing.T, what string, got, want map[string][]int) {
	t.Helper()
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if !slices.Equal(got[key], want[key]) {
			t.Errorf("%s, key %s: %d rows %v, want %d %v", what, key, len(got[key]), first(got[key]), len(want[key]), first(want[key]))
		}
	}
	if len(got) > len(want) {
		t.Errorf("%s: %d keys, want %d", what, len(got), len(want))
	}
}

func first(ids []int) []int { return ids[:min(len(ids), 12)] }

// setLimit changes max.message.bytes of a topic.
func setLimit(t *testing.T, k *sandbox.Kafka, topic string, limit int) {
	t.Helper()
	admin, err := k.Admin()
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	value := strconv.Itoa(limit)
	entries := map[string]sarama.IncrementalAlterConfigsEntry{"max.message.bytes": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &value}}
	if err := admin.IncrementalAlterConfig(sarama.TopicResource, topic, entries, false); err != nil {
		t.Fatal(err)
	}
}

// Poison rows of every kind among others, under each policy that goes on: exactly the good ones are in the topic and exactly the poison ones in the
// dead-letter topic, each in the order of its key. Some are refused before they are sent, and some by the broker, whose limit was lowered unnoticed.
func TestPoisonRowsUnderEachPolicy(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"skip", "dead_letter"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			k := sandbox.SharedKafka(t)
			dead := k.NewTopic(t, 3, map[string]string{"max.message.bytes": strconv.Itoa(deadLimit)})
			s := site(t, e2e.SiteOptions{Kafka: k, Config: fmt.Sprintf("poison: {policy: %s, topic: %s}\nlimits: {row: %d}\n", policy, dead, rowLimit)})
			r := start(t, s, e2e.RelayOptions{})
			waitMarked(t, s, r) // it knows the topics now
			setLimit(t, k, s.Name+".order", topicLimit)
			kinds := poisonLoad(t, s)
			waitMarked(t, s, r)
			waitStatus(t, r, "ready", func(st relay.Status) bool { return st.Ready && st.Halted == "" })
			stop(t, r)

			sameRows(t, "topic", read(t, k, s.Topics(), nil), wanted(func(id int) bool { return kinds[id] == "" }))
			letters, byBroker := map[string]int{}, 0
			gotDead := read(t, k, []string{dead}, func(id int, headers map[string]string, m relaytest.Message) {
				kind := kinds[id]
				letters[kind]++
				if strings.Contains(headers["dead-letter-error"], "kafka server") {
					byBroker++
				}
				reason, _, _ := strings.Cut(kind, ",")
				payload := fmt.Sprintf(`{"n": %d, "pad": ""}`, id)
				topic := s.Name + ".order"
				switch kind {
				case tooLarge:
					payload = fmt.Sprintf(`{"n": %d, "pad": "%s"}`, id, noise[:topicLimit+1000])
				case muchTooLarge:
					payload = fmt.Sprintf(`{"n": %d, "pad": "%s"}`, id, noise[:deadLimit+1000])
				case badTopic:
					topic = s.Name + ".no topic!"
				}
				sum := sha256.Sum256([]byte(payload))
				want := map[string]string{
					"dead-letter-reason": reason, "dead-letter-topic": topic, "dead-letter-table": s.Database() + ".orders_outbox", "dead-letter-size": strconv.Itoa(len(payload)),
					"dead-letter-sha256": hex.EncodeToString(sum[:]), "event_type": "e", "idempotency_key": fmt.Sprintf("i%d", id),
				}
				if kind == rowTooLarge { // the value is gone
					want["dead-letter-sha256"] = ""
					delete(want, "dead-letter-size")
					if n, err := strconv.Atoi(headers["dead-letter-size"]); err != nil || n <= rowLimit {
						t.Errorf("row %d: size %q", id, headers["dead-letter-size"])
					}
				}
				for name, value := range want {
					if headers[name] != value {
						t.Errorf("row %d (%s): header %s is %.80q, want %.80q", id, kind, name, headers[name], value)
					}
				}
				if headers["dead-letter-error"] == "" || m.Headers[len(m.Headers)-1].Key != "outbox-relay-position" {
					t.Errorf("row %d: headers %v", id, headers)
				}
				if kept := kind == tooLarge || kind == badTopic; kept != (string(m.Value) == payload) || !kept && m.Value != nil {
					t.Errorf("row %d (%s): value of %d bytes", id, kind, len(m.Value))
				}
			})
			if policy == "skip" {
				if len(gotDead) > 0 {
					t.Errorf("%d keys in the dead-letter topic", len(gotDead))
				}
				if n := strings.Count(r.Log(), "poison record skipped"); n != 4*poisonRows {
					t.Errorf("%d skips were logged, want %d", n, 4*poisonRows)
				}
				return
			}
			sameRows(t, "dead-letter topic", gotDead, wanted(func(id int) bool { return kinds[id] != "" }))
			if byBroker == 0 || byBroker > 2*poisonRows {
				t.Errorf("%d rows were refused by the broker, want some: the limit was lowered unnoticed", byBroker)
			}
			t.Logf("%d rows were refused by the broker itself", byBroker)
			for _, kind := range []string{tooLarge, muchTooLarge, rowTooLarge, badTopic} {
				if letters[kind] != poisonRows {
					t.Errorf("%d dead letters of kind %s, want %d", letters[kind], kind, poisonRows)
				}
			}
		})
	}
}

// Dead letters are published again by a command that is killed again and again: in the end all of them are there, with ids, keys, headers and values
// unchanged and in the order of their keys.
func TestDeadLettersArePublishedAgain(t *testing.T) {
	t.Parallel()
	k := sandbox.SharedKafka(t)
	dead := k.NewTopic(t, 3, nil)
	s := site(t, e2e.SiteOptions{Kafka: k, Config: fmt.Sprintf("poison: {policy: dead_letter, topic: %s}\nlimits: {row: %d}\n", dead, rowLimit)})
	setLimit(t, k, s.Name+".order", topicLimit)
	r := start(t, s, e2e.RelayOptions{})
	waitMarked(t, s, r)
	kinds := poisonLoad(t, s)
	waitMarked(t, s, r)
	stop(t, r)
	setLimit(t, k, s.Name+".order", 1<<20)

	before := read(t, k, s.Topics(), nil)
	binary, err := builder.Binary(testContext(t), e2e.Build{})
	if err != nil {
		t.Fatal(err)
	}
	command := func(args ...string) *exec.Cmd {
		return exec.CommandContext(testContext(t), binary, append([]string{"dead-letter", "--config", filepath.Join(s.Dir, "relay-1.yaml")}, args...)...)
	}
	output := func(args ...string) string {
		t.Helper()
		out, err := command(args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%.2000s", args, err, out)
		}
		return string(out)
	}
	if lines := strings.Count(output("list", "--json"), "\n"); lines != 4*poisonRows {
		t.Errorf("%d letters are listed, want %d", lines, 4*poisonRows)
	}
	if out := output("redrive", "--dry-run"); !strings.Contains(out, fmt.Sprintf("%d letters would be published again, %d passed by", 2*poisonRows, 2*poisonRows)) {
		t.Errorf("a dry run says %.2000s", out)
	}
	const kills = 20
	for i := range kills {
		c := command("redrive")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(i) * 40 * time.Millisecond) // a moment of its own each time
		_ = c.Process.Kill()
		_ = c.Wait()
	}
	output("redrive")
	if out := output("redrive"); !strings.Contains(out, "0 letters published again, 0 passed by") {
		t.Errorf("once more says %.2000s", out)
	}
	if out := output("list"); !strings.Contains(out, "no dead letters") {
		t.Errorf("afterwards are listed %.2000s", out)
	}

	seen := map[int]bool{}
	again := map[string][]int{}
	got := read(t, k, s.Topics(), func(id int, headers map[string]string, m relaytest.Message) {
		kind := kinds[id]
		if kind == "" {
			return
		}
		payload := fmt.Sprintf(`{"n": %d, "pad": "%s"}`, id, noise[:map[string]int{tooLarge: topicLimit, muchTooLarge: deadLimit}[kind]+1000])
		names := []string{"id", "event_type", "aggregate_type", "idempotency_key", "outbox-relay-position"}
		for i, h := range m.Headers {
			if i >= len(names) || h.Key != names[i] {
				t.Errorf("row %d has the header %s at place %d", id, h.Key, i)
			}
		}
		if string(m.Value) != payload || headers["idempotency_key"] != fmt.Sprintf("i%d", id) || string(m.Key) != fmt.Sprintf("k%d", id%97) {
			t.Errorf("row %d (%s) came back changed: %d bytes, headers %v", id, kind, len(m.Value), headers)
		}
		if !seen[id] {
			seen[id] = true
			again[string(m.Key)] = append(again[string(m.Key)], id)
		}
	})
	sameRows(t, "published again", again, wanted(func(id int) bool { return kinds[id] == tooLarge || kinds[id] == muchTooLarge }))
	for key, ids := range before {
		if !slices.Equal(got[key][:len(ids)], ids) {
			t.Errorf("key %s: what was there before has changed", key)
		}
	}
}
