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

// Binary is Build outside of tests.
var Binary = sync.OnceValues(func() (string, error) { return RelayBinary(context.Background()) })

// RelayBinary is the path of the relay's binary: $CDC_RELAY_TEST_BINARY, else it is built at every
// call, into a directory that lives no longer than this process.
func RelayBinary(ctx context.Context) (string, error) {
	if path := os.Getenv("CDC_RELAY_TEST_BINARY"); path != "" {
		return filepath.Abs(path)
	}
	return Program(ctx, "cmd/cdc-relay")
}

// Program builds the command in a folder of this module at every call, into a directory that lives
// no longer than this process, and returns the binary's path.
func Program(ctx context.Context, folder string) (string, error) {
	o, err := processes.StartOwner()
	if err != nil {
		return "", err
	}
	dir, err := processes.NewDir("build")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, filepath.Base(folder))
	cmd := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-o", path, "github.com/cdc-relay/cdc-relay/"+folder)
	// a build outlives no interrupt
	cmd.Env = append(processes.EnvironWithout(processes.OwnerVariable), o.Variable)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w: %s", folder, err, out)
	}
	return path, nil
}
