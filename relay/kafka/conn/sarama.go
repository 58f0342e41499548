package conn

import (
	"context"
	"time"

	"github.com/IBM/sarama"
	gometrics "github.com/rcrowley/go-metrics"
)

// Sarama makes the configuration of one connection; reads and writes on it take read at most. It is new each time: secrets are read again
// at each connect.
func (o *Options) Sarama(ctx context.Context, read time.Duration) (*sarama.Config, error) {
	c := sarama.NewConfig()
	c.ClientID = o.ClientID
	c.Version = o.Version
	c.ApiVersionsRequest = true
	c.Net.DialTimeout = DialTimeout
	c.Net.ReadTimeout = read
	c.Net.WriteTimeout = read
	c.MetricRegistry = noMetrics{}
	c.Net.Proxy.Enable = true
	c.Net.Proxy.Dialer = o.plainDialer(ctx)
	if err := o.SASL.apply(ctx, c); err != nil {
		return nil, &settingError{what: "the secret", key: "kafka.sasl.password_file and kafka.sasl.password_command", err: err}
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
