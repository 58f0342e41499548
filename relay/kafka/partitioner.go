package kafka

import (
	"encoding/binary"
	"hash/crc32"
)

// partitioners compute the partition of a key among n as other clients do. An empty key is hashed like any other. (librdkafka's own
// default, consistent_random, spreads empty keys at random; its partitioner "consistent" hashes them as crc32 does here.) A nil key has
// no partition: records without one go to a partition that changes every few kilobytes.
var partitioners = map[string]func(key []byte, n int32) int32{
	"":        murmur2Partition,
	"murmur2": murmur2Partition,
	"crc32":   crc32Partition,
	"fnv1a":   fnv1aPartition,
}

// murmur2Partition is the default of Kafka's Java client.
func murmur2Partition(key []byte, n int32) int32 {
	return int32(murmur2(key)&0x7fffffff) % n
}

// crc32Partition is librdkafka's "consistent".
func crc32Partition(key []byte, n int32) int32 {
	return int32(crc32.ChecksumIEEE(key) % uint32(n))
}

// fnv1aPartition is sarama's NewHashPartitioner: the hash as a signed number, and the absolute value of the remainder.
func fnv1aPartition(key []byte, n int32) int32 {
	h := uint32(2166136261)
	for _, c := range key {
		h = (h ^ uint32(c)) * 16777619
	}
	p := int32(h) % n
	if p < 0 {
		p = -p
	}
	return p
}

// murmur2 is MurmurHash2 of 32 bits with the seed that Kafka uses.
func murmur2(data []byte) uint32 {
	const m, r = 0x5bd1e995, 24
	h := 0x9747b28c ^ uint32(len(data))
	for len(data) >= 4 {
		k := binary.LittleEndian.Uint32(data) * m
		k ^= k >> r
		h = h*m ^ k*m
		data = data[4:]
	}
	switch len(data) {
	case 3:
		h ^= uint32(data[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(data[1]) << 8
		fallthrough
	case 1:
		h = (h ^ uint32(data[0])) * m
	}
	h ^= h >> 13
	h *= m
	return h ^ h>>15
}
