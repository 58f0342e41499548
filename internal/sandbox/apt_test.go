package sandbox_test

import (
	"errors"
	"testing"
	"testing/fstest"

	"outbox-relay/internal/sandbox"
)

func TestDebianSourceComesFromTheHostsConfiguration(t *testing.T) {
	t.Parallel()
	const own = "/usr/share/keyrings/debian-archive-keyring.gpg"
	tests := []struct {
		name         string
		files        map[string]string
		keyring      bool
		uri, signed  string
		wantsMissing bool
	}{
		{
			name: "deb822, after disabled and foreign ones",
			files: map[string]string{"sources.list.d/a.sources": "Types: deb\nURIs: http://off.test/debian\nEnabled: no\n\n" +
				"Types: deb-src\nURIs: http://src.test/debian\n\n" +
				"# URIs: http://comment.test/debian\nTypes: deb\nURIs: http://sec.test/debian-security http://mirror.test/debian/\nSigned-By: /k.gpg\n"},
			keyring: true, uri: "http://mirror.test/debian/", signed: own,
		},
		{
			name:  "one-line with options",
			files: map[string]string{"sources.list": "# deb http://no.test/debian x main\ndeb [arch=amd64 signed-by=/k.gpg] http://mirror.test/debian bookworm main\n"},
			uri:   "http://mirror.test/debian", signed: "/k.gpg",
		},
		{
			name: "deb822 before one-line",
			files: map[string]string{"sources.list": "deb http://two.test/debian x main\n",
				"sources.list.d/z.sources": "Types: deb deb-src\nURIs: http://one.test/debian\n"},
			keyring: true, uri: "http://one.test/debian", signed: own,
		},
		{
			name:    "another distribution",
			files:   map[string]string{"sources.list": "deb http://mirror.test/ubuntu noble main\n"},
			keyring: true, wantsMissing: true,
		},
		{
			name:  "no keyring",
			files: map[string]string{"sources.list": "deb http://mirror.test/debian sid main\n"}, wantsMissing: true,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			etc := fstest.MapFS{}
			for name, text := range tt.files {
				etc[name] = &fstest.MapFile{Data: []byte(text)}
			}
			uri, keyring, err := sandbox.FindDebianSource(etc, tt.keyring)
			var missing *sandbox.MissingError
			if errors.As(err, &missing) != tt.wantsMissing {
				t.Fatalf("got error %v, want a MissingError: %v", err, tt.wantsMissing)
			}
			if !tt.wantsMissing && (uri != tt.uri || keyring != tt.signed) {
				t.Errorf("got %q signed by %q, want %q signed by %q", uri, keyring, tt.uri, tt.signed)
			}
		})
	}
}
