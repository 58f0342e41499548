package sandbox

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// nodeConfig is what differs between the nodes of a cluster; each is broker and controller.
//
// A node has three listeners. CLIENT is what the tests' clients use; tests may give it a
// proxy, TLS or SASL. INTERNAL carries replication and the sandbox's own questions, so
// that neither is hit by what a test does to CLIENT. CONTROLLER is the quorum's.
type nodeConfig struct {
	id         int
	nodes      int
	data       string
	client     string // address that CLIENT listens on
	advertised string // address that clients are told: client, or a proxy's
	internal   string
	controller string
	voters     string
	more       map[string]listenerAddrs // of further listeners by name
}

// listenerAddrs are where a listener listens, and what clients are told: the same, or a proxy.
type listenerAddrs struct{ own, advertised string }

const defaultProtocols = "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT"

// properties returns the node's configuration file; extra overrides.
func (n nodeConfig) properties(extra map[string]string) string {
	copies, inSync := "1", "1"
	if n.nodes >= 3 {
		copies, inSync = "3", "2"
	}
	all := map[string]string{
		"process.roles":                                    "broker,controller",
		"node.id":                                          strconv.Itoa(n.id),
		"listeners":                                        "CLIENT://" + n.client + ",INTERNAL://" + n.internal + ",CONTROLLER://" + n.controller,
		"advertised.listeners":                             "CLIENT://" + n.advertised + ",INTERNAL://" + n.internal,
		"listener.security.protocol.map":                   defaultProtocols,
		"inter.broker.listener.name":                       "INTERNAL",
		"controller.listener.names":                        "CONTROLLER",
		"controller.quorum.voters":                         n.voters,
		"log.dirs":                                         n.data,
		"auto.create.topics.enable":                        "false",
		"default.replication.factor":                       copies,
		"min.insync.replicas":                              inSync,
		"offsets.topic.replication.factor":                 copies,
		"offsets.topic.num.partitions":                     "1",
		"transaction.state.log.replication.factor":         copies,
		"transaction.state.log.min.isr":                    inSync,
		"transaction.state.log.num.partitions":             "1",
		"share.coordinator.state.topic.replication.factor": copies,
		"share.coordinator.state.topic.min.isr":            inSync,
		"group.initial.rebalance.delay.ms":                 "0",
		"num.network.threads":                              "2",
		"num.io.threads":                                   "4",
		// A killed broker can come back only when the controller has given it up: after 6 s
		// instead of 9 s. Still less makes a lone broker lose its session when the machine
		// is overloaded (seen with 3 s).
		"broker.session.timeout.ms":    "6000",
		"broker.heartbeat.interval.ms": "500",
		// The default of 128 MiB does not fit the small heap.
		"log.cleaner.dedupe.buffer.size": "2097152",
	}
	for _, name := range slices.Sorted(maps.Keys(n.more)) {
		all["listeners"] += "," + name + "://" + n.more[name].own
		all["advertised.listeners"] += "," + name + "://" + n.more[name].advertised
	}
	maps.Copy(all, extra)
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(all)) {
		// A backslash is the format's escape character.
		fmt.Fprintf(&b, "%s=%s\n", key, strings.ReplaceAll(all[key], `\`, `\\`))
	}
	return b.String()
}

// writeMeta gives a copied data folder its own identity (meta.properties, version 1).
func writeMeta(data, cluster string, node int) error {
	text := fmt.Sprintf("version=1\ncluster.id=%s\nnode.id=%d\ndirectory.id=%s\n", cluster, node, newKafkaID())
	return os.WriteFile(filepath.Join(data, "meta.properties"), []byte(text), 0o644)
}

// newKafkaID returns a random id as Kafka writes them: 16 bytes in URL-safe base 64. A
// leading "-" would read as an option.
func newKafkaID() string {
	for {
		var b [16]byte
		_, _ = rand.Read(b[:]) // never fails
		if id := base64.RawURLEncoding.EncodeToString(b[:]); id[0] != '-' {
			return id
		}
	}
}
