// Copies of the tree: how one is made, and how a patch is applied to it and taken out again.

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// copyTree copies what git knows of, or would add, so that a change need not be committed to be
// tried. safe.directory: a build machine may run as another user than the one who owns the
// checkout; nothing is executed.
func copyTree(ctx context.Context, from, to string) error {
	list := exec.CommandContext(ctx, "git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir, list.Stderr = from, os.Stderr
	out, err := list.Output()
	if err != nil {
		return fmt.Errorf("list files: %w", err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		info, err := os.Stat(filepath.Join(from, name))
		if os.IsNotExist(err) || err == nil && info.IsDir() {
			continue // deleted and not yet committed, or a submodule
		}
		if err != nil {
			return err
		}
		text, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(to, name)), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, name), text, info.Mode().Perm()); err != nil {
			return err
		}
	}
	return nil
}

// apply patches a copy; reverse takes the patch out again.
func apply(ctx context.Context, dir, patch string, reverse bool) error {
	if reverse {
		return gitApply(ctx, dir, patch, "--reverse")
	}
	return gitApply(ctx, dir, patch)
}

func gitApply(ctx context.Context, dir, patch string, flags ...string) error {
	args := append([]string{"-c", "safe.directory=*", "apply", "--whitespace=nowarn"}, flags...)
	cmd := exec.CommandContext(ctx, "git", append(args, patch)...)
	cmd.Dir = dir
	// Below a repository git apply would silently skip the files that are not in it.
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("git apply: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}
