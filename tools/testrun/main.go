// Command testrun runs go test, shows what failed and counts what ran.
//
//	go run ./tools/testrun [go test flags] packages
//
// It prints one line per package, the output of failing tests only (and log lines of others that begin with "report: "), at the
// end the names of the failing ones once more with the beginnings of what they have said, how long it took, and "N passed, N failed"
// as the last line. A skipped test is a failure: nothing here may be left out in silence. The exit code is go test's, or 1.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"time"
)

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "testrun:", err)
	}
	os.Exit(code)
}

func run(args []string) (int, error) {
	// An interrupt reaches go test too, by the terminal; it ends the tests and we report what it reported.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt)

	begin := time.Now()
	cmd := exec.CommandContext(context.Background(), "go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 1, fmt.Errorf("open pipe: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return 1, fmt.Errorf("start go test: %w", err)
	}
	rep := newReport(os.Stdout)
	readErr := rep.read(out)
	waitErr := cmd.Wait()
	rep.close(time.Since(begin))
	if readErr != nil {
		return 1, fmt.Errorf("read go test: %w", readErr)
	}
	if exit, ok := errors.AsType[*exec.ExitError](waitErr); ok && exit.ExitCode() > 0 {
		return exit.ExitCode(), nil
	}
	if waitErr != nil {
		return 1, fmt.Errorf("run go test: %w", waitErr)
	}
	if !rep.ok() {
		return 1, nil
	}
	return 0, nil
}
