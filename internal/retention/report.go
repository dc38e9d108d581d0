// What keeps rows from being deleted: which errors are news, and what to do about them.

package retention

import (
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/tableread"
)

// passes reports whether an error is no news: somebody holds a lock, or the table was dropped.
func passes(err error) bool {
	return sqlClass(err, "55P03") || tableread.Undefined(err)
}

// ofRows reports whether an error is about some rows, and not about a whole table or the server.
func ofRows(err error) bool {
	for _, class := range []string{"21", "22", "23", "54", "57014", "XX"} {
		if sqlClass(err, class) {
			return true
		}
	}
	return false
}

func sqlClass(err error, class string) bool {
	server, ok := errors.AsType[*pgconn.PgError](err)
	return ok && strings.HasPrefix(server.Code, class)
}

// warn logs what keeps rows from being deleted, once while it lasts.
func (p *pass) warn(of string, err error) {
	text := of + ": " + err.Error()
	p.said[text] = true
	if p.logged[text] {
		return
	}
	p.logged[text] = true
	fields := []zap.Field{zap.String("table", of), zap.Error(err)}
	if fix := fixOf(of, err); fix != "" {
		fields = append(fields, zap.String("fix", fix))
	}
	p.cfg.Log.Warn("cannot delete delivered rows: they stay, and delivery goes on", fields...)
}

func fixOf(table string, err error) string {
	if lack, ok := errors.AsType[*refusal](err); ok {
		return lack.fix
	}
	if refusal, ok := tableread.IsRefusal(err); ok {
		return refusal.Fix
	}
	if sqlClass(err, "42501") {
		return "run `cdc-relay check`, which names the right that is missing"
	}
	return ""
}

// refusal is why nothing is deleted from a table.
type refusal struct{ what, fix string }

func (r *refusal) Error() string { return r.what }

func listNames(names []string) string { return strings.Join(names, ", ") }
