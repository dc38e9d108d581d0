// Server errors: what they say about a statement, and their texts without the values of rows.

package postgres

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/lazy"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
)

// redacted is a server error whose text leaves out the values of rows, for the log and the status.
// (The error's DETAIL, which shows whole rows, is never part of the text.)
type redacted struct{ error }

// Unwrap is the error itself.
func (e redacted) Unwrap() error { return e.error }

func (e redacted) Error() string {
	text := e.error.Error()
	var server *pgconn.PgError
	if errors.As(e.error, &server) {
		text = strings.ReplaceAll(text, server.Error(), serverText(server))
	}
	return text
}

// withoutValues are the SQLSTATEs, by their beginnings, for which the server's own messages name
// objects and no values: an operator needs them to see what to fix. Messages of class 22 are shown
// without what they quote (unquoted). The messages of all other SQLSTATEs are not shown: among them
// are those that users' code chooses (P0001, 45000) and internal errors.
var withoutValues = []string{
	"08", "0A", "21", "23", "25", "26", "28", "3D", "3F", "40", "42501", "42703", "42704", "42804", "42883", "42P01", "42P05", "42P10",
	"44", "53", "54", "55", "57", "58", "XX001", "XX002",
}

// userCode matches the server's source files in which users' functions raise errors, with any
// SQLSTATE and any text.
var userCode = lazy.Regexp(`^pl(_|py|perl|tcl|v8)`)

// function matches, in the context of an error, the function that raised it.
var function = lazy.Regexp(`^PL/\w+ function "?([\w.]+)`)

// serverText is the text of the server's error without values.
func serverText(e *pgconn.PgError) string {
	message := "…"
	switch begins := func(code string) bool { return strings.HasPrefix(e.Code, code) }; {
	case userCode().MatchString(e.File):
	case begins("22"):
		message = cmp.Or(unquoted(e.Message), message)
	case slices.ContainsFunc(withoutValues, begins):
		message = e.Message
	}
	said := fmt.Sprintf("%s: %s (SQLSTATE %s)", e.Severity, message, e.Code)
	if message != "…" {
		return said
	}
	about := ""
	if found := function().FindStringSubmatch(e.Where); found != nil {
		about += ", function " + found[1]
	}
	for _, name := range [][2]string{{"schema", e.SchemaName}, {"table", e.TableName}, {"column", e.ColumnName}, {"constraint", e.ConstraintName}} {
		if name[1] != "" {
			about += fmt.Sprintf(", %s %q", name[0], name[1])
		}
	}
	return said + about + "; the server's log has its text"
}

// quoted matches what is between the first quote and the last: the server does not escape quotes in
// values.
var quoted = lazy.Regexp(`(?s)".*"|0x[0-9a-f]{2}( 0x[0-9a-f]{2})*`)

// unquoted is the message of a data exception without the quoted values; "" when they cannot be
// found, because other languages have other quotes.
func unquoted(message string) string {
	rest := quoted().ReplaceAllString(message, "")
	if strings.ContainsFunc(rest, func(c rune) bool { return c == '"' || c > '~' }) {
		return ""
	}
	return quoted().ReplaceAllString(message, "…")
}

// refusing are the classes of SQLSTATE that blame the statement's data, so that the same statement
// would fail again: data, integrity, program limit, internal error. A failure that an operator
// fixes or that passes by itself (a missing privilege, locks, timeouts, a full disk, a server that
// stops) is not among them: the same statement is simply repeated.
var refusing = []string{"22", "23", "54", "XX"}

func isFenced(err error) bool { return errors.Is(err, store.ErrFenced) }

// isRefusal reports whether the server refused the statement for its data; it then did nothing.
func isRefusal(err error) bool {
	var e *pgconn.PgError
	if !didNothing(err) || !errors.As(err, &e) {
		return false
	}
	for _, class := range refusing {
		if strings.HasPrefix(e.Code, class) {
			return true
		}
	}
	return false
}

// asRowError returns err. It wraps err in a *Refused when the server could not read a row of the
// statement, because the row is damaged.
func asRowError(err error) error {
	if isRefusal(err) {
		return &store.Refused{Err: err}
	}
	return err
}

// didNothing reports whether the statement was certainly rolled back. An ERROR ends its
// transaction; FATAL and PANIC end the session, perhaps after the commit.
func didNothing(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && e.SeverityUnlocalized == "ERROR"
}

// withRow returns err with the row at fault, which is known when there is only one row.
func withRow(err error, rows ...*store.Row) error {
	var refused *store.Refused
	if errors.As(err, &refused) && len(rows) == 1 {
		refused.Row = rows[0]
	}
	return err
}
