// The report of a run: a line per bug, and at the end what failed and the counts.

package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// report prints what becomes of the bugs, with a running count, and at the end what failed and the
// counts.
type report struct {
	mu       sync.Mutex
	w        io.Writer
	begin    time.Time
	total    int
	ended    int
	failures []string
}

func newReport(w io.Writer, total int) *report {
	return &report{w: w, begin: time.Now(), total: total}
}

// green reports that the tests of a package were run without a bug.
func (r *report) green(ctx context.Context, pkg string, took time.Duration) {
	if ctx.Err() != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.w, "without a bug: %s (%.1f s)\n", pkg, took.Seconds())
}

// noticed reports a bug that was planted run times; err is why its test has not noticed it. What
// was interrupted says nothing.
func (r *report) noticed(ctx context.Context, b *bug, took time.Duration, run int, err error) {
	if ctx.Err() != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	verdict := "noticed"
	if err != nil {
		verdict = "MISSED "
	}
	again := ""
	if run > 1 {
		again = fmt.Sprintf(", run %d of %d", run, plantRuns)
	}
	r.ended++
	fmt.Fprintf(r.w, "%3d/%d %5.0f s  %s  %-44s %s (%.1f s)%s\n",
		r.ended, r.total, time.Since(r.begin).Seconds(), verdict, b.name, b.test, took.Seconds(), again)
	r.note(b, err)
}

// note prints why a bug failed, and keeps it for the end.
func (r *report) note(b *bug, err error) {
	if err == nil {
		return
	}
	why := fmt.Sprintf("mutants/%s.patch (%s in %s; %s)\n%s\n", b.name, b.test, b.pkg, b.what, err)
	why = strings.ReplaceAll(strings.TrimRight(why, "\n"), "\n", "\n    ") + "\n"
	fmt.Fprint(r.w, "    ", why)
	r.failures = append(r.failures, why)
}

// close prints what failed once more and the counts, which scripts/total.sh reads, and returns the
// verdict.
func (r *report) close(ctx context.Context) error {
	for _, why := range r.failures {
		fmt.Fprint(r.w, "failed: ", why)
	}
	if r.ended < r.total {
		fmt.Fprintf(r.w, "interrupted: %d of %d planted bugs were not tried\n", r.total-r.ended, r.total)
	}
	fmt.Fprintf(r.w, "%d passed, %d failed\n", r.ended-len(r.failures), len(r.failures))
	if len(r.failures) > 0 {
		return fmt.Errorf("%d of %d planted bugs are red", len(r.failures), r.total)
	}
	return context.Cause(ctx)
}
