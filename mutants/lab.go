package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// lab is where bugs are planted: copies of the tree, one per worker.
type lab struct {
	copies  []string
	timeout time.Duration
}

// checkGreen runs all named tests without a bug: a test that is red anyway, skipped or gone notices nothing.
func (l *lab) checkGreen(ctx context.Context, w io.Writer, bugs []bug) error {
	tops := map[string][]string{} // by package
	for _, b := range bugs {
		if !slices.Contains(tops[b.pkg], b.top()) {
			tops[b.pkg] = append(tops[b.pkg], b.top())
		}
	}
	results := map[string]outcome{}
	var (
		mu   sync.Mutex // guards w and results
		runs errgroup.Group
	)
	runs.SetLimit(2) // no more: these must be green
	for pkg, names := range tops {
		runs.Go(func() error {
			begin, bound := time.Now(), l.timeout*time.Duration(len(names))
			got := goTest(ctx, l.copies[0], pkg, "^("+strings.Join(names, "|")+")$", bound)
			mu.Lock()
			defer mu.Unlock()
			results[pkg] = got
			fmt.Fprintf(w, "without a bug: %s (%s) (%.1f s)\n", pkg, strings.Join(names, ", "), time.Since(begin).Seconds())
			return ctx.Err()
		})
	}
	if err := runs.Wait(); err != nil {
		return err
	}
	var faults []error
	for _, b := range bugs {
		if got := results[b.pkg].results[b.test]; got != "pass" {
			faults = append(faults, fmt.Errorf("%s: without the bug %s in %s is not green but %q\n%s",
				b.name, b.test, b.pkg, got, tail(results[b.pkg].output)))
		}
	}
	return errors.Join(faults...)
}

// plantAll tries every bug, as many at a time as there are copies, and prints the verdicts.
func (l *lab) plantAll(ctx context.Context, w io.Writer, bugs []bug) error {
	queue := make(chan bug)
	var (
		workers sync.WaitGroup
		mu      sync.Mutex // guards w and missed
		missed  int
	)
	for _, dir := range l.copies {
		workers.Go(func() {
			for b := range queue {
				begin := time.Now()
				runs, err := l.plantUntilNoticed(ctx, dir, b)
				mu.Lock()
				verdict := "noticed"
				if err != nil {
					verdict = "MISSED "
					missed++
				}
				fmt.Fprintf(w, "%s  %-6s %-36s %s (%.1f s)%s\n", verdict, b.invariant, b.name, b.test, time.Since(begin).Seconds(), runs)
				if err != nil {
					fmt.Fprintf(w, "  %s: %s\n  %s\n", b.name, b.what, strings.ReplaceAll(err.Error(), "\n", "\n  "))
				}
				mu.Unlock()
			}
		})
	}
	for _, b := range bugs {
		queue <- b
	}
	close(queue)
	workers.Wait()
	fmt.Fprintf(w, "%d planted bugs, %d noticed, %d missed\n", len(bugs), len(bugs)-missed, missed)
	if missed > 0 {
		return fmt.Errorf("%d planted bugs were not turned red by their test", missed)
	}
	return ctx.Err()
}

// A test that draws its input, or waits for what real servers do when they like, need not meet the bug each time.
const plantRuns = 3

// plantUntilNoticed tries one bug again while its test stays green; runs says how often, when that was more than once.
func (l *lab) plantUntilNoticed(ctx context.Context, dir string, b bug) (runs string, err error) {
	for run := 1; ; run++ {
		err = l.plant(ctx, dir, b)
		if run > 1 {
			runs = fmt.Sprintf(", run %d of %d", run, plantRuns)
		}
		if !errors.Is(err, errStayedGreen) || run == plantRuns {
			return runs, err
		}
	}
}

var errStayedGreen = errors.New("the test stayed green")

// plant tries one bug in one copy; nil means that its test noticed it.
func (l *lab) plant(ctx context.Context, dir string, b bug) (err error) {
	if err := apply(ctx, dir, b.path, false); err != nil {
		return fmt.Errorf("the patch no longer applies: %w", err)
	}
	defer func() {
		// Without the caller's cancel: a bug left behind would be there for the next test.
		if undo := apply(context.WithoutCancel(ctx), dir, b.path, true); undo != nil {
			err = errors.Join(err, fmt.Errorf("take the patch out: %w", undo))
		}
	}()
	got := goTest(ctx, dir, b.pkg, b.pattern(), l.timeout)
	switch result := got.results[b.test]; {
	case ctx.Err() != nil:
		return ctx.Err()
	case !got.built:
		return fmt.Errorf("the patched tree does not build:\n%s", tail(got.output))
	case got.timedOut:
		return fmt.Errorf("the test hung; it must fail by itself:\n%s", tail(got.output))
	case result == "pass":
		return errStayedGreen
	case result != "fail":
		return fmt.Errorf("the test did not fail but ended as %q:\n%s", result, tail(got.output))
	}
	return nil
}
