// Package produce makes produce requests out of ready records, sends them and reads the answers. It speaks over a connection that sarama has opened,
// secured and logged in; sarama itself takes records as structs, encodes them into new memory for each request and copies that twice.
//
// An [Encoder] makes a request in buffers of its own, which serve the next one again. A [Pipe] sends requests in order and gives their answers in the
// same order. Neither knows what a record means, nor what to do about an answer.
package produce
