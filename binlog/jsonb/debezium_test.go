package jsonb_test

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"outbox-relay/binlog/jsonb"
)

// doc makes a document of one value.
func doc(typ byte, raw []byte) []byte { return append([]byte{typ}, raw...) }

func double(f float64) []byte {
	return doc(0x0b, binary.LittleEndian.AppendUint64(nil, math.Float64bits(f)))
}

// clock packs a TIME; negative ones as the server does, as the negated whole.
func clock(negative bool, hour, minute, second, micros int64) []byte {
	packed := (hour<<12|minute<<6|second)<<24 | micros
	if negative {
		packed = -packed
	}
	return doc(0x0f, binary.LittleEndian.AppendUint64([]byte{11, 8}, uint64(packed)))
}

func TestDebeziumText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		doc  []byte
		want string
	}{
		{"nothing", nil, "{}"},
		{"whole double", double(100), "100.0"},
		{"double with an exponent in Java", double(1e10), "10000000000"},
		{"small double", double(0.0001), "0.000100000000000000004792173602385929598312941379845142364501953125"},
		{"largest plain double", double(9999999.5), "9999999.5"},
		{"negative zero", double(math.Copysign(0, -1)), "-0.0"},
		{"control character", doc(0x0c, []byte("\x02\x0b\n")), `"\u000B\n"`},
		{"time", clock(false, 11, 12, 13, 120000), `"11:12:13.12"`},
		{"time below zero", clock(true, 11, 12, 13, 0), `"12:0-13:0-13"`},
		{"time below zero with a fraction", clock(true, 838, 59, 58, 500000), `"839:0-60:0-59.00000-5"`},
		{"binary", doc(0x0f, []byte{15, 3, 0, 0xff, 0x10}), `"AP8Q"`},
	} {
		got, err := jsonb.AppendDebezium(nil, c.doc)
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %s, %v, want %s", c.name, got, err, c.want)
		}
	}
	smallest, err := jsonb.AppendDebezium([]byte("x"), double(5e-324))
	if err != nil || len(smallest) != 1+2+1074 || !strings.HasSuffix(string(smallest), "5625") {
		t.Errorf("smallest double: %d bytes, %v", len(smallest), err)
	}
	if got, err := jsonb.AppendDebezium([]byte("x"), []byte{0x0b, 1}); err == nil || string(got) != "x" {
		t.Errorf("a damaged document gave %q, %v", got, err)
	}
}
