// Command mutants plants the bugs of mutants/I*/*.patch, one at a time, and wants each one's named
// test to turn red: the tests are tested. A patch is red itself when it does not apply, does not
// compile, touches a test, or when its test stays green, hangs, or is not green to begin with. The
// tree is never touched, but leave it alone meanwhile: go test reads it, with a patched file in the
// place of its own (-overlay). The bugs of a package share a build where they can (merge.go).
//
//	go run ./mutants [name of a patch ...]
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, w io.Writer, names []string) error {
	root, err := filepath.Abs(".")
	if err != nil {
		return err
	}
	bugs, err := readBugs(filepath.Join(root, "mutants"))
	if err != nil {
		return err
	}
	if bugs, err = named(bugs, names); err != nil {
		return err
	}
	if err := findTests(root, bugs); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return fmt.Errorf("make directory for builds: %w", err)
	}
	defer os.RemoveAll(dir)
	lab := &lab{root: root, dir: dir, timeout: 5 * time.Minute, workers: 4} // tests mostly wait
	return lab.tryAll(ctx, w, bugs).close(ctx)
}

// named leaves the bugs with these names, I1/NAME or NAME, or all when none is given.
func named(bugs []bug, names []string) ([]bug, error) {
	is := func(b bug, name string) bool { return b.name == name || path.Base(b.name) == name }
	for _, name := range names {
		if !slices.ContainsFunc(bugs, func(b bug) bool { return is(b, name) }) {
			return nil, fmt.Errorf("there is no mutants/I*/%s.patch", name)
		}
	}
	if len(names) > 0 {
		bugs = slices.DeleteFunc(bugs, func(b bug) bool {
			return !slices.ContainsFunc(names, func(name string) bool { return is(b, name) })
		})
	}
	if len(bugs) == 0 {
		return nil, errors.New("no patch to try in mutants/")
	}
	return bugs, nil
}
