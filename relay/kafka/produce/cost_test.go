//go:build !race

package produce

import (
	"testing"

	"github.com/IBM/sarama"
)

// After the first requests, a request costs no memory.
func TestEncoderUsesItsBuffersAgain(t *testing.T) {
	fields := fieldsOf(500)
	for _, codec := range []sarama.CompressionCodec{sarama.CompressionNone, sarama.CompressionLZ4, sarama.CompressionGZIP, sarama.CompressionZSTD, sarama.CompressionSnappy} {
		var e Encoder
		encodeOne(&e, codec, fields)
		if n := testing.AllocsPerRun(50, func() { encodeOne(&e, codec, fields) }); n > 3 {
			t.Errorf("%s: %.1f allocations per request", codec, n)
		}
	}
}
