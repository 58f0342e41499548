package sandbox

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// artifact names a file that Maven fetches.
type artifact struct{ group, id, version, kind, classifier string }

// fetchArtifacts has mvn copy the artifacts, with all they need at run time, into lib. It
// uses the user's own Maven settings and local repository. dir gets the generated pom.
func fetchArtifacts(ctx context.Context, dir, lib string, say func(string), artifacts ...artifact) error {
	mvn, err := exec.LookPath("mvn")
	if err != nil {
		return &MissingError{Need: "mvn", For: "fetching " + artifacts[0].id, Remedy: "install Maven"}
	}
	pom := filepath.Join(dir, "pom.xml")
	if err := os.WriteFile(pom, pomFor(artifacts), 0o644); err != nil {
		return err
	}
	// Maven's local repository does not stand two writers.
	cache, err := CacheDir()
	if err != nil {
		return err
	}
	unlock, err := lockFile(ctx, filepath.Join(cache, "maven.lock"), func() { say("waiting for another Maven run") })
	if err != nil {
		return err
	}
	defer unlock()
	args := []string{"-q", "-B", "-f", pom, "dependency:copy-dependencies",
		"-DincludeScope=runtime", "-DoutputDirectory=" + lib}
	out, err := runMaven(ctx, mvn, dir, args)
	// A user without a home of their own has no place for Maven's local repository.
	if err != nil && strings.Contains(out, "Could not create local repository") {
		repository := filepath.Join(dir, "m2")
		_, err = runMaven(ctx, mvn, dir, append(args, "-Dmaven.repo.local="+repository))
		err = errors.Join(err, os.RemoveAll(repository))
	}
	if err != nil {
		return fmt.Errorf("fetching %s with Maven: %w", artifacts[0].id, err)
	}
	return nil
}

func runMaven(ctx context.Context, mvn, dir string, args []string) (string, error) {
	cmd := exec.Command(mvn, args...)
	cmd.Dir = dir
	return runTool(ctx, cmd)
}

func pomFor(artifacts []artifact) []byte {
	var b strings.Builder
	element := func(name, value string) {
		if value == "" {
			return
		}
		b.WriteString("<" + name + ">")
		_ = xml.EscapeText(&b, []byte(value))
		b.WriteString("</" + name + ">")
	}
	b.WriteString(`<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>` +
		"<groupId>sandbox</groupId><artifactId>sandbox</artifactId><version>1</version><packaging>pom</packaging><dependencies>\n")
	for _, a := range artifacts {
		b.WriteString("<dependency>")
		element("groupId", a.group)
		element("artifactId", a.id)
		element("version", a.version)
		element("type", a.kind)
		element("classifier", a.classifier)
		b.WriteString("</dependency>\n")
	}
	b.WriteString("</dependencies></project>\n")
	return []byte(b.String())
}
