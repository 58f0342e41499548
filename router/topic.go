package router

import (
	"errors"
	"fmt"
)

// maxTopic is the longest topic name, in bytes: the broker makes a folder `<topic>-<partition>` of it.
const maxTopic = 249

var (
	errTopicEmpty = errors.New("empty topic name")
	errTopicDots  = errors.New("topic name . or ..")
	errTopicOwned = errors.New("topic of the brokers themselves, which refuse producers")
)

// CheckTopic tells whether a broker takes a topic of this name from a producer (the rules of Kafka's Topic.validate, and its internal
// topics). It does not allocate for a good name.
func CheckTopic(name []byte) error {
	switch {
	case len(name) == 0:
		return errTopicEmpty
	case len(name) > maxTopic:
		return fmt.Errorf("topic name of %d bytes, %d are allowed", len(name), maxTopic)
	}
	switch string(name) {
	case ".", "..":
		return errTopicDots
	case "__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata":
		return errTopicOwned
	}
	return checkTopicPart(name)
}

// reservedText says why no record may go to a topic of [Options.Reserved].
func reservedText(topic, what string) string {
	return fmt.Sprintf("%s is the topic of the relay's %s", topic, what)
}

// checkTopicPart checks the characters alone, for the literal pieces of a template.
func checkTopicPart(name []byte) error {
	for _, c := range name {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '_', c == '-':
		default:
			return fmt.Errorf("topic name with %q: letters, digits, dot, underscore and hyphen are allowed", rune(c))
		}
	}
	return nil
}

// interner keeps one string for equal bytes, so that a steady set of names costs no allocation. It holds a bounded number: names come
// from data, and a table with endless different ones must not fill the memory.
type interner struct {
	known map[string]string
	limit int
}

func newInterner(limit int) *interner {
	return &interner{known: make(map[string]string), limit: limit}
}

// lookup returns the kept string of b, if there is one.
func (n *interner) lookup(b []byte) (string, bool) {
	s, ok := n.known[string(b)]
	return s, ok
}

// add keeps b. When the room is full, all are forgotten: the names in use come back at one allocation each.
func (n *interner) add(b []byte) string {
	if len(n.known) >= n.limit {
		clear(n.known)
	}
	s := string(b)
	n.known[s] = s
	return s
}
