package kafka

import (
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// otherTopics is the label of topics beyond Options.TopicsLimit.
const otherTopics = "other"

// metrics of this package. Labels are bounded: class by the table of errors, topic by Options.TopicsLimit.
type metrics struct {
	registerer prometheus.Registerer
	all        []prometheus.Collector

	records    *prometheus.CounterVec
	bytes      *prometheus.CounterVec
	errors     [len(classNames)]prometheus.Counter
	duplicates prometheus.Counter
	epochs     prometheus.Counter

	mu     sync.Mutex
	topics int
	limit  int
	other  *topicMetrics
}

// topicMetrics are the counters of one topic.
type topicMetrics struct {
	records prometheus.Counter
	bytes   prometheus.Counter
}

func newMetrics(p *Publisher) (*metrics, error) {
	counter := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Name: "outbox_relay_" + name, Help: help}
	}
	gauge := func(name, help string, f func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "outbox_relay_" + name, Help: help}, f)
	}
	m := &metrics{registerer: p.o.Registerer, limit: p.o.TopicsLimit}
	m.records = prometheus.NewCounterVec(counter("published_total", "Records acknowledged by all in-sync replicas, and committed where they are sent in transactions."), []string{"topic"})
	m.bytes = prometheus.NewCounterVec(counter("published_bytes_total", "Bytes of acknowledged batches before compression."), []string{"topic"})
	errs := prometheus.NewCounterVec(counter("publish_errors_total", "Failed attempts to publish, by class of the error."), []string{"class"})
	for c, name := range classNames {
		if class(c) != classOK {
			m.errors[c] = errs.WithLabelValues(name)
		}
	}
	m.duplicates = prometheus.NewCounter(counter("possible_duplicates_total",
		"Records sent again under a new producer epoch although an earlier attempt may be in the log."))
	m.epochs = prometheus.NewCounter(counter("producer_epochs_total", "New epochs of a partition, after broker and producer disagreed."))
	m.all = []prometheus.Collector{
		m.records, m.bytes, errs, m.duplicates, m.epochs,
		gauge("in_flight_records", "Records accepted and not acknowledged.", func() float64 {
			p.mu.Lock()
			defer p.mu.Unlock()
			return float64(p.outstanding + p.txn.uncommitted())
		}),
		gauge("in_flight_bytes", "Memory of records accepted and not acknowledged, in bytes.", func() float64 {
			p.mu.Lock()
			defer p.mu.Unlock()
			return float64(p.chunks.used)
		}),
		gauge("stalled_topics", "Topics with records that cannot be published at present.", func() float64 {
			return float64(len(p.Stats().Stalled))
		}),
	}
	if m.registerer == nil {
		return m, nil
	}
	for i, c := range m.all {
		if err := m.registerer.Register(c); err != nil {
			m.all = m.all[:i]
			m.unregister()
			return nil, fmt.Errorf("kafka: registering metrics: %w", err)
		}
	}
	return m, nil
}

// unregister makes room for another Publisher.
func (m *metrics) unregister() {
	if m.registerer == nil {
		return
	}
	for _, c := range m.all {
		m.registerer.Unregister(c)
	}
}

// topic gives the counters of a topic.
func (m *metrics) topic(name string) topicMetrics {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.topics >= m.limit {
		if m.other == nil {
			m.other = &topicMetrics{m.records.WithLabelValues(otherTopics), m.bytes.WithLabelValues(otherTopics)}
		}
		return *m.other
	}
	m.topics++
	return topicMetrics{m.records.WithLabelValues(name), m.bytes.WithLabelValues(name)}
}
