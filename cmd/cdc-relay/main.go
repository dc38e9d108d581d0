// Command cdc-relay relays committed outbox rows from PostgreSQL's WAL to a message broker.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

func main() {
	os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr))
}

// execute runs one command line and gives its exit code. An error is one message on
// stderr, unless it was logged already.
func execute(args []string, stdout, stderr io.Writer) int {
	root, g := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.Execute()
	var done logged
	if err != nil && !errors.As(err, &done) {
		fmt.Fprintln(stderr, layOut("cdc-relay: "+err.Error(), columnsOf(stderr), 0))
	}
	return exitCode(err, g.started)
}

// exitCode is the code of a Stop; 2 for an error from before the command began (an unknown command, flag or argument);
// else 1.
func exitCode(err error, started bool) int {
	var stop *outbox.Stop
	switch {
	case err == nil:
		return outbox.ExitOK
	case errors.As(err, &stop):
		return stop.Code
	case !started:
		return outbox.ExitUsage
	}
	return outbox.ExitFailure
}

// logged is an error that stands in the log already and is not printed again.
type logged struct{ error }

// Unwrap is the error that was logged.
func (l logged) Unwrap() error { return l.error }
