package preflight

import (
	"fmt"
	"strings"

	"outbox-relay/binlog"
	"outbox-relay/router"
)

// Grant is a right in MySQL that the account of a relay needs, and what for.
type Grant struct {
	Privileges string `json:"privileges"` // REPLICATION SLAVE
	On         string `json:"on"`         // *.* or a quoted name
	Why        string `json:"why"`
}

// SQL is the statement that gives the right to an account, such as 'relay'@'%'.
func (g Grant) SQL(account string) string {
	return fmt.Sprintf("GRANT %s ON %s TO %s;", g.Privileges, g.On, account)
}

// SourceGrants are all rights on the source, where the tables are read and, with a checkpoint schema, the checkpoint is kept.
func SourceGrants(tables []router.TableName) []Grant {
	grants := []Grant{
		{"REPLICATION SLAVE", "*.*", "to read the binlog; nothing works without it"},
		{"REPLICATION CLIENT", "*.*", "to see how much binlog is left before a purge, which databases the server leaves out of it, and whether a replica is behind"},
		{"XA_RECOVER_ADMIN", "*.*", "to see prepared XA transactions at a first start; not needed where nobody uses XA"},
	}
	for _, t := range tables {
		grants = append(grants, tableGrant(t))
	}
	return grants
}

// tableGrant is the right to read a table. MySQL has no patterns of tables but of databases, in which _ is one too: for a pattern it is that to read all of
// the databases.
func tableGrant(t router.TableName) Grant {
	on := binlog.QuoteName(t.Schema) + "." + binlog.QuoteName(t.Name)
	if t.IsPattern() {
		on = binlog.QuoteName(t.Schema) + ".*"
	}
	if (router.TableName{Schema: t.Schema}).IsPattern() {
		on = binlog.QuoteName(strings.ReplaceAll(t.Schema, "_", `\_`)) + ".*"
	}
	return Grant{"SELECT", on,
		"to read the columns' names where the binlog does not tell them (binlog_row_metadata=MINIMAL), to compare them with the rules in check, and to read rows in a snapshot"}
}

// CheckpointGrant is the right to keep checkpoints in a table of the schema. CREATE is for the first start, DELETE for checkpoint reset.
func CheckpointGrant(schema string) Grant {
	return Grant{"SELECT, INSERT, UPDATE, DELETE, CREATE", binlog.QuoteName(schema) + ".*", "to keep the checkpoint (checkpoint.store: mysql); CREATE for the first start, DELETE for checkpoint reset"}
}

// ACL is a right in Kafka that the user of a relay needs, and what for.
type ACL struct {
	Resource   string   `json:"resource"` // topic, group, transactional-id or cluster
	Name       string   `json:"name,omitempty"`
	Prefixed   bool     `json:"prefixed,omitempty"` // all names that begin with Name
	Operations []string `json:"operations"`
	Why        string   `json:"why"`
}

// Command is the shell command that gives the right; an unknown user is left to be filled in.
func (a ACL) Command(brokers, user string) string {
	if user == "" {
		user = "<user>"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "kafka-acls.sh --bootstrap-server %s --add --allow-principal User:%s", brokers, user)
	for _, o := range a.Operations {
		b.WriteString(" --operation " + o)
	}
	b.WriteString(" --" + a.Resource)
	switch {
	case a.Name == "*":
		b.WriteString(" '*'")
	case a.Name != "":
		b.WriteString(" " + a.Name)
	}
	if a.Prefixed {
		b.WriteString(" --resource-pattern-type prefixed")
	}
	return b.String()
}

// writing are the rights on a topic that is published to.
func writing(topic string) ACL {
	return ACL{Resource: "topic", Name: topic, Operations: []string{"Write", "Describe", "DescribeConfigs"}, Why: "to publish, and to know the topic's limits before a record is sent"}
}

// ACLs are all rights that a run needs in Kafka. group is where dead-letter redrive remembers how far it is; empty without.
func ACLs(o Options, group string) []ACL {
	var all []ACL
	literal := false
	seen := map[string]bool{}
	for _, u := range (&plan{Options: o}).topics() {
		a := writing(u.Topic)
		if u.Topic == "" {
			a = patterned(u.Template)
		}
		if o.Kafka.CreateTopics.Enabled {
			a.Operations = append(a.Operations, "Create")
			a.Why += "; Create for kafka.create_topics"
		}
		if seen[a.Name] {
			continue
		}
		seen[a.Name] = true
		literal = literal || !a.Prefixed
		all = append(all, a)
	}
	if !literal {
		all = append(all, ACL{Resource: "cluster", Operations: []string{"IdempotentWrite"}, Why: "to get a producer id before there is a topic of these names"})
	}
	for _, topic := range o.DeadLetterTopics {
		if seen[topic] {
			continue
		}
		seen[topic] = true
		a := writing(topic)
		a.Operations = append(a.Operations, "Read")
		a.Why = "to publish dead letters; Read for poison.park_keys and for dead-letter list and redrive"
		if o.Kafka.CreateTopics.Enabled {
			a.Operations = append(a.Operations, "Create")
		}
		all = append(all, a)
	}
	if len(o.DeadLetterTopics) > 0 && group != "" {
		all = append(all, ACL{Resource: "group", Name: group, Operations: []string{"Read"}, Why: "to remember which dead letters were published again"})
	}
	if c := o.CheckpointTopic; c != nil {
		all = append(all,
			ACL{Resource: "topic", Name: c.Topic, Operations: []string{"Read", "Write", "Describe", "DescribeConfigs", "Create"}, Why: "to keep the checkpoint; Create for the first start"},
			ACL{Resource: "transactional-id", Name: c.Name, Operations: []string{"Write", "Describe"}, Why: "to keep other instances of this name from writing"})
	}
	return all
}

// patterned is the right on topics whose names come from rows: on all that begin as the template does.
func patterned(template string) ACL {
	prefix, _, _ := strings.Cut(template, "{")
	a := writing(prefix)
	a.Prefixed = prefix != ""
	if prefix == "" {
		a.Name = "*"
	}
	a.Why += ": names come from rows (" + template + ")"
	return a
}
