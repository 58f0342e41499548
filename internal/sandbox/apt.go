package sandbox

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const debianKeyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// apt is a private package world in one folder: own lists, own cache and an empty status
// file, so that every library down to libc is resolved for the suite, and nothing of the
// host is read but its repository address, its proxy settings and its keyring.
type apt struct{ dir string }

// newApt writes the configuration and fetches the suite's package lists.
func newApt(ctx context.Context, dir, suite string) (*apt, error) {
	for _, tool := range []string{"apt-get", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, &MissingError{Need: tool, For: "fetching Debian packages"}
		}
	}
	source, err := debianSource()
	if err != nil {
		return nil, err
	}
	a := &apt{dir: dir}
	for _, d := range []string{"etc", "lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return nil, err
		}
	}
	files := map[string]string{
		"status": "",
		"etc/suite.sources": "Types: deb\nURIs: " + source.uri + "\nSuites: " + suite +
			"\nComponents: main\nTargets: Packages\nSigned-By: " + source.keyring + "\n",
		// Given with -c, so it is read after the host's configuration. The host's hooks are
		// dropped: they serve its own cache.
		"apt.conf": fmt.Sprintf(`Dir::Etc::SourceList "/dev/null";
Dir::Etc::SourceParts "%[1]s/etc/";
Dir::Etc::Preferences "/dev/null";
Dir::Etc::PreferencesParts "/dev/null";
Dir::State::Lists "%[1]s/lists/";
Dir::State::Status "%[1]s/status";
Dir::State::Extended_States "%[1]s/extended_states";
Dir::Cache "%[1]s/cache/";
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::Retries "3";
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
`, dir),
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	if err := a.get(ctx, "update"); err != nil {
		return nil, fmt.Errorf("fetching Debian's package lists: %w", err)
	}
	return a, nil
}

func (a *apt) get(ctx context.Context, args ...string) error {
	cmd := exec.Command("apt-get", append([]string{"-q", "-c", filepath.Join(a.dir, "apt.conf")}, args...)...)
	cmd.Dir = a.dir
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C")
	_, err := runTool(ctx, cmd)
	return err
}

// unpack fetches the packages with all they depend on and unpacks them into root, without
// those that skip reports.
func (a *apt) unpack(ctx context.Context, root string, skip func(file string) bool, packages ...string) error {
	args := append([]string{"-y", "--no-install-recommends", "--download-only", "install"}, packages...)
	if err := a.get(ctx, args...); err != nil {
		return fmt.Errorf("fetching the packages %s: %w", strings.Join(packages, ", "), err)
	}
	return a.extract(ctx, root, skip)
}

// unpackAlone is unpack without the dependencies.
func (a *apt) unpackAlone(ctx context.Context, root, name string) error {
	// apt-get download puts the file into the working directory.
	cmd := exec.Command("apt-get", "-q", "-c", filepath.Join(a.dir, "apt.conf"), "download", name)
	cmd.Dir = filepath.Join(a.dir, "cache/archives")
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	if _, err := runTool(ctx, cmd); err != nil {
		return fmt.Errorf("fetching the package %s: %w", name, err)
	}
	return a.extract(ctx, root, nil)
}

func (a *apt) extract(ctx context.Context, root string, skip func(file string) bool) error {
	debs, err := filepath.Glob(filepath.Join(a.dir, "cache/archives/*.deb"))
	if err != nil {
		return err
	}
	for _, deb := range debs {
		if skip != nil && skip(filepath.Base(deb)) {
			continue
		}
		if _, err := runTool(ctx, exec.Command("dpkg-deb", "-x", deb, root)); err != nil {
			return fmt.Errorf("unpacking %s: %w", filepath.Base(deb), err)
		}
	}
	return nil
}

type packageSource struct{ uri, keyring string }

// debianSource finds the Debian repository in the host's own apt configuration.
func debianSource() (packageSource, error) {
	return findDebianSource(os.DirFS("/etc/apt"), func(path string) bool {
		_, err := os.Stat(path)
		return err == nil
	})
}
