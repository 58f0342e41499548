package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"outbox-relay/config"
	"outbox-relay/relay/preflight"
	"outbox-relay/router"
)

func (a *app) grantsCommand() *cobra.Command {
	var onlyMySQL, onlyKafka, asJSON bool
	var source string
	c := &cobra.Command{
		Use:   "grants",
		Short: "Print the least rights that this configuration needs in MySQL and Kafka",
		Long: `Print the statements that make the account in MySQL, and the commands that allow the user in Kafka, with no more rights than a run of this
configuration, check and the other commands need. Nothing is connected to. The password is left to be filled in.

Exit codes: 0 printed, 64 usage, 78 configuration.`,
		Example: `  outbox-relay config grants
  outbox-relay config grants --mysql | sed "s/<password>/$(cat mysql.password)/" | mysql -u root`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			cfg, err := a.load()
			if err != nil {
				return err
			}
			asked, err := chosen(cfg, source)
			if err != nil {
				return err
			}
			r := &rights{}
			for _, one := range asked {
				r.add(one)
			}
			if onlyMySQL {
				r.Kafka = nil
			}
			if onlyKafka {
				r.MySQL = nil
			}
			if asJSON {
				return writeJSON(a.out, r)
			}
			_, err = a.out.Write([]byte(r.text(cfg)))
			return err
		},
	}
	c.Flags().BoolVar(&onlyMySQL, "mysql", false, "print the statements for MySQL only")
	c.Flags().BoolVar(&onlyKafka, "kafka", false, "print the commands for Kafka only")
	c.Flags().BoolVar(&asJSON, "json", false, "print them as JSON")
	sourceFlag(c, &source, "all if not given")
	c.MarkFlagsMutuallyExclusive("mysql", "kafka")
	return c
}

// rights are what the accounts of a configuration need.
type rights struct {
	MySQL []account       `json:"mysql,omitempty"`
	Kafka []preflight.ACL `json:"kafka,omitempty"`
}

// account is one in MySQL. Where the checkpoint is on another server than the source there are two.
type account struct {
	Relay   string            `json:"relay"`
	Server  []string          `json:"server"`
	User    string            `json:"user"`
	Require string            `json:"require,omitempty"` // SSL or X509
	Grants  []preflight.Grant `json:"grants"`
}

// add adds what the relay of a configuration needs.
func (r *rights) add(cfg *config.Config) {
	var tables []router.TableName
	for _, t := range cfg.Tables {
		name := router.TableName{Schema: t.Table.Schema, Name: t.Table.Table}
		if !slices.Contains(tables, name) {
			tables = append(tables, name)
		}
	}
	source := account{Relay: cfg.Name, Server: cfg.Source.Addresses, User: cfg.Source.User, Require: requireOf(cfg.Source.TLS), Grants: preflight.SourceGrants(tables)}
	k := cfg.Checkpoint
	switch {
	case k.Store != config.StoreMySQL:
		r.MySQL = append(r.MySQL, source)
	case len(k.Addresses) == 0:
		source.Grants = append(source.Grants, preflight.CheckpointGrant(k.Table.Schema))
		r.MySQL = append(r.MySQL, source)
	default:
		r.MySQL = append(r.MySQL, source, account{Relay: cfg.Name, Server: k.Addresses, User: k.User, Require: requireOf(k.TLS), Grants: []preflight.Grant{preflight.CheckpointGrant(k.Table.Schema)}})
	}
	for _, a := range preflight.ACLs(preflight.Options{Rules: rulesOf(cfg), Kafka: kafkaOptions(cfg), DeadLetterTopics: deadLetterTopics(cfg), CheckpointTopic: checkpointTopic(cfg)}, redriveGroup(cfg)) {
		same := func(b preflight.ACL) bool { return b.Resource == a.Resource && b.Name == a.Name }
		if !slices.ContainsFunc(r.Kafka, same) {
			r.Kafka = append(r.Kafka, a)
		}
	}
}

// requireOf is what the account should demand of its connections, as far as the configuration gives it.
func requireOf(t config.TLS) string {
	switch {
	case t.Mode == config.TLSDisabled || t.Mode == config.TLSPreferred:
		return ""
	case t.Cert != "":
		return "X509"
	}
	return "SSL"
}

func (r *rights) text(cfg *config.Config) string {
	var b strings.Builder
	for _, a := range r.MySQL {
		name := "'" + strings.NewReplacer("'", "''", `\`, `\\`).Replace(a.User) + "'@'%'"
		fmt.Fprintf(&b, "-- MySQL at %s: the account of the relay %s.\n", strings.Join(a.Server, ", "), a.Relay)
		fmt.Fprintf(&b, "CREATE USER IF NOT EXISTS %s IDENTIFIED WITH caching_sha2_password BY '<password>'", name)
		if a.Require != "" {
			b.WriteString(" REQUIRE " + a.Require)
		}
		b.WriteString(";\n")
		why := ""
		for _, g := range a.Grants {
			if g.Why != why {
				why = g.Why
				fmt.Fprintf(&b, "-- %s\n", why)
			}
			b.WriteString(g.SQL(name) + "\n")
		}
	}
	if len(r.MySQL) > 0 && len(r.Kafka) > 0 {
		b.WriteString("\n")
	}
	if len(r.Kafka) > 0 {
		fmt.Fprintf(&b, "# Kafka at %s: the user of the relay %s. Brokers without an authorizer need nothing of it.\n", strings.Join(cfg.Kafka.Brokers, ", "), cfg.Name)
	}
	for _, a := range r.Kafka {
		fmt.Fprintf(&b, "# %s\n%s\n", a.Why, a.Command(strings.Join(cfg.Kafka.Brokers, ","), cfg.Kafka.SASL.User))
	}
	return b.String()
}
