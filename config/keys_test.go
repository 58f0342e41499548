package config_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"outbox-relay/config"
)

// Each key that is offered can be set.
func TestKeysCanBeSet(t *testing.T) {
	keys := config.Keys()
	for _, want := range []string{"name", "source.address", "kafka.tls.mode", "kafka.linger", "checkpoint.store", "limits.buffer", "log.level"} {
		if !slices.ContainsFunc(keys, func(k config.Key) bool { return k.Path == want }) {
			t.Errorf("%s is missing among %v", want, keys)
		}
	}
	for _, k := range keys {
		value := "x"
		if len(k.Choices) > 0 {
			value = k.Choices[0]
		}
		_, err := config.Load(config.Options{Sets: []string{k.Path + "=" + value}})
		var faults *config.Faults
		if !errors.As(err, &faults) {
			t.Fatalf("%s: %v", k.Path, err)
		}
		for _, f := range faults.List {
			if strings.Contains(f.Message, "unknown key") || f.Path == k.Path && strings.Contains(f.Message, "cannot be set") {
				t.Errorf("%s is offered and refused: %v", k.Path, f)
			}
		}
	}
}
