package main

import (
	"fmt"
	"strings"
	"time"

	"outbox-relay/config"
	"outbox-relay/relay/kafka"
	"outbox-relay/relay/preflight"
)

// stallSentence says since when a topic stands still, why, and what to do.
func stallSentence(s kafka.Stall, k config.Kafka, lastError string) string {
	return fmt.Sprintf("since %s: %s", s.Since.UTC().Format(time.RFC3339), stallReason(s, k, lastError))
}

func stallReason(s kafka.Stall, k config.Kafka, lastError string) string {
	brokers := strings.Join(k.Brokers, ",")
	where := "topic " + s.Topic
	if len(s.Partitions) > 0 {
		where += fmt.Sprintf(" (%d of its partitions)", len(s.Partitions))
	}
	switch s.Reason {
	case kafka.StallMissing:
		return fmt.Sprintf("%s does not exist; create it with: %s", where,
			preflight.CreateTopicCommand(brokers, s.Topic, int(k.CreateTopics.Partitions), 0))
	case kafka.StallNotAuthorized:
		return fmt.Sprintf("%s may not be written to by this user; allow it with: %s", where, preflight.AllowWriteCommand(brokers, k.SASL.User, s.Topic))
	case kafka.StallNoLeader:
		return where + " has no leader; start the brokers that hold its replicas"
	case kafka.StallReplicas:
		return where + " has fewer replicas in sync than min.insync.replicas; start the missing brokers"
	case kafka.StallCreation:
		return fmt.Sprintf("%s cannot be created: %s; create it by hand or correct kafka.create_topics", where, lastError)
	case kafka.StallProducerID:
		return fmt.Sprintf("%s waits for a producer id: %s", where, lastError)
	case kafka.StallPoison:
		return where + " holds a poison record; see the halt"
	case kafka.StallUnreachable:
		return fmt.Sprintf("%s is led by a broker that cannot be used: %s", where, lastError)
	case kafka.StallPartitionsGone:
		return where + " has fewer partitions than records were given to; see the relay's log"
	}
	return fmt.Sprintf("%s refuses records (%s): %s; correct its configuration", where, s.Reason, lastError)
}
