// The go command: it builds what a patch changes, runs the named test, and its output is read.

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
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

// goTest is go test with these arguments, and with the files that the overlay names; "" for none.
// It ends with ctx, and with it the compilers and tests that it has started.
func (l *lab) goTest(ctx context.Context, timeout time.Duration, overlay string, args ...string) outcome {
	// The test ends itself at its timeout; this bound is for the build, and for a process that does
	// not even do that.
	ctx, cancel := context.WithTimeout(ctx, timeout+10*time.Minute)
	defer cancel()
	args = append([]string{"test", "-json", "-count=1", "-vet=off", "-failfast", "-tags", "testall", "-timeout", timeout.String()}, args...)
	return runTests(l.command(ctx, overlay, args...))
}

// command is a go command that ends with ctx.
func (l *lab) command(ctx context.Context, overlay string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = l.root
	// A relay that was built before has no bug. One that the test builds has it by GOFLAGS.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "CDC_RELAY_TEST_BINARY=") })
	if overlay != "" {
		cmd.Env = append(cmd.Env, "GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+overlay)
	}
	// go test does not pass an interrupt on to the test, so all of its process group gets it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		group := -cmd.Process.Pid
		time.AfterFunc(time.Second, func() { _ = syscall.Kill(group, syscall.SIGKILL) }) //nolint:errcheck // it may be gone
		return syscall.Kill(group, syscall.SIGINT)
	}
	cmd.WaitDelay = 2 * time.Second
	return cmd
}

// runTests runs a command that prints what go test -json prints.
func runTests(cmd *exec.Cmd) outcome {
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

// tail is the end of a long output, for a report.
func tail(output string) string {
	const keep = 2000
	if len(output) > keep {
		output = fmt.Sprintf("... %d bytes more ...\n%s", len(output)-keep, output[len(output)-keep:])
	}
	return strings.TrimRight(output, "\n")
}
