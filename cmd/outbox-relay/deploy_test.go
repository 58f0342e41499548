package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"outbox-relay/config"
)

type probe struct {
	HTTPGet struct{ Path string } `yaml:"httpGet"`
}

// manifest is what a test needs of a Kubernetes object.
type manifest struct {
	Kind string
	Data map[string]string
	Spec struct {
		Template struct {
			Spec struct {
				Containers []struct {
					Args           []string
					LivenessProbe  probe `yaml:"livenessProbe"`
					ReadinessProbe probe `yaml:"readinessProbe"`
				}
			}
		}
	}
}

// The files of deploy are of this version: their configurations load, their command lines are known, and their probes leave a relay on standby or
// halted alone.
func TestTheManifests(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../deploy/kubernetes*.yaml")
	if err != nil || len(files) != 2 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		configurations, containers := 0, 0
		for _, m := range manifests(t, file) {
			if text, ok := m.Data["outbox-relay.yaml"]; ok {
				configurations++
				path := newSite(t, "").write("manifest.yaml", text)
				if _, err := config.Load(config.Options{File: path, Check: ruleFaults}); err != nil {
					t.Errorf("%s: %v", file, err)
				}
			}
			for _, c := range m.Spec.Template.Spec.Containers {
				containers++
				known(t, file, c.Args)
				if c.LivenessProbe.HTTPGet.Path != "/healthz" || c.ReadinessProbe.HTTPGet.Path != "/readyz" {
					t.Errorf("%s: the probes ask %s and %s", file, c.LivenessProbe.HTTPGet.Path, c.ReadinessProbe.HTTPGet.Path)
				}
				if slices.Contains(c.Args, "--no-standby") {
					t.Errorf("%s: a second relay would end and be started again and again", file)
				}
			}
		}
		if configurations != 1 || containers != 1 {
			t.Errorf("%s has %d configurations and %d containers", file, configurations, containers)
		}
	}
	unit, err := os.ReadFile("../../deploy/outbox-relay.service")
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut(string(unit), "ExecStart=/usr/local/bin/outbox-relay ")
	line, _, _ = strings.Cut(line, "\n")
	known(t, "the unit", strings.Fields(line))
}

func manifests(t *testing.T, file string) (all []manifest) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for d := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var m manifest
		err := d.Decode(&m)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, m)
	}
}

// known demands that the command takes the arguments.
func known(t *testing.T, where string, args []string) {
	t.Helper()
	c, left, err := (&app{out: io.Discard, err: io.Discard}).rootCommand().Find(args)
	if err == nil {
		err = c.ParseFlags(left)
	}
	if err != nil || c.Name() != "run" {
		t.Errorf("%s: %q: %v", where, args, err)
	}
}

// Alerts name metrics that the documentation knows.
func TestTheAlertsNameMetricsThatThereAre(t *testing.T) {
	t.Parallel()
	rules, err := os.ReadFile("../../deploy/prometheus-rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var parsed struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	if err := yaml.Unmarshal(rules, &parsed); err != nil || len(parsed.Groups) != 1 || len(parsed.Groups[0].Rules) < 5 {
		t.Fatalf("%+v, %v", parsed, err)
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range parsed.Groups[0].Rules {
		names := regexp.MustCompile(`outbox_relay_\w+`).FindAllString(r.Expr, -1)
		if len(names) == 0 {
			t.Errorf("%s looks at nothing", r.Alert)
		}
		for _, name := range names {
			if !strings.Contains(string(readme), name) {
				t.Errorf("%s: the README does not know %s", r.Alert, name)
			}
		}
	}
}
