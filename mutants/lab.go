// The lab: bugs are planted, several at a time, to see whether the named tests notice.

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// lab is where bugs are planted.
type lab struct {
	root    string        // of the tree
	dir     string        // for builds
	timeout time.Duration // of one test; one that needs it all has not noticed the bug
	workers int           // runs of go test at the same time
}

// tryAll tries every bug, until ctx is done: its test without the bug, in one run of all that its
// package has, and then with it. A test that is red anyway, skipped or gone notices nothing.
func (l *lab) tryAll(ctx context.Context, w io.Writer, bugs []bug) *report {
	rep := newReport(w, len(bugs))
	of := map[string][]*bug{} // by package
	for i := range bugs {
		of[bugs[i].pkg] = append(of[bugs[i].pkg], &bugs[i])
	}
	var all sync.WaitGroup
	slots := make(chan struct{}, l.workers)
	begin := func(try func()) {
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			try()
		})
	}
	// most bugs first: the last one should not run alone
	byNumber := func(a, b string) int { return cmp.Or(len(of[b])-len(of[a]), cmp.Compare(a, b)) }
	for n, pkg := range slices.SortedFunc(maps.Keys(of), byNumber) {
		bugs := of[pkg]
		begin(func() {
			at := time.Now()
			in := l.build(ctx, filepath.Join(l.dir, fmt.Sprint(n)), pkg, bugs)
			got := l.withoutBug(ctx, in, pkg, bugs)
			rep.green(ctx, pkg, time.Since(at))
			for _, b := range bugs {
				if result := got.results[b.test]; result != "pass" {
					rep.noticed(ctx, b, 0, 0, fmt.Errorf("without the bug the test is not green but %q\n%s", result, tail(got.output)))
					continue
				}
				begin(func() {
					at := time.Now()
					run, err := l.plantUntilNoticed(ctx, in, b)
					rep.noticed(ctx, b, time.Since(at), run, err)
				})
			}
		})
	}
	all.Wait()
	return rep
}

// withoutBug runs the tests of a package's bugs, in their build if there is one.
func (l *lab) withoutBug(ctx context.Context, in *build, pkg string, bugs []*bug) outcome {
	timeout := l.timeout * time.Duration(len(bugs))
	var args []string
	for _, b := range bugs {
		args = append(args, strings.Fields(b.args)...)
	}
	if in == nil {
		return l.goTest(ctx, timeout, "", append([]string{"-run", patterns(bugs), pkg}, args...)...)
	}
	return l.test(ctx, timeout, in, pkg, "", append([]string{"-test.run", patterns(bugs)}, args...)...)
}

// patterns are the tests of several bugs as go test -run wants them.
func patterns(bugs []*bug) string {
	all := make([]string, len(bugs))
	for i, b := range bugs {
		all[i] = b.pattern()
	}
	return strings.Join(all, "|")
}

// A test that draws its input, or waits for what real servers do when they like, need not meet the
// bug each time.
const plantRuns = 3

// plantUntilNoticed tries one bug again while its test stays green, and returns how often.
func (l *lab) plantUntilNoticed(ctx context.Context, in *build, b *bug) (run int, err error) {
	for run = 1; ; run++ {
		if err = l.plant(ctx, in, b); !errors.Is(err, errStayedGreen) || run == plantRuns {
			return run, err
		}
	}
}

var errStayedGreen = errors.New("the test stayed green")

// plant tries one bug, in the build that has it, or else in one of its own; nil means that its test
// noticed it.
func (l *lab) plant(ctx context.Context, in *build, b *bug) error {
	args := strings.Fields(b.args)
	if b.rapid { // it would keep what it has drawn, in the tree
		args = append(args, "-rapid.nofailfile")
	}
	var got outcome
	if in != nil && in.has[b] != "" {
		args = append([]string{"-test.run", b.pattern()}, args...)
		got = l.test(ctx, l.timeout, in, b.pkg, in.has[b], args...)
	} else {
		dir, err := os.MkdirTemp(l.dir, "alone-")
		if err != nil {
			return err
		}
		overlay, err := l.patch(ctx, dir, b)
		if err != nil {
			return err
		}
		args = append([]string{"-run", b.pattern(), b.pkg}, args...)
		got = l.goTest(ctx, l.timeout, overlay, args...)
	}
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

// patch makes patched copies of the bug's files in dir, and the file that names them for go
// -overlay.
func (l *lab) patch(ctx context.Context, dir string, b *bug) (overlay string, err error) {
	replace := map[string]string{}
	for _, file := range b.files {
		from, to := filepath.Join(l.root, file), filepath.Join(dir, file)
		text, err := os.ReadFile(from)
		if err != nil {
			return "", fmt.Errorf("the patch no longer applies: %w", err)
		}
		if err := write(to, text); err != nil {
			return "", err
		}
		replace[from] = to
	}
	apply := exec.CommandContext(ctx, "git", "apply", "--whitespace=nowarn", b.path)
	apply.Dir = dir
	// Below a repository git apply would silently skip the files that are not in it.
	apply.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
	if out, err := apply.CombinedOutput(); err != nil {
		return "", fmt.Errorf("the patch no longer applies: %w: %s", err, out)
	}
	return writeOverlay(dir, replace)
}

// writeOverlay writes the file for go -overlay that replaces files by others.
func writeOverlay(dir string, replace map[string]string) (overlay string, err error) {
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(dir, "overlay.json")
	return overlay, write(overlay, text)
}

// write writes a file, with the folders above it.
func write(name string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, text, 0o644)
}
