// Building the relay of an earlier commit.

package runner

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
)

// BuildAt is the path of the relay's binary of an earlier commit of this repository, given by its
// full hash. It is built once on a machine, and kept next to what the scripts have fetched.
func BuildAt(t testing.TB, commit string) string {
	t.Helper()
	path, err := RelayAt(commit)
	if err != nil {
		t.Fatalf("build relay of commit %s: %v", commit, err)
	}
	return path
}

// RelayAt is BuildAt outside of tests. A commit that this clone does not have is an error.
func RelayAt(commit string) (string, error) {
	buildingOld.Lock()
	defer buildingOld.Unlock()
	cache, err := processes.CacheDir()
	if err != nil {
		return "", err
	}
	// another compiler makes another binary
	path := filepath.Join(cache, "cdc-relay-"+commit+"-"+runtime.Version())
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	dir, err := processes.NewDir("old")
	if err != nil {
		return "", err
	}
	if err := checkOut(commit, dir); err != nil {
		return "", err
	}
	// Beside its place: from there it comes to it in one step.
	made, err := os.MkdirTemp(cache, "build.")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(made)
	binary := filepath.Join(made, "cdc-relay")
	// without -trimpath, which would have what it is made of compiled once more
	args := []string{"build", "-C", dir, "-ldflags", "-X main.version=" + commit[:min(7, len(commit))], "-o", binary, "./cmd/cdc-relay"}
	if _, err := RunTool("go", args...); err != nil {
		return "", err
	}
	return path, os.Rename(binary, path) // whoever finished first has made the same
}

var buildingOld sync.Mutex // tests that run side by side want the same one

// checkOut writes the files of a commit into a directory.
func checkOut(commit, dir string) error {
	module, err := RunTool("go", "env", "GOMOD")
	if err != nil {
		return err
	}
	root := filepath.Dir(module)
	git := func(args ...string) error {
		// Whoever owns the clone, nothing of it is run.
		_, err := RunTool("git", append([]string{"-c", "safe.directory=*", "-C", root}, args...)...)
		return err
	}
	if err := git("cat-file", "-e", commit+"^{commit}"); err != nil {
		return fmt.Errorf("it is not in the history of %s; a shallow clone gets it by `git fetch --unshallow`: %w", root, err)
	}
	tree := filepath.Join(dir, "tree.tar")
	if err := git("archive", "--format=tar", "--output="+tree, commit); err != nil {
		return err
	}
	if _, err := RunTool("tar", "-xf", tree, "-C", dir); err != nil {
		return err
	}
	return os.Remove(tree)
}

// RunTool runs a program to its end and returns what it has printed.
func RunTool(name string, args ...string) (string, error) {
	o, err := processes.StartOwner()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(context.Background(), name, args...)
	cmd.Env = append(processes.EnvironWithout(processes.OwnerVariable), o.Variable)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("run %s %s: %w: %s", name, strings.Join(args, " "), err, said.String())
	}
	return strings.TrimSpace(string(out)), nil
}
