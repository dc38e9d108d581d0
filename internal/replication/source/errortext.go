package source

import (
	"regexp"
	"slices"
	"strings"
)

// OneLine is an error in one line. pgconn's has a line for each address that was tried, twice the
// same when it was tried with and without TLS.
func OneLine(err error) error { return oneLineError{err} }

type oneLineError struct{ error }

func (e oneLineError) Error() string {
	lines := strings.Split(e.error.Error(), "\n\t")
	return strings.TrimSpace(lines[0] + " " + strings.Join(slices.Compact(lines[1:]), "; "))
}

// Unwrap is the error with its lines.
func (e oneLineError) Unwrap() error { return e.error }

// StableText is what an error says without what differs from try to try for the same reason: our
// own end of a connection in an error of package net, the clock beside a certificate that has
// expired, and whether TLS's alert about ours met us as we wrote or as we read.
func StableText(text string) string { return unsteady.ReplaceAllString(text, "$1$2") }

var unsteady = regexp.MustCompile(`\b(read tcp |write tcp )\S+->|\bcurrent time \S+ is |` +
	`\bfailed to (?:write startup message: write failed|receive message): (remote error: tls: )`)
