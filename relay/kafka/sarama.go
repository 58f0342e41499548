package kafka

import (
	"context"
	"fmt"
	"time"

	"github.com/IBM/sarama"
	gometrics "github.com/rcrowley/go-metrics"
)

// maxInFlight is how many requests a sender has on its connection. A broker works on one at a time; the next ones wait in its socket.
const maxInFlight = 3

// sarama makes the configuration of one connection. It is new each time: secrets are read again at each connect.
func (s *settings) sarama(ctx context.Context, read time.Duration) (*sarama.Config, error) {
	c := sarama.NewConfig()
	c.ClientID = s.ClientID
	c.Version = s.version
	c.ApiVersionsRequest = true
	c.Net.MaxOpenRequests = maxInFlight + 1 // never reached, so that AsyncProduce does not wait for a slot
	c.Net.DialTimeout = dialTimeout
	c.Net.ReadTimeout = read
	c.Net.WriteTimeout = read
	c.MetricRegistry = noMetrics{}
	if s.TLS != nil {
		c.Net.TLS.Enable = true
		c.Net.TLS.Config = s.TLS
	}
	if err := s.SASL.apply(ctx, c); err != nil {
		return nil, fmt.Errorf("kafka: credentials: %w", err)
	}
	return c, nil
}

// noMetrics is a registry that keeps nothing. sarama's own would keep four histograms with 1,028 samples for each topic.
type noMetrics struct{}

func (noMetrics) Each(func(string, any))            {}
func (noMetrics) Get(string) any                    { return nil }
func (noMetrics) GetAll() map[string]map[string]any { return nil }
func (noMetrics) Register(string, any) error        { return nil }
func (noMetrics) RunHealthchecks()                  {}
func (noMetrics) Unregister(string)                 {}
func (noMetrics) UnregisterAll()                    {}

// GetOrRegister gives a metric that does nothing, of the kind that the constructor would make.
func (noMetrics) GetOrRegister(_ string, constructor any) any {
	switch f := constructor.(type) {
	case func() gometrics.Histogram:
		return gometrics.NilHistogram{}
	case func() gometrics.Meter:
		return gometrics.NilMeter{}
	case func() gometrics.Counter:
		return gometrics.NilCounter{}
	case func() gometrics.Timer:
		return gometrics.NilTimer{}
	case func() gometrics.Gauge:
		return gometrics.NilGauge{}
	default:
		return f
	}
}
