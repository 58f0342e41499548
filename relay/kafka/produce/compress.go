package produce

import (
	"errors"
	"io"

	"github.com/IBM/sarama"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy/xerial"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// compressor keeps what the codecs need from batch to batch; each is made when it is used first.
type compressor struct {
	sink   sink
	lz4    *lz4.Writer
	gzip   *gzip.Writer
	zstd   *zstd.Encoder
	framed []byte // by snappy
}

// sink gathers what a codec writes, as long as that is less than what it was made of.
type sink struct {
	buf   []byte
	limit int // of buf
}

var errNotSmaller = errors.New("it does not get smaller")

// Write implements io.Writer.
func (s *sink) Write(b []byte) (int, error) {
	if len(s.buf)+len(b) > s.limit {
		return 0, errNotSmaller
	}
	s.buf = append(s.buf, b...)
	return len(b), nil
}

// append appends src, compressed as Kafka wants it. False means that it does not get smaller, and was appended as it is.
func (c *compressor) append(dst, src []byte, codec sarama.CompressionCodec) ([]byte, bool) {
	from := len(dst)
	c.sink.limit = from + len(src)
	var err error
	switch codec {
	case sarama.CompressionLZ4:
		dst, err = c.appendLZ4(dst, src)
	case sarama.CompressionZSTD:
		dst, err = c.appendZstd(dst, src)
	case sarama.CompressionGZIP:
		dst, err = c.appendGzip(dst, src)
	case sarama.CompressionSnappy:
		c.framed = xerial.Encode(c.framed[:0], src)
		dst = append(dst, c.framed...)
	default:
		err = errNotSmaller
	}
	if err != nil || len(dst)-from >= len(src) {
		return append(dst[:from], src...), false
	}
	return dst, true
}

func (c *compressor) appendLZ4(dst, src []byte) ([]byte, error) {
	if c.lz4 == nil {
		c.lz4 = lz4.NewWriter(nil)
		if err := c.lz4.Apply(lz4.BlockSizeOption(lz4.Block64Kb), lz4.ChecksumOption(false)); err != nil {
			return dst, err
		}
	}
	return c.through(c.lz4, dst, src)
}

func (c *compressor) appendGzip(dst, src []byte) ([]byte, error) {
	if c.gzip == nil {
		c.gzip = gzip.NewWriter(nil)
	}
	return c.through(c.gzip, dst, src)
}

// through appends what a codec makes of src.
func (c *compressor) through(codec interface {
	io.WriteCloser
	Reset(io.Writer)
}, dst, src []byte,
) ([]byte, error) {
	c.sink.buf = dst
	codec.Reset(&c.sink)
	_, err := codec.Write(src)
	if closed := codec.Close(); err == nil {
		err = closed
	}
	dst, c.sink.buf = c.sink.buf, nil
	return dst, err
}

func (c *compressor) appendZstd(dst, src []byte) ([]byte, error) {
	if c.zstd == nil {
		var err error
		if c.zstd, err = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false)); err != nil {
			return dst, err
		}
	}
	return c.zstd.EncodeAll(src, dst), nil
}
