package sandbox

import (
	"context"
	"encoding/xml"
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
	cmd := exec.Command(mvn, "-q", "-B", "-f", pom, "dependency:copy-dependencies",
		"-DincludeScope=runtime", "-DoutputDirectory="+lib)
	cmd.Dir = dir
	if _, err := runTool(ctx, cmd); err != nil {
		return fmt.Errorf("fetching %s with Maven: %w", artifacts[0].id, err)
	}
	return nil
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
