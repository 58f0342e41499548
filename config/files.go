package config

import (
	"fmt"
	"os/exec"
)

// FileFaults finds what cannot be used of the files and programs that give
// passwords and certificates, now. It is meant for a start: later they may come
// and go. Without kafka the section of that name is left out.
func (c *Config) FileFaults(kafka bool) []Fault {
	var faults []Fault
	look := func(section string, s *Secret, secure *TLS) {
		faults = append(faults, c.secretFaults(section, s)...)
		if section == "kafka.sasl" {
			section = "kafka"
		}
		if _, err := secure.Config("localhost"); err != nil {
			faults = append(faults, c.Fault(section+".tls", err.Error(), "the file must be there for the relay's user to read"))
		}
	}
	if len(c.Sources) == 0 {
		look("source", &c.Source.Password, &c.Source.TLS)
	}
	for i := range c.Sources {
		look(fmt.Sprintf("sources[%d]", i), &c.Sources[i].Password, &c.Sources[i].TLS)
	}
	if kafka {
		look("kafka.sasl", &c.Kafka.SASL.Password, &c.Kafka.TLS)
	}
	if len(c.Checkpoint.Addresses) > 0 {
		look("checkpoint", &c.Checkpoint.Password, &c.Checkpoint.TLS)
	}
	return faults
}

// secretFaults does not run a command: that it fails can pass.
func (c *Config) secretFaults(section string, s *Secret) []Fault {
	switch {
	case s.File != "":
		if _, err := readSecretFile(s.File); err != nil {
			return []Fault{c.Fault(section+".password_file", err.Error(), "the file must be there for the relay's user to read")}
		}
	case len(s.Command) > 0:
		if _, err := exec.LookPath(s.Command[0]); err != nil {
			return []Fault{c.Fault(section+".password_command", err.Error(), "name a program that the relay's user may run")}
		}
	}
	return nil
}
