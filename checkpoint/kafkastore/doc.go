// Package kafkastore keeps a relay's checkpoint in a Kafka topic of one partition that is compacted: key is the relay's name, value the encoding
// of package checkpoint.
//
// A save is one transaction with one record, under a transactional.id that is the relay's name. Loading takes that id first, which ends whatever
// another instance has open and refuses all it tries later; only then is the partition read to its end. So a checkpoint that was loaded is the last one,
// and an instance that was replaced cannot overwrite it. The topic is made where there is none and the brokers allow it.
//
// The package deliberately takes no lock: which instance is active is decided elsewhere, and only that one may call Load or Save. It does not
// retry a failed call, and it does not repair what it cannot trust, nor change a topic that is there.
package kafkastore
