package devenv

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// BuildRelay is the path of the relay's binary: $CDC_RELAY_TEST_BINARY, else built once per process from this module.
func BuildRelay(t testing.TB) string {
	t.Helper()
	path, err := RelayBinary()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// RelayBinary is BuildRelay outside of tests.
var RelayBinary = sync.OnceValues(func() (string, error) { return relayBinary(context.Background()) })

func relayBinary(ctx context.Context) (string, error) {
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
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, "github.com/cdc-relay/cdc-relay/cmd/cdc-relay")
	cmd.Env = append(environWithout(ownerVariable), o.variable) // a build outlives no interrupt
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build relay: %w: %s", err, out)
	}
	return path, nil
}
