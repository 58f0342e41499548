package e2e_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"outbox-relay/internal/e2e"
	"outbox-relay/internal/sandbox"
	"outbox-relay/relay/relaytest"
)

// The short portion of the chaos campaign, with a fixed seed.
func TestChaosCampaign(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute) // for what hangs
	defer cancel()
	res, err := e2e.Chaos(ctx, e2e.ChaosOptions{
		MySQL: sandbox.RunMySQL(t, sandbox.MySQLOptions{}), Kafka: sandbox.RunKafka(t, e2e.ChaosKafka), Builder: builder,
		Rounds: 12, Seed: 59541, Progress: func(s string) { t.Log(s) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%v", res)
	if err := res.Err(); err != nil {
		t.Error(err)
	}
	if res.Kills == 0 || res.Compared == 0 {
		t.Errorf("%d kills, %d arrivals compared with checkpoints: nothing was disturbed, or nothing looked at", res.Kills, res.Compared)
	}
}

// A checkpoint that holds a transaction whose rows come to Kafka only later is found, and so is a row with a lower number than one before it.
func TestChaosJudgeFindsCheckpointsAheadOfKafka(t *testing.T) {
	t.Parallel()
	const server = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
	message := func(offset int64, transaction, id, seq int) relaytest.Message {
		return relaytest.Message{
			Topic: "t", Offset: offset, Key: []byte("k"), Value: fmt.Appendf(nil, `{"n": 7, "seq": %d, "x": 1}`, seq),
			Headers: []relaytest.Header{{Key: "id", Value: fmt.Append(nil, id)}, {Key: "outbox-relay-position", Value: fmt.Appendf(nil, "%s:%d#0", server, transaction)}},
		}
	}
	// Transaction 2 has rows at 1 and 2; the one at 3 is a redelivery.
	messages := []relaytest.Message{message(0, 1, 10, 1), message(1, 2, 11, 2), message(2, 2, 12, 3), message(3, 1, 10, 1), message(4, 3, 13, 5)}
	for _, c := range []struct {
		name        string
		checkpoints []string
		ends        []int64
		compared    int
		ahead       int
	}{
		{"in time", []string{server + ":1", server + ":1-2", server + ":1-3"}, []int64{1, 3, 5}, 3, 0},
		{"one row of a transaction missing", []string{server + ":1-2"}, []int64{2}, 2, 1},
		{"all missing", []string{server + ":1-3"}, []int64{0}, 3, 3},
		{"later samples say nothing", []string{server + ":1-3", server + ":1-3"}, []int64{5, 0}, 3, 0},
	} {
		compared, ahead, disorder, err := e2e.AheadOfKafka(messages, c.checkpoints, c.ends)
		if err != nil || compared != c.compared || len(ahead) != c.ahead || len(disorder) != 0 {
			t.Errorf("%s: compared %d, ahead %q, disorder %q, %v", c.name, compared, ahead, disorder, err)
		}
	}
	_, _, disorder, err := e2e.AheadOfKafka(append(messages, message(5, 4, 14, 4)), nil, nil)
	if err != nil || len(disorder) != 1 {
		t.Errorf("number 4 after 5 of its key: found %q, %v", disorder, err)
	}
	// The same key moves to another partition: by the brokers' clocks, number 6 was there before 5.
	for i := range messages {
		messages[i].Appended = int64(1000 + i)
	}
	moved := message(0, 5, 15, 6)
	for appended, want := range map[int64]int{2000: 0, 1004: 0, 1003: 1} {
		moved.Partition, moved.Appended = 1, appended
		_, _, disorder, err := e2e.AheadOfKafka(append(messages, moved), nil, nil)
		if err != nil || len(disorder) != want {
			t.Errorf("number 6 in another partition at %d: found %q, %v; want %d", appended, disorder, err, want)
		}
	}
}
