package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"outbox-relay/config/fromdebezium"
)

func (a *app) fromDebeziumCommand() *cobra.Command {
	var offset string
	c := &cobra.Command{
		Use:   "from-debezium FILE",
		Short: "Translate the configuration of a Debezium connector",
		Long: `Translate the configuration of a Debezium MySQL connector with the Outbox Event Router: JSON as Connect's REST interface shows it, or a
properties file. The result goes to the standard output, with comments on what is left out and why; passwords are not copied.

With --offset the connector's stored offset becomes source.start: the JSON of GET /connectors/NAME/offsets, or of the record in Connect's topic of
offsets. Stop the connector first. Its offset is that of the last row that Debezium published and stored: what it published after that is published
again, and nothing is left out.

Exit codes: 0 translated, 1 some settings that change records have no counterpart (they are named, and the result is printed), or there is nothing
to translate, 64 usage.`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{fmt.Errorf("%s takes one file, got %d", c.CommandPath(), len(args))}
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error { return a.fromDebezium(args[0], offset) },
	}
	c.Flags().StringVar(&offset, "offset", "", "file with the connector's stored offset")
	return c
}

func (a *app) fromDebezium(file, offsetFile string) error {
	connector, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("reading the connector's configuration: %w", err)
	}
	var offset []byte
	if offsetFile != "" {
		if offset, err = os.ReadFile(offsetFile); err != nil {
			return fmt.Errorf("reading the connector's offset: %w", err)
		}
	}
	yaml, losses, err := fromdebezium.Translate(connector, offset)
	if err != nil {
		return fmt.Errorf("translating %s: %w", file, err)
	}
	if _, err := a.out.Write(yaml); err != nil {
		return err
	}
	if len(losses) == 0 {
		return nil
	}
	for _, l := range losses {
		fmt.Fprintf(a.err, "not translated: %s: %s\n", l.Key, l.Text)
	}
	return errReported
}
