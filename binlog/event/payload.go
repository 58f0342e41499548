package event

// Compression is how a TRANSACTION_PAYLOAD is packed.
type Compression uint8

const (
	CompressionZSTD Compression = 0
	CompressionNone Compression = 255
)

// PayloadHead stands before the packed events of a TRANSACTION_PAYLOAD. The events inside have 19-byte headers with
// log position 0 and no checksums; the last of them decides how the transaction ends.
type PayloadHead struct {
	Compression      Compression
	Size             uint64 // packed bytes; they fill the body from Offset on
	UncompressedSize uint64 // as the server claims it: nothing to allocate by
	Offset           int    // where the packed bytes begin in the body
}

// Fields of the payload head.
const (
	payloadEnd              = 0
	payloadSize             = 1
	payloadCompression      = 2
	payloadUncompressedSize = 3
)

// MaxPayloadHead is a length of which every payload head is shorter: a reader that streams the body needs no more of it.
const MaxPayloadHead = 128

// ParsePayloadHead reads the head, which is `u8 type, u8 length, value` with values that are lenenc again, up to
// type 0. b may be cut off anywhere behind the head: nothing is compared with len(b).
func ParsePayloadHead(b []byte) (PayloadHead, error) {
	const t = TypeTransactionPayload
	h := PayloadHead{Compression: CompressionNone}
	c := cursor{b: b[:min(len(b), MaxPayloadHead)]}
	have := len(c.b)
	for {
		field := c.lenenc()
		if c.bad {
			return PayloadHead{}, malformed(t, "head is cut off")
		}
		if field == payloadEnd {
			h.Offset = have - len(c.b)
			return h, nil
		}
		value := cursor{b: c.bytes(c.lenenc())}
		switch field {
		case payloadSize:
			h.Size = value.lenenc()
		case payloadUncompressedSize:
			h.UncompressedSize = value.lenenc()
		case payloadCompression:
			v := value.lenenc()
			h.Compression = Compression(v)
			if v != uint64(CompressionZSTD) && v != uint64(CompressionNone) {
				return PayloadHead{}, newer(t, "unknown compression %d", v)
			}
		}
		if c.bad || value.bad {
			return PayloadHead{}, malformed(t, "head is cut off")
		}
	}
}
