// Command mutants plants the bugs of mutants/*.patch, one at a time, and wants each one's named test to turn red: the
// tests are tested. A patch is red itself when it no longer applies, does not build, touches a test, or when its test
// stays green, hangs, or is not green to begin with. The tree is never touched: it is copied, and the copies are patched.
//
//	go run ./mutants [-list] [-green] [-j 3] [name of a patch ...]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"time"
)

func main() {
	list := flag.Bool("list", false, "print the table of planted bugs and stop")
	green := flag.Bool("green", false, "the tests are known to be green without a bug: they have just run")
	workers := flag.Int("j", 4, "patches tried at the same time, 1 to 4: their tests mostly wait")
	timeout := flag.Duration("timeout", 3*time.Minute, "bound of one test; a test that needs it all has not noticed the bug")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *list, *green, min(max(*workers, 1), 4), *timeout, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, list, green bool, workers int, timeout time.Duration, names []string) error {
	bugs, err := readBugs("mutants")
	if err != nil {
		return err
	}
	if len(names) > 0 {
		bugs = slices.DeleteFunc(bugs, func(b bug) bool { return !slices.Contains(names, b.name) })
	}
	if len(bugs) == 0 {
		return errors.New("no patch to try in mutants/")
	}
	if list {
		printBugs(os.Stdout, bugs)
		return nil
	}
	tmp, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	defer os.RemoveAll(tmp)
	var copies []string
	for i := range workers {
		dir := filepath.Join(tmp, fmt.Sprint(i))
		if err := copyTree(ctx, ".", dir); err != nil {
			return fmt.Errorf("copy tree: %w", err)
		}
		copies = append(copies, dir)
	}
	lab := &lab{copies: copies, timeout: timeout}
	if !green {
		if err := lab.checkGreen(ctx, os.Stdout, bugs); err != nil {
			return err
		}
	}
	return lab.plantAll(ctx, os.Stdout, bugs)
}
