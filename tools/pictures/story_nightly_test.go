//go:build nightly

package main

import (
	"os"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/console"
	"github.com/cdc-relay/cdc-relay/internal/devenv/pages"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }

// The story in short: every panel gets data, and every picture is written.
func TestStory(t *testing.T) {
	to, out := t.TempDir(), &console.Recording{}
	times := length{flow: 10 * time.Second, poison: 2 * time.Second, watched: 6 * time.Second, down: 8 * time.Second, mistake: 5 * time.Second}
	if err := draw(await.Context(t), console.To(out), pages.Root(), to, times); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	entries, err := os.ReadDir(to)
	if err != nil || len(entries) != len(pictures)+1 {
		t.Errorf("%d pictures, %v:\n%s", len(entries), err, out)
	}
}
