package relaytest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"strconv"
)

// Row is a committed row with the record that it has to become.
type Row struct {
	// ID is the text of the row's id, unique among all rows, as the messages' id header has it.
	ID []byte
	// Topic, Key and Value of the record. A nil Key or Value means null.
	Topic string
	Key   []byte
	Value []byte
	// Headers are all of the record's headers in their order, without outbox-relay-position.
	Headers []Header
}

// Header of a message. A nil Value means null.
type Header struct {
	Key   string
	Value []byte
}

// Message is what a consumer received. A nil Key or Value means null.
type Message struct {
	Topic     string
	Partition int32
	Offset    int64
	Key       []byte
	Value     []byte
	Headers   []Header
	// Millis is the timestamp, in milliseconds since 1970 UTC; where Consume gives the message.
	Millis int64
	// Producer is the producer id of the record's batch, -1 for a producer without.
	Producer int64
	// Appended is the Unix time in milliseconds at which the broker appended the batch, 0 where the topic keeps the producer's time.
	Appended int64
}

// Options say what a run was allowed to do. The zero value is the strictest: no restart, so no duplicate.
type Options struct {
	// IDHeader is the header that holds the id. Empty means "id".
	IDHeader string
	// Restarts is how often the relay was started again, or another one took over: as often each partition may be replayed.
	Restarts int
	// LateRequests accepts any pattern of duplicates when Restarts is above 0. It is for runs that kill a relay while a broker is frozen:
	// when the broker goes on, it may finish a request of the dead relay in the middle of the new one's.
	LateRequests bool
	// Unfinished accepts that the run ended within a replay. It is for runs whose last relay was killed.
	Unfinished bool
	// KeysMove accepts rows of one key in several partitions: for topics that got partitions during the run, and for rules with a partition
	// column. Order is then judged within each partition, and after a restart any pattern of duplicates is accepted.
	KeysMove bool
	// ByProducer judges replays by the producer ids of the messages: after an end of the relay its next producer begins anywhere in what a
	// partition holds, and from there each producer goes on without a repetition or a gap, whatever another one writes in between. So a request
	// of a dead relay that arrives late is no fault, and a repetition by one producer is always one. Each producer that begins in the past of
	// a partition counts as a replay of it.
	ByProducer bool
	// GrownTopics are topics that got partitions during the run: KeysMove holds for them alone.
	GrownTopics []string
	// PartialTransactions accepts gaps in the numbers of the position header: for transactions with rows that no rule publishes, or with rows
	// for topics that the validator does not see.
	PartialTransactions bool
	// Examples is the number of examples that are kept of each fault. 0 means 5.
	Examples int
}

// Validator compares committed rows with received messages. Tell it all committed rows first, then all messages. It keeps about 100
// bytes for each row (hashes of the contents, the id itself) and nothing for a message. It is for one goroutine.
type Validator struct {
	o    Options
	seed maphash.Seed

	rows       []rowState
	ids        []byte            // the ids of rows, one behind the other
	byID       map[uint64]uint32 // hash of the id, or a free place behind it, to the row
	rolledBack map[string]struct{}

	topics  map[string]uint32
	keys    map[string]uint32 // topic number and key
	states  []keyState
	byPlace map[place]*partitionState
	gtids   map[uint64]uint32 // hash of the GTID's text

	received   int
	duplicates int
	faults     faults
}

// rowState is one committed row and how it arrived.
type rowState struct {
	idEnd   uint64 // of its id in Validator.ids; it begins where the row before ends
	value   uint64 // hashes
	headers uint64
	key     uint32 // index of states, or noKey
	rank    uint32 // among the rows of its key, from 0
	topic   uint32

	seen      uint32 // how often it was received in its topic
	partition int32  // of the first occurrence
	index     uint32 // in partitionState.first
	gtid      uint32 // from the first occurrence's position header, noGTID without
	n         uint32
	selected  uint32 // the same of the position that a snapshot gives
}

const (
	noKey  = ^uint32(0)
	noGTID = ^uint32(0)
)

// keyState is a key of one topic.
type keyState struct {
	text      string
	rows      uint32
	partition int32           // of its first row, or -1
	split     bool            // reported as being in two partitions
	highest   int64           // rank of the latest row that arrived, or -1
	elsewhere map[int32]int64 // the same by partition, only with KeysMove
}

type place struct {
	topic     uint32
	partition int32
}

// partitionState is the replay check of one partition; rows without key take no part in it, since their partition is a matter of chance.
type partitionState struct {
	moving  bool     // keys move in its topic
	first   []uint32 // F: rows by first occurrence
	next    int      // index in first of what a replay has to repeat next; len(first) outside of a replay
	rewinds int
	last    int64 // offset
	// producers has, with ByProducer, what next is for each producer.
	producers map[int64]int
}

