// The report of a test run: it turns the events of go test into lines for people, and says when no
// test has ended for too long.

package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"gotest.tools/gotestsum/testjson"
)

const (
	// patience is how long a run may be without the end of a test.
	patience = 5 * time.Minute
	// silence is how long it may print nothing: then it says what it is doing.
	silence = 10 * time.Second
)

// report turns the events of go test into lines for people. Tests and subtests count alike. It
// implements testjson.EventHandler, whose methods are called from two goroutines.
type report struct {
	w     io.Writer
	now   func() time.Time
	begin time.Time

	mu       sync.Mutex
	passed   int
	failures []failure
	slowest  []testjson.TestCase
	// of the packages whose tests have begun, their tests, and since when
	running map[string]map[string]time.Time
	moved   time.Time // when a test or a package has last ended
	said    time.Time // when a line was last printed
	ended   bool      // the watchdog has ended the run
}

// failure is a test or a package, and what it has said of it.
type failure struct {
	name string
	said []byte
}

func newReport(w io.Writer, now func() time.Time) *report {
	return &report{w: w, now: now, begin: now(), running: map[string]map[string]time.Time{}, moved: now(), said: now()}
}

// Err passes on what go test itself says.
func (r *report) Err(text string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said = r.now()
	fmt.Fprintln(r.w, text)
	return nil
}

// Event takes what go test -json prints (go doc test2json).
func (r *report) Event(ev testjson.TestEvent, execution *testjson.Execution) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case ev.Action == testjson.ActionBuild:
		fmt.Fprint(r.w, ev.Output)
	case ev.Action == testjson.ActionOutput && r.ended:
		fmt.Fprint(r.w, ev.Output) // where its goroutines stand
	case ev.Action == testjson.ActionOutput:
		// What a test wants to be seen although it passes.
		if _, text, ok := strings.Cut(ev.Output, ": report: "); ok {
			fmt.Fprint(r.w, "      ", text)
		}
	case ev.Package == "":
	case ev.PackageEvent():
		r.packageEvent(ev, execution.Package(ev.Package))
	default:
		r.testEvent(ev, execution.Package(ev.Package))
	}
	return nil
}

func (r *report) packageEvent(ev testjson.TestEvent, pkg *testjson.Package) {
	name := testjson.RelativePackagePath(ev.Package)
	if ev.Action == "start" {
		r.running[name] = map[string]time.Time{}
	}
	if !ev.Action.IsTerminal() {
		return
	}
	r.moved = r.now()
	delete(r.running, name)
	verdict := "ok  "
	switch {
	case ev.Action == testjson.ActionFail:
		verdict = "FAIL"
		// it does not build, its TestMain failed, or it has panicked outside of a test
		if len(pkg.Failed) == 0 {
			r.fail(name, strings.Join(pkg.OutputLines(testjson.TestCase{}), ""))
		}
	case pkg.Total == 0:
		return // no test files
	}
	r.line("%s  %-32s %4d tests %7.1f s", verdict, name, pkg.Total, ev.Elapsed)
}

// line prints a line behind the time and the running count.
func (r *report) line(format string, args ...any) {
	r.said = r.now()
	fmt.Fprintf(r.w, "%6s %6d passed  %s\n", clock(r.said.Sub(r.begin)), r.passed, fmt.Sprintf(format, args...))
}

// progress says what is going on when nothing was printed for a while: on a new machine go test
// compiles for minutes.
func (r *report) progress() {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch names := slices.Sorted(maps.Keys(r.running)); {
	case r.ended || r.now().Sub(r.said) < silence:
	case len(names) == 0:
		r.line("...   compiling")
	default:
		r.line("...   %s", strings.Join(names, ", "))
	}
}

func (r *report) testEvent(ev testjson.TestEvent, pkg *testjson.Package) {
	name := testjson.RelativePackagePath(ev.Package)
	tests := r.running[name]
	switch {
	case tests == nil:
	case ev.Action == testjson.ActionRun || ev.Action == testjson.ActionCont:
		tests[ev.Test] = r.now()
	case ev.Action == testjson.ActionPause:
		delete(tests, ev.Test)
	}
	if !ev.Action.IsTerminal() {
		return
	}
	r.moved = r.now()
	delete(tests, ev.Test)
	switch ev.Action {
	case testjson.ActionPass:
		r.passed++
	case testjson.ActionSkip:
		r.fail(name+" "+ev.Test, "    it was skipped, and no test may be\n")
	case testjson.ActionFail:
		text := strings.Join(pkg.OutputLines(pkg.LastFailedByName(ev.Test)), "")
		r.fail(name+" "+ev.Test, cmp.Or(string(said([]byte(text))), text))
	default:
	}
	if !testjson.TestName(ev.Test).IsSubTest() {
		r.slowest = append(r.slowest, testjson.TestCase{Package: name, Test: testjson.TestName(ev.Test), Elapsed: time.Duration(ev.Elapsed * float64(time.Second))})
		slices.SortFunc(r.slowest, func(a, b testjson.TestCase) int { return cmp.Compare(b.Elapsed, a.Elapsed) })
		r.slowest = r.slowest[:min(len(r.slowest), 10)]
	}
}

// fail prints a failure, and remembers it for the end.
func (r *report) fail(name, text string) {
	fmt.Fprintf(r.w, "FAIL  %s\n%s", name, text)
	r.failures = append(r.failures, failure{name, []byte(text)})
}

// stuck says once that no test has ended for too long, and which are running. While go test
// compiles none can.
func (r *report) stuck() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	if len(r.running) == 0 {
		r.moved = now
	}
	if r.ended || now.Sub(r.moved) < patience {
		return false
	}
	r.ended = true
	r.failures = append(r.failures, failure{name: fmt.Sprintf("the run: no test has ended for %v", patience)})
	fmt.Fprintf(r.w, "no test has ended for %v; running:\n", patience)
	for _, pkg := range slices.Sorted(maps.Keys(r.running)) {
		for _, test := range slices.Sorted(maps.Keys(r.running[pkg])) {
			fmt.Fprintf(r.w, "    %s %s, for %s\n", pkg, test, clock(now.Sub(r.running[pkg][test])))
		}
	}
	return true
}

// interrupted ends the report: what fails from now on fails because of it.
func (r *report) interrupted() {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.w, "interrupted after %s, %d passed\n", clock(r.now().Sub(r.begin)), r.passed)
	r.w = io.Discard
}

// close prints the end of the report.
func (r *report) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintln(r.w, "the slowest:")
	for _, test := range r.slowest {
		fmt.Fprintf(r.w, "%10.1f s  %s %s\n", max(test.Elapsed, 0).Seconds(), test.Package, test.Test)
	}
	if r.passed+len(r.failures) == 0 {
		r.failures = append(r.failures, failure{name: "no test ran"})
	}
	left := mostSaid
	for _, f := range r.failures {
		fmt.Fprintln(r.w, "failed:", f.name)
		if len(f.said) <= left {
			left -= len(f.said)
			fmt.Fprintf(r.w, "%s", f.said)
		}
	}
	fmt.Fprintf(r.w, "took %s\n%d passed, %d failed\n", clock(r.now().Sub(r.begin)), r.passed, len(r.failures))
}

// ok reports whether tests ran and all of them passed.
func (r *report) ok() bool {
	return r.passed > 0 && len(r.failures) == 0
}

// clock is minutes:seconds.
func clock(d time.Duration) string {
	s := int(d.Seconds())
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}
