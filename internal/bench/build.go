package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// profiledMain takes the place of the relay's main.go in a build for -cpuprofile.
//
//go:embed testdata/profiled_main.go.txt
var profiledMain []byte

// profileVariable names the file that a relay built with profiledMain writes its profile to.
const profileVariable = "OUTBOX_RELAY_BENCH_CPUPROFILE"

// buildRelay builds the relay from the working tree and returns the program's path. With profiled set the main file is replaced and
// nothing else, so that the figures are those of the product.
func buildRelay(ctx context.Context, dir string, profiled bool) (string, error) {
	list := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", "outbox-relay/cmd/outbox-relay")
	folder, err := list.Output()
	if err != nil {
		return "", fmt.Errorf("finding the relay's main package (run bench inside the module): %w", err)
	}
	program := filepath.Join(dir, "outbox-relay")
	args := []string{"build", "-o", program}
	if profiled {
		overlay, err := writeOverlay(dir, filepath.Join(strings.TrimSpace(string(folder)), "main.go"))
		if err != nil {
			return "", err
		}
		args = append(args, "-overlay", overlay, "-trimpath") // a profile is kept with the sources
	}
	if out, err := exec.CommandContext(ctx, "go", append(args, "outbox-relay/cmd/outbox-relay")...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the relay: %w\n%s", err, out)
	}
	return program, nil
}

func writeOverlay(dir, mainFile string) (string, error) {
	replacement := filepath.Join(dir, "profiled_main.go")
	if err := os.WriteFile(replacement, profiledMain, 0o644); err != nil {
		return "", err
	}
	text, err := json.Marshal(map[string]map[string]string{"Replace": {mainFile: replacement}})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, text, 0o644)
}
