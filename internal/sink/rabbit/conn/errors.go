// Errors of a connection in one line.

package conn

import (
	"errors"
	"regexp"
)

// ErrGone says that the connection has ended.
var ErrGone = errors.New("connection lost")

// ErrFrozen ends a connection over which an answer may have been missed.
var ErrFrozen = errors.New("the process was suspended for seconds: answers of the broker may have been missed")

// ephemeral is what differs at every connect in an error's text: the local end of a socket, and the
// time in the error of an expired certificate.
var ephemeral = regexp.MustCompile(`[^ ]+:\d+->|current time \S+ is `)

// ErrorText is err in one line that is the same whenever the cause is.
func ErrorText(err error) string {
	return ephemeral.ReplaceAllString(err.Error(), "")
}
