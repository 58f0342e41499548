package config

import (
	"bytes"
	_ "embed"
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"
)

//go:embed example.yaml
var example []byte

// Example returns a commented configuration that Load accepts as it is. The
// caller owns the bytes.
func Example() []byte { return bytes.Clone(example) }

// Print renders the effective configuration as YAML in the order of the
// documentation, with passwords masked. Files and commands that give passwords
// are shown by name. The caller owns the bytes.
func Print(c *Config) []byte {
	shown := *c
	shown.Source.Password = shown.Source.Password.masked()
	shown.Sources = slices.Clone(shown.Sources)
	for i := range shown.Sources {
		shown.Sources[i].Password = shown.Sources[i].Password.masked()
	}
	shown.Kafka.SASL.Password = shown.Kafka.SASL.Password.masked()
	shown.Checkpoint.Password = shown.Checkpoint.Password.masked()
	shown.Tables = slices.Clone(shown.Tables)
	var b bytes.Buffer
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	if err := encoder.Encode(&shown); err != nil {
		// Every field is a plain value, so this is a bug in this package.
		panic(fmt.Sprintf("config: printing: %v", err))
	}
	return b.Bytes()
}
