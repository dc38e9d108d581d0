// What an SQLSTATE says about a statement.

package postgres

import (
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/retry/store"
)

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
