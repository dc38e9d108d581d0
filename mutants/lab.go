// The lab: bugs are planted in copies of the tree, one per worker, to see whether the named tests
// notice.

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

// checkAll applies and compiles every patch and runs no test. It reports all faults, not only the
// first.
func (l *lab) checkAll(ctx context.Context, w io.Writer, bugs []bug) *report {
	rep := newReport(w, len(bugs))
	// two at a time: compilers do not wait
	each(ctx, l.copies[:min(len(l.copies), 2)], bugs, func(dir string, b *bug) {
		err := planted(ctx, dir, b, func() error { return compile(ctx, dir, b.packages()) })
		if ctx.Err() == nil {
			rep.checked(b, err)
		}
	})
	return rep
}

// checkGreen runs all named tests without a bug: a test that is red anyway, skipped or gone notices
// nothing.
func (l *lab) checkGreen(ctx context.Context, w io.Writer, bugs []bug) *report {
	rep := newReport(w, len(bugs))
	type tier struct{ pkg, tags string }
	tops := map[tier][]string{}
	for _, b := range bugs {
		if at := (tier{b.pkg, b.tags}); !slices.Contains(tops[at], b.top()) {
			tops[at] = append(tops[at], b.top())
		}
	}
	results := map[tier]outcome{}
	var (
		mu   sync.Mutex // guards w and results
		runs errgroup.Group
	)
	runs.SetLimit(2) // no more: these must be green
	for at, names := range tops {
		runs.Go(func() error {
			begin, bound := time.Now(), l.timeout*time.Duration(len(names))
			got := goTest(ctx, l.copies[0], at.pkg, at.tags, "^("+strings.Join(names, "|")+")$", bound)
			mu.Lock()
			defer mu.Unlock()
			results[at] = got
			fmt.Fprintf(w, "without a bug: %s (%s) (%.1f s)\n", at.pkg, strings.Join(names, ", "), time.Since(begin).Seconds())
			return ctx.Err()
		})
	}
	if runs.Wait() != nil {
		return rep
	}
	for i := range bugs {
		b := &bugs[i]
		rep.ended++
		all := results[tier{b.pkg, b.tags}]
		if got := all.results[b.test]; got != "pass" {
			rep.note(b, fmt.Errorf("without the bug the test is not green but %q\n%s", got, tail(all.output)))
		}
	}
	return rep
}

// plantAll tries every bug, as many at a time as there are copies.
func (l *lab) plantAll(ctx context.Context, w io.Writer, bugs []bug) *report {
	rep := newReport(w, len(bugs))
	each(ctx, l.copies, bugs, func(dir string, b *bug) {
		begin := time.Now()
		runs, err := l.plantUntilNoticed(ctx, dir, b)
		if ctx.Err() == nil {
			rep.noticed(b, time.Since(begin), runs, err)
		}
	})
	return rep
}

// each gives every bug to a worker, one of which works in each copy, until ctx is done.
func each(ctx context.Context, copies []string, bugs []bug, try func(dir string, b *bug)) {
	queue := make(chan *bug, len(bugs))
	for i := range bugs {
		queue <- &bugs[i]
	}
	close(queue)
	var workers sync.WaitGroup
	for _, dir := range copies {
		workers.Go(func() {
			for b := range queue {
				if ctx.Err() != nil {
					return
				}
				try(dir, b)
			}
		})
	}
	workers.Wait()
}

// A test that draws its input, or waits for what real servers do when they like, need not meet the
// bug each time.
const plantRuns = 3

// plantUntilNoticed tries one bug again while its test stays green; runs says how often, when that
// was more than once.
func (l *lab) plantUntilNoticed(ctx context.Context, dir string, b *bug) (runs string, err error) {
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
func (l *lab) plant(ctx context.Context, dir string, b *bug) error {
	return planted(ctx, dir, b, func() error {
		got := goTest(ctx, dir, b.pkg, b.tags, b.pattern(), l.timeout)
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
	})
}

// planted calls do while the bug is in the copy.
func planted(ctx context.Context, dir string, b *bug, do func() error) (err error) {
	if err := apply(ctx, dir, b.path, false); err != nil {
		return fmt.Errorf("the patch no longer applies: %w", err)
	}
	defer func() {
		if ctx.Err() != nil {
			return // no test comes after this one: the copy is removed
		}
		if undo := apply(ctx, dir, b.path, true); undo != nil {
			err = errors.Join(err, fmt.Errorf("take the patch out: %w", undo))
		}
	}()
	return do()
}
