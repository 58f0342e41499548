package kafka

import (
	"context"
	"errors"
	"slices"

	"github.com/IBM/sarama"

	"outbox-relay/relay/kafka/conn"
)

// ListTopics gives the names of the topics that the user may see, sorted, without those of the brokers themselves. It takes the connection
// settings of o and asks the first broker that answers. It blocks for seconds at most.
func ListTopics(ctx context.Context, o Options) ([]string, error) {
	o.Acked, o.Poisoned = func([]uint64) {}, func(*PoisonError) {}
	s, err := o.settings()
	if err != nil {
		return nil, err
	}
	var failures []error
	for _, addr := range s.Brokers {
		names, err := listTopics(ctx, s, addr)
		if err == nil {
			return names, nil
		}
		failures = append(failures, err)
	}
	return nil, errors.Join(failures...)
}

func listTopics(ctx context.Context, s *settings, addr string) ([]string, error) {
	l, err := conn.Dial(ctx, &s.conn, addr, controlRead, nil)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	meta, err := l.Broker.GetMetadata(sarama.NewMetadataRequest(s.version, nil))
	if err != nil {
		return nil, s.conn.Explain(l, addr, err)
	}
	var names []string
	for _, t := range meta.Topics {
		if !t.IsInternal {
			names = append(names, t.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}
