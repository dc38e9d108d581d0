// Package runner builds the relay and runs it as a program.
package runner

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
)

// Build is the path of the relay's binary: $CDC_RELAY_TEST_BINARY, else built once per process from
// this module.
func Build(t testing.TB) string {
	t.Helper()
	path, err := Binary()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Binary is BuildRelay outside of tests.
var Binary = sync.OnceValues(func() (string, error) { return RelayBinary(context.Background()) })

// RelayBinary is the path of the relay's binary: $CDC_RELAY_TEST_BINARY, else it is built at every
// call, into a directory that lives no longer than this process.
func RelayBinary(ctx context.Context) (string, error) {
	if path := os.Getenv("CDC_RELAY_TEST_BINARY"); path != "" {
		return filepath.Abs(path)
	}
	o, err := processes.StartOwner()
	if err != nil {
		return "", err
	}
	dir, err := processes.NewDir("build")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "cdc-relay")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, "github.com/cdc-relay/cdc-relay/cmd/cdc-relay")
	// a build outlives no interrupt
	cmd.Env = append(processes.EnvironWithout(processes.OwnerVariable), o.Variable)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build relay: %w: %s", err, out)
	}
	return path, nil
}
