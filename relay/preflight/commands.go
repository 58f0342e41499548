package preflight

import "fmt"

// CreateTopicCommand is the shell command that makes a topic. 0 replicas leave their number to the brokers.
func CreateTopicCommand(brokers, topic string, partitions, replicas int) string {
	command := fmt.Sprintf("kafka-topics.sh --bootstrap-server %s --create --topic %s --partitions %d", brokers, topic, partitions)
	if replicas > 0 {
		command += fmt.Sprintf(" --replication-factor %d", replicas)
	}
	if replicas > 2 {
		command += fmt.Sprintf(" --config min.insync.replicas=%d", replicas-1)
	}
	return command
}

// AllowWriteCommand is the shell command that lets a user write to a topic; an unknown user is left to be filled in.
func AllowWriteCommand(brokers, user, topic string) string {
	return writing(topic).Command(brokers, user)
}