// NewValidator makes a Validator.
func NewValidator(o Options) *Validator {
	if o.IDHeader == "" {
		o.IDHeader = "id"
	}
	if o.Examples <= 0 {
		o.Examples = 5
	}
	return &Validator{
		o: o, seed: maphash.MakeSeed(),
		byID: make(map[uint64]uint32), rolledBack: make(map[string]struct{}),
		topics: make(map[string]uint32), keys: make(map[string]uint32), byPlace: make(map[place]*partitionState), gtids: make(map[uint64]uint32),
		faults: faults{keep: o.Examples, found: make(map[Kind]*Finding)},
	}
}

// Committed tells of a committed row. The rows of one key come in their commit order. It copies what it keeps.
func (v *Validator) Committed(r Row) {
	if v.received > 0 {
		v.faults.add(Oracle, "id %q is told as committed after messages were", r.ID)
	}
	if _, known := v.find(r.ID); known {
		v.faults.add(Oracle, "id %q is committed twice", r.ID)
		return
	}
	state := rowState{key: noKey, topic: number(v.topics, r.Topic), value: v.hashValue(r.Value), headers: v.hashHeaders(r.Headers), partition: -1, gtid: noGTID, selected: noGTID}
	if r.Key != nil {
		state.key = v.key(state.topic, r.Key)
		state.rank = v.states[state.key].rows
		v.states[state.key].rows++
	}
	v.ids = append(v.ids, r.ID...)
	state.idEnd = uint64(len(v.ids))
	at := maphash.Bytes(v.seed, r.ID)
	for _, taken := v.byID[at]; taken; _, taken = v.byID[at] {
		at++
	}
	v.byID[at] = uint32(len(v.rows))
	v.rows = append(v.rows, state)
}

// RolledBack tells of a row that was written and not committed, so that the report can say so when it turns up. Other ids that are not
// committed are faults all the same.
func (v *Validator) RolledBack(id []byte) { v.rolledBack[string(id)] = struct{}{} }

// find gives the index of a committed row.
func (v *Validator) find(id []byte) (uint32, bool) {
	at := maphash.Bytes(v.seed, id)
	for {
		row, ok := v.byID[at]
		if !ok {
			return 0, false
		}
		if bytes.Equal(v.id(row), id) {
			return row, true
		}
		at++
	}
}

func (v *Validator) id(row uint32) []byte {
	from := uint64(0)
	if row > 0 {
		from = v.rows[row-1].idEnd
	}
	return v.ids[from:v.rows[row].idEnd]
}

func (v *Validator) key(topic uint32, key []byte) uint32 {
	name := string(append(binary.BigEndian.AppendUint32(nil, topic), key...))
	k := number(v.keys, name)
	if int(k) == len(v.states) {
		v.states = append(v.states, keyState{text: name[4:], partition: -1, highest: -1})
	}
	return k
}

// number gives equal strings equal numbers, from 0 without gaps.
func number[K comparable](known map[K]uint32, s K) uint32 {
	n, ok := known[s]
	if !ok {
		n = uint32(len(known))
		known[s] = n
	}
	return n
}

// hashValue tells null from empty.
func (v *Validator) hashValue(b []byte) uint64 {
	if b == nil {
		return 0
	}
	return maphash.Bytes(v.seed, b) | 1
}

func (v *Validator) hashHeaders(headers []Header) uint64 {
	var h maphash.Hash
	h.SetSeed(v.seed)
	for _, x := range headers {
		if x.Key != positionHeader {
			writeHeader(&h, x)
		}
	}
	return h.Sum64()
}

func writeHeader(h *maphash.Hash, x Header) {
	var size [8]byte
	binary.LittleEndian.PutUint32(size[:4], uint32(len(x.Key)))
	binary.LittleEndian.PutUint32(size[4:], uint32(len(x.Value)))
	if x.Value == nil {
		binary.LittleEndian.PutUint32(size[4:], ^uint32(0))
	}
	_, _ = h.Write(size[:])
	_, _ = h.WriteString(x.Key)
	_, _ = h.Write(x.Value)
}

const positionHeader = "outbox-relay-position"

// position is a parsed position header.
type position struct {
	gtid []byte
	n    uint32
}

func parsePosition(b []byte) (position, error) {
	at := bytes.LastIndexByte(b, '#')
	if at <= 0 {
		return position{}, fmt.Errorf("%q is not <gtid>#<n>", b)
	}
	digits := string(b[at+1:])
	n, err := strconv.ParseUint(digits, 10, 32)
	if err != nil || strconv.FormatUint(n, 10) != digits {
		return position{}, fmt.Errorf("%q is not <gtid>#<n>", b)
	}
	return position{gtid: b[:at], n: uint32(n)}, nil
}
