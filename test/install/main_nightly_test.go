//go:build nightly

// Package install installs what `make release` has made, where nothing else is, and has an event
// arrive by the commands of the pages. It needs root: its Debian is a chroot, or is booted.
package install

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/pages"
	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }

func must(t *testing.T, err error) {
	t.Helper()
	await.Must(t, err)
}

// dist is the folder that `make release` has filled: $CDC_RELAY_TEST_DIST, by default dist/.
func dist() string {
	if dir := os.Getenv("CDC_RELAY_TEST_DIST"); dir != "" {
		return dir
	}
	return filepath.Join(pages.Root(), "dist")
}

// artifact is the path of the one file of the release whose name matches.
func artifact(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dist(), pattern))
	must(t, err)
	if len(found) != 1 {
		t.Fatalf("%s has %d files %s, want 1: make release", dist(), len(found), pattern)
	}
	return found[0]
}

// version is that of the release, as in the names of its files: 0.1.0.
func version(t *testing.T) string {
	t.Helper()
	name := filepath.Base(artifact(t, "cdc-relay_*_linux_amd64.deb"))
	return strings.Split(name, "_")[1]
}

// tool runs a program of this machine, and returns what it has printed.
func tool(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := runner.RunTool(name, args...)
	must(t, err)
	return out
}

// directory is an empty one that lives no longer than the test.
func directory(t *testing.T, name string) string {
	t.Helper()
	dir, err := processes.NewDir(name) // t.TempDir may be longer than the path of a socket
	must(t, err)
	t.Cleanup(func() { must(t, processes.RemoveDir(dir)) })
	return dir
}

// The files are those that checksums.txt lists, as getting started has its readers check them.
func TestChecksums(t *testing.T) {
	t.Parallel()
	list, err := os.ReadFile(filepath.Join(dist(), "checksums.txt"))
	must(t, err)
	listed := map[string]bool{}
	for line := range strings.Lines(string(list)) {
		want, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		content, err := os.ReadFile(filepath.Join(dist(), name))
		must(t, err)
		if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != want {
			t.Errorf("%s is not what checksums.txt says", name)
		}
		listed[name] = true
	}
	d := freshDebian(t, "plain")
	d.copyIn(artifact(t, "cdc-relay_*_linux_amd64.deb"))
	if said := d.run("sh", "-c", documented(d, "docs/getting-started.md", "Install", "checksums.txt")); !strings.Contains(said, ".deb: OK") {
		t.Errorf("the deb is not checked: %s", said)
	}
	for _, pattern := range []string{"cdc-relay_*_linux_amd64.deb", "cdc-relay_*_linux_arm64.deb", "cdc-relay_*_linux_amd64.rpm", "cdc-relay_*_linux_amd64.tar.gz"} {
		if name := filepath.Base(artifact(t, pattern)); !listed[name] {
			t.Errorf("checksums.txt has no %s", name)
		}
	}
}
