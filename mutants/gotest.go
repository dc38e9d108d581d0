package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// outcome is what a run of go test said.
type outcome struct {
	results  map[string]string // of each test that ended: pass, fail or skip
	built    bool
	timedOut bool
	output   string
}

// goTest runs the tests of one package that match the pattern.
func goTest(ctx context.Context, dir, pkg, pattern string, timeout time.Duration) outcome {
	// The test ends itself at its timeout; this bound is for the build, and for a process that does not even do that.
	ctx, cancel := context.WithTimeout(ctx, timeout+5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-json", "-count=1", "-vet=off", "-failfast", "-timeout", timeout.String(), "-run", pattern, pkg)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-trimpath")                     // what is the same in all copies is built once
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) } // go test passes it on to the test
	cmd.WaitDelay = 10 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	o := parse(out.Bytes())
	if err != nil && len(o.results) == 0 && o.output == "" {
		o.output = err.Error()
	}
	return o
}

// parse reads the events of go test -json (go doc test2json).
func parse(events []byte) outcome {
	o := outcome{results: map[string]string{}, built: true}
	var text strings.Builder
	for line := range bytes.Lines(events) {
		var ev struct{ Action, Test, Output, FailedBuild string }
		if json.Unmarshal(line, &ev) != nil {
			text.Write(line)
			continue
		}
		switch ev.Action {
		case "build-fail":
			o.built = false
		case "output", "build-output":
			text.WriteString(ev.Output)
			o.timedOut = o.timedOut || strings.HasPrefix(ev.Output, "panic: test timed out after")
		case "pass", "fail", "skip":
			if ev.Test != "" {
				o.results[ev.Test] = ev.Action
			}
			o.built = o.built && ev.FailedBuild == ""
		}
	}
	o.output = text.String()
	return o
}

// escape quotes a test's name for -run, level by level.
func escape(test string) string { return regexp.QuoteMeta(test) }

// tail is the end of a long output, for a report.
func tail(output string) string {
	const keep = 2000
	if len(output) > keep {
		output = fmt.Sprintf("... %d bytes more ...\n%s", len(output)-keep, output[len(output)-keep:])
	}
	return strings.TrimRight(output, "\n")
}
