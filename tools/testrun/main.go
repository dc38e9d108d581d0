// Command testrun runs go test and shows what a person can follow: a line per package with a
// running count, a line when nothing else was printed for ten seconds, a failure at once with what
// the test has said, and at the end the ten slowest tests and "N passed, N failed".
//
//	bin/testrun [go test flags] packages
//
// It reads go test's output by gotestsum's package testjson. gotestsum itself has no running count,
// does not fail over a skipped test, and has no watchdog: here go test has no timeout, which would
// be of a machine's speed. A run in which no test has ended for five minutes is ended, and what was
// running is named.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"gotest.tools/gotestsum/testjson"
)

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "testrun:", err)
	}
	os.Exit(code)
}

// run is the exit code: go test's, 1 when a test was skipped or none ran, 130 after an interrupt.
func run(args []string) (int, error) {
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt, syscall.SIGTERM)
	// who reads this may end first; go test has to be ended all the same
	signal.Ignore(syscall.SIGPIPE)

	cmd := exec.CommandContext(context.Background(), "go", append([]string{"test", "-json", "-timeout=0"}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // it is ended with its children
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return 1, fmt.Errorf("open pipe: %w", err)
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return 1, fmt.Errorf("open pipe: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return 1, fmt.Errorf("start go test: %w", err)
	}
	rep := newReport(os.Stdout, time.Now)
	done := make(chan struct{})
	ended := make(chan bool, 1) // it was interrupted
	go func() { ended <- watch(rep, cmd.Process.Pid, interrupts, done) }()
	_, err = testjson.ScanTestOutput(testjson.ScanConfig{Stdout: stdout, Stderr: stderr, Handler: rep, IgnoreNonJSONOutputLines: true})
	_ = cmd.Wait() //nolint:errcheck // its exit code says it all
	close(done)
	if <-ended {
		return 130, nil
	}
	rep.close()
	if err != nil {
		return 1, fmt.Errorf("read go test: %w", err)
	}
	if code := cmd.ProcessState.ExitCode(); code != 0 {
		return max(code, 1), nil // -1: by a signal
	}
	if !rep.ok() {
		return 1, nil
	}
	return 0, nil
}

// watch ends go test and its tests when it is told to, or when nothing has moved for too long. It
// returns when done is closed, and says whether it was interrupted.
func watch(rep *report, group int, interrupts <-chan os.Signal, done <-chan struct{}) (interrupted bool) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return interrupted
		case <-interrupts:
			interrupted = true
			rep.interrupted()
			end(group, syscall.SIGINT, done)
		case <-tick.C:
			rep.progress()
			if rep.stuck() {
				// by which a test prints where its goroutines stand
				end(group, syscall.SIGQUIT, done)
			}
		}
	}
}

// end signals the group, and kills it when it is still there two seconds later.
func end(group int, sig syscall.Signal, done <-chan struct{}) {
	_ = syscall.Kill(-group, sig) //nolint:errcheck // it may be gone
	select {
	case <-done:
	case <-time.After(2 * time.Second):
		_ = syscall.Kill(-group, syscall.SIGKILL) //nolint:errcheck // likewise
	}
}
