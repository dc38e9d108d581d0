// The text of an error for the log: in one line, and the same for tries with the same cause, so
// that it is logged once.

package source

import (
	"regexp"
	"slices"
	"strings"
)

// OneLine puts an error in one line. pgconn's has a line for each address that was tried, twice the
// same when it was tried with and without TLS.
func OneLine(err error) error { return oneLineError{err} }

type oneLineError struct{ error }

func (e oneLineError) Error() string {
	lines := strings.Split(e.error.Error(), "\n\t")
	return strings.TrimSpace(lines[0] + " " + strings.Join(slices.Compact(lines[1:]), "; "))
}

// Unwrap is the error with its lines.
func (e oneLineError) Unwrap() error { return e.error }

// StableText removes from an error text what differs between tries with the same cause: the local
// address in errors of package net, the current time in the error about an expired certificate, and
// whether a TLS alert arrived during a write or a read.
func StableText(text string) string { return unsteady.ReplaceAllString(text, "$1$2") }

var unsteady = regexp.MustCompile(`\b(read tcp |write tcp )\S+->|\bcurrent time \S+ is |` +
	`\bfailed to (?:write startup message: write failed|receive message): (remote error: tls: )`)
