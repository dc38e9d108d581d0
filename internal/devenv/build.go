package devenv

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// BuildRelay is the path of the relay's binary: $CDC_RELAY_TEST_BINARY, else built once per process from this module
// (with the race detector when CDC_RELAY_TEST_RACE=1).
func BuildRelay(t testing.TB) string {
	t.Helper()
	path, err := RelayBinary()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// RelayBinary is BuildRelay outside of tests.
var RelayBinary = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("CDC_RELAY_TEST_BINARY"); path != "" {
		return filepath.Abs(path)
	}
	o, err := startOwner()
	if err != nil {
		return "", err
	}
	dir, err := newDir("build")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "cdc-relay")
	args := []string{"build", "-o", path}
	if os.Getenv("CDC_RELAY_TEST_RACE") == "1" {
		args = append(args, "-race")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", append(args, "github.com/cdc-relay/cdc-relay/cmd/cdc-relay")...)
	cmd.Env = append(environWithout(ownerVariable), o.variable) // a build outlives no interrupt
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build relay: %w: %s", err, out)
	}
	return path, nil
})
