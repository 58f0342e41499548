package main

import (
	"strings"

	"github.com/spf13/cobra"

	"outbox-relay/config"
)

// guide is what the help of a command teaches besides its own text.
type guide struct {
	example string // lines to copy
	touches string // what it reads and changes, and whether it may be used while a relay runs
}

// guides by the words behind outbox-relay.
var guides = map[string]guide{
	"run": {
		`  outbox-relay run --config /etc/outbox-relay/outbox-relay.yaml
  outbox-relay run --sink stdout --until-caught-up --set source.start=earliest
  outbox-relay run --set log.level=debug --no-standby`,
		"reads the binlog, writes to the topics of the rules and to the checkpoint. While another relay of the name runs it stands by.",
	},
	"check": {
		`  outbox-relay check
  outbox-relay check --json | jq '.items[] | select(.state != "ok")'
  outbox-relay check --source shard1`,
		"reads from MySQL, Kafka and the files, and changes nothing. Safe while a relay runs.",
	},
	"status": {
		`  outbox-relay status
  outbox-relay status --json | jq .lag_seconds`,
		"asks the relay on this machine over http.address. Safe at any time.",
	},
	"pause": {
		`  outbox-relay pause
  outbox-relay pause --source shard1`,
		"changes the running relay and its checkpoint. Rows wait in the binlog until resume.",
	},
	"resume": {
		`  outbox-relay resume
  outbox-relay resume --source shard1`,
		"changes the running relay and its checkpoint.",
	},
	"checkpoint show": {
		`  outbox-relay checkpoint show
  outbox-relay checkpoint show --json | jq -r .gtid_set`,
		"reads the checkpoint. Safe while a relay runs.\n\nExit codes: 0 shown, 1 there is none or it cannot be read, 64 usage, 78 configuration.",
	},
	"checkpoint set": {
		`  outbox-relay checkpoint set '3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5'
  outbox-relay checkpoint set "$(cat position)" --source shard1`,
		"replaces the checkpoint. Refused while a relay of the name runs anywhere.\n\nExit codes: 0 set, 1 refused or failed, 64 usage, 78 configuration.",
	},
	"checkpoint reset": {
		`  outbox-relay checkpoint reset
  outbox-relay checkpoint reset --offline`,
		"removes the checkpoint. Refused while a relay of the name runs anywhere.\n\nExit codes: 0 removed, 1 refused or failed, 64 usage, 78 configuration.",
	},
	"dead-letter list": {
		`  outbox-relay dead-letter list
  outbox-relay dead-letter list --all --json | jq -r .reason | sort | uniq -c`,
		"reads the dead-letter topic. Safe while a relay runs.\n\nExit codes: 0 listed, 1 failed, 64 usage, 78 configuration.",
	},
	"dead-letter redrive": {
		`  outbox-relay dead-letter redrive --dry-run
  outbox-relay dead-letter redrive --topic outbox.dead-letter`,
		"reads the dead-letter topic, writes to the topics of the rules and to a consumer group. Safe while a relay runs; run one at a time.\n\nExit codes: 0 all published, 1 some were not, 64 usage, 78 configuration.",
	},
	"config print": {
		`  outbox-relay config print
  OUTBOX_RELAY__KAFKA__LINGER=5ms outbox-relay config print --set kafka.compression=zstd`,
		"reads the configuration. Safe at any time.\n\nExit codes: 0 printed, 64 usage, 78 configuration.",
	},
	"config example": {
		`  outbox-relay config example > outbox-relay.yaml`,
		"reads nothing. Safe at any time.",
	},
	"config grants": {
		touches: "reads the configuration. Safe at any time.",
	},
	"config from-debezium": {
		`  outbox-relay config from-debezium connector.json > outbox-relay.yaml
  outbox-relay config from-debezium connector.properties --offset offsets.json`,
		"reads the files that it is given. Safe at any time.",
	},
	"version": {
		`  outbox-relay version`,
		"reads nothing. Safe at any time.",
	},
}

// teach gives each command its examples and says what it touches.
func teach(root *cobra.Command) {
	for name, g := range guides {
		c, _, err := root.Find(strings.Fields(name))
		if err != nil {
			panic(err) // a guide for a command that is gone
		}
		if g.example != "" {
			c.Example = g.example
		}
		if c.Long == "" {
			c.Long = c.Short + "."
		}
		text, codes, found := strings.Cut(g.touches, "\n\n")
		c.Long += "\n\nIt " + text
		if found {
			c.Long += "\n\n" + codes
		}
	}
}

// complete offers the values of flags to the shell.
func (a *app) complete(root *cobra.Command) {
	_ = root.MarkPersistentFlagFilename("config", "yaml", "yml") // fails for a flag that is not there
	_ = root.RegisterFlagCompletionFunc("set", func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		return setCompletions(typed), cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
	})
	each(root, func(c *cobra.Command) {
		if c.Flags().Lookup("source") != nil {
			_ = c.RegisterFlagCompletionFunc("source", a.sourceCompletions)
		}
	})
}

// each calls f for a command and all below it.
func each(c *cobra.Command, f func(*cobra.Command)) {
	f(c)
	for _, below := range c.Commands() {
		each(below, f)
	}
}

// setCompletions gives keys, and behind the sign the choices of the key.
func setCompletions(typed string) (offers []string) {
	path, _, valued := strings.Cut(typed, "=")
	for _, k := range config.Keys() {
		switch {
		case !valued && strings.HasPrefix(k.Path, typed):
			offers = append(offers, k.Path+"=")
		case valued && k.Path == path:
			for _, choice := range k.Choices {
				offers = append(offers, path+"="+choice)
			}
		}
	}
	return offers
}

// sourceCompletions gives the entries of sources, where the configuration can be read.
func (a *app) sourceCompletions(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	cfg, err := a.load()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, s := range cfg.Sources {
		names = append(names, s.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
