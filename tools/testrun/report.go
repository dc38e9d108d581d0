package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"
)

// event is one line of go test -json (go doc test2json).
type event struct {
	Action     string
	Package    string
	ImportPath string // of build-output
	Test       string
	Elapsed    float64 // seconds
	Output     string
}

// report turns the events of go test into lines for people. Tests and subtests count alike.
type report struct {
	w        io.Writer
	packages map[string]*pkg
	passed   int
	failed   int
	skipped  []string
	failures []failure
}

// failure is what has failed, and what it has said of that.
type failure struct {
	name string
	said []byte
}

// pkg is a package whose tests are running.
type pkg struct {
	tests  map[string]*bytes.Buffer // output of tests that have not ended
	output bytes.Buffer             // of no test: TestMain, panics, go test itself
	ran    int
	failed bool
}

func newReport(w io.Writer) *report {
	return &report{w: w, packages: map[string]*pkg{}}
}

// read consumes the output of go test -json. What is not an event is passed through.
func (r *report) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var ev event
			if json.Unmarshal(line, &ev) != nil || ev.Action == "" {
				fmt.Fprintf(r.w, "%s", line)
			} else {
				r.event(&ev)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *report) event(ev *event) {
	if ev.Action == "build-output" {
		fmt.Fprint(r.w, ev.Output)
		return
	}
	if ev.Package == "" {
		return
	}
	p := r.packages[ev.Package]
	if p == nil {
		p = &pkg{tests: map[string]*bytes.Buffer{}}
		r.packages[ev.Package] = p
	}
	if ev.Test == "" {
		r.packageEvent(p, ev)
	} else {
		r.testEvent(p, ev)
	}
}

func (r *report) testEvent(p *pkg, ev *event) {
	out := p.tests[ev.Test]
	if out == nil {
		out = new(bytes.Buffer)
		p.tests[ev.Test] = out
	}
	switch ev.Action {
	case "output":
		out.WriteString(ev.Output)
		return
	case "pass":
		r.passed++
		r.told(out)
	case "fail":
		p.failed = true
		r.fail(ev.Package+" "+ev.Test, out)
		fmt.Fprint(r.w, out.String())
	case "skip":
		p.failed = true
		r.skipped = append(r.skipped, ev.Package+" "+ev.Test)
		fmt.Fprint(r.w, out.String())
	default: // run, pause, cont
		return
	}
	p.ran++
	delete(p.tests, ev.Test)
}

// told passes on what a test that passed wants to be seen: its log lines that begin with "report: ".
func (r *report) told(out *bytes.Buffer) {
	for line := range bytes.Lines(out.Bytes()) {
		if _, text, ok := bytes.Cut(line, []byte(": report: ")); ok {
			fmt.Fprintf(r.w, "      %s", text)
		}
	}
}

func (r *report) packageEvent(p *pkg, ev *event) {
	switch ev.Action {
	case "output":
		p.output.WriteString(ev.Output)
	case "pass":
		fmt.Fprintf(r.w, "ok    %-60s %4d tests %7.1f s\n", ev.Package, p.ran, ev.Elapsed)
		delete(r.packages, ev.Package)
	case "fail":
		r.unended(p, ev.Package)
		if !p.failed { // the package does not build, its TestMain failed, or it panicked outside a test
			r.fail(ev.Package, &p.output)
		}
		fmt.Fprint(r.w, p.output.String())
		fmt.Fprintf(r.w, "FAIL  %-60s %4d tests %7.1f s\n", ev.Package, p.ran, ev.Elapsed)
		delete(r.packages, ev.Package)
	case "skip": // no test files
		delete(r.packages, ev.Package)
	}
}

// unended fails the tests that began and did not end, because the process died.
func (r *report) unended(p *pkg, name string) {
	for test, out := range p.tests {
		p.failed = true
		p.ran++
		r.fail(name+" "+test+" (did not end)", out)
		fmt.Fprint(r.w, out.String())
	}
}

func (r *report) fail(name string, output *bytes.Buffer) {
	r.failed++
	r.failures = append(r.failures, failure{name, said(output.Bytes())})
}

// close prints the verdict; a package that never ended has failed.
func (r *report) close(took time.Duration) {
	for name, p := range r.packages {
		r.unended(p, name)
		if !p.failed {
			r.fail(name+" (did not end)", &p.output)
		}
		fmt.Fprint(r.w, p.output.String())
	}
	slices.SortFunc(r.failures, func(a, b failure) int { return cmp.Compare(a.name, b.name) })
	left := mostSaid
	for _, f := range r.failures {
		fmt.Fprintln(r.w, "failed:", f.name)
		if len(f.said) <= left {
			left -= len(f.said)
			fmt.Fprintf(r.w, "%s", f.said)
		}
	}
	for _, name := range r.skipped {
		fmt.Fprintln(r.w, "skipped, which is not allowed here:", name)
	}
	if r.passed+r.failed == 0 {
		fmt.Fprintln(r.w, "no test ran")
	}
	fmt.Fprintf(r.w, "took %.0f s\n", took.Seconds())
	verdict := fmt.Sprintf("%d passed, %d failed", r.passed, r.failed)
	if len(r.skipped) > 0 {
		verdict += fmt.Sprintf(", %d skipped", len(r.skipped))
	}
	fmt.Fprintln(r.w, verdict)
}

// ok: everything that was asked for ran, and passed.
func (r *report) ok() bool {
	return r.passed > 0 && r.failed == 0 && len(r.skipped) == 0
}
