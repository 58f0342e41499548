package sandbox

import (
	"io/fs"
	"strings"
)

// findDebianSource looks through the deb822 files and then the one-line files of apt's
// configuration folder for the first enabled source of packages whose address ends in
// /debian. Its keyring is Debian's own where that exists, else the one the source names.
func findDebianSource(etc fs.FS, exists func(path string) bool) (packageSource, error) {
	var found packageSource
	deb822, _ := fs.Glob(etc, "sources.list.d/*.sources")
	for _, name := range deb822 {
		text, err := fs.ReadFile(etc, name)
		if err != nil {
			continue
		}
		if found = sourceOfStanzas(string(text)); found.uri != "" {
			break
		}
	}
	lists, _ := fs.Glob(etc, "sources.list.d/*.list")
	for _, name := range append([]string{"sources.list"}, lists...) {
		if found.uri != "" {
			break
		}
		if text, err := fs.ReadFile(etc, name); err == nil {
			found = sourceOfLines(string(text))
		}
	}
	if found.uri == "" {
		return found, &MissingError{Need: "a Debian package source", For: "fetching Debian packages"}
	}
	if exists(debianKeyring) {
		found.keyring = debianKeyring
	}
	if found.keyring == "" {
		return found, &MissingError{Need: debianKeyring, For: "checking Debian packages",
			Remedy: "install debian-archive-keyring"}
	}
	return found, nil
}

// sourceOfStanzas reads the deb822 format (sources.list(5)): stanzas of "Field: value".
func sourceOfStanzas(text string) packageSource {
	for stanza := range strings.SplitSeq(text, "\n\n") {
		fields := map[string]string{}
		for line := range strings.Lines(stanza) {
			if strings.HasPrefix(line, "#") {
				continue
			}
			if name, value, ok := strings.Cut(line, ":"); ok && !strings.HasPrefix(line, " ") {
				fields[strings.ToLower(name)] = strings.TrimSpace(value)
			}
		}
		if strings.EqualFold(fields["enabled"], "no") || !hasWord(fields["types"], "deb") {
			continue
		}
		for uri := range strings.FieldsSeq(fields["uris"]) {
			if isDebian(uri) {
				s := packageSource{uri: uri}
				if strings.HasPrefix(fields["signed-by"], "/") {
					s.keyring = fields["signed-by"]
				}
				return s
			}
		}
	}
	return packageSource{}
}

// sourceOfLines reads the one-line format: deb [option=value ...] uri suite component...
func sourceOfLines(text string) packageSource {
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), "deb ")
		if !ok {
			continue
		}
		var s packageSource
		rest = strings.TrimSpace(rest)
		if strings.HasPrefix(rest, "[") {
			options, after, _ := strings.Cut(rest[1:], "]")
			for o := range strings.FieldsSeq(options) {
				if path, ok := strings.CutPrefix(o, "signed-by="); ok && strings.HasPrefix(path, "/") {
					s.keyring = path
				}
			}
			rest = after
		}
		if f := strings.Fields(rest); len(f) >= 2 && isDebian(f[0]) {
			s.uri = f[0]
			return s
		}
	}
	return packageSource{}
}

func isDebian(uri string) bool { return strings.HasSuffix(strings.TrimSuffix(uri, "/"), "/debian") }

func hasWord(text, word string) bool {
	for w := range strings.FieldsSeq(text) {
		if w == word {
			return true
		}
	}
	return false
}
