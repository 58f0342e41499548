package e2e

import (
	"outbox-relay/binlog/gtid"
	"outbox-relay/relay/relaytest"
)

// AheadOfKafka gives what the judge of a chaos campaign says of messages of one partition and checkpoints, each read when the partition ended at an
// offset, and of the numbers in their payloads.
func AheadOfKafka(messages []relaytest.Message, checkpoints []string, ends []int64) (compared int, ahead, disorder []string, err error) {
	l := newLedger()
	for _, m := range messages {
		if err := l.received(m); err != nil {
			return 0, nil, nil, err
		}
	}
	var samples []sample
	for i, text := range checkpoints {
		set, err := gtid.ParseSet(text)
		if err != nil {
			return 0, nil, nil, err
		}
		at := place{messages[0].Topic, messages[0].Partition}
		samples = append(samples, sample{set: set, ends: map[place]int64{at: ends[i]}})
	}
	compared, ahead = l.ahead(samples)
	return compared, ahead, append(l.disorder, l.overtaken()...), nil
}
