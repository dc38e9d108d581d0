// Errors of commands and their exit codes.

package command

import (
	"errors"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// UsageError is an error of exit 2: the command line is wrong.
func UsageError(what string) error {
	return &event.Stop{Code: event.ExitUsage, Reason: "usage", What: what}
}

// ExitCode is the code of a Stop; 2 for an error from before the command began (an unknown command,
// flag or argument); else 1.
func ExitCode(err error, started bool) int {
	var stop *event.Stop
	switch {
	case err == nil:
		return event.ExitOK
	case errors.As(err, &stop):
		return stop.Code
	case !started:
		return event.ExitUsage
	}
	return event.ExitFailure
}

// Logged is an error that was already logged or shown. It is not printed again.
type Logged struct{ Err error }

// Error implements error.
func (l Logged) Error() string { return l.Err.Error() }

// Unwrap returns the error that was logged.
func (l Logged) Unwrap() error { return l.Err }
