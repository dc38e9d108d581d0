// The row of an event in an outbox table: how it is searched without running code of the table's
// owner.

package dlq

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/tableread"
)

// outboxRow is an event's row in an outbox table.
type outboxRow struct {
	table       string
	xid         int64 // of the transaction that wrote it last, with its epoch
	committedAt *time.Time
	seen        pglogrepl.LSN // the end of the WAL after the row was seen; 0: not known
}

// wholeXID is the SQL of a transaction's id with its epoch. A row has its lower half. A row that is
// visible was written below next, the next transaction to begin, or by the transaction that looks,
// which may be a little above: so the id is the nearest below 2^24 more than next. A row that is
// older than 2^32 transactions gets too high an id: it seems newer than it is, and never settled
// when it is not. schema.CreateStatusView uses the same.
func wholeXID(of string) string {
	return "(next + 16777216 - ((next + 16777216 - " + of + "::text::bigint) & 4294967295))"
}

// rowSQL reads an outboxRow. The end of the WAL is read after the statement's snapshot. A standby
// does not say it.
var rowSQL = `SELECT ` + wholeXID("t.xmin") + ` AS xid,
		CASE WHEN current_setting('track_commit_timestamp')::bool THEN pg_xact_commit_timestamp(t.xmin) END,
		CASE WHEN pg_is_in_recovery() THEN '0/0' ELSE pg_current_wal_insert_lsn() END
	FROM %s t, (SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next) n WHERE %s ORDER BY xid DESC LIMIT 1`

// committed searches the row in a table; of several the one that was written last. unread is why
// the table is not looked into: reading it could run code of its owner.
func (a *Admin) committed(ctx context.Context, id string, t Outbox) (row *outboxRow, unread string, err error) {
	name := pgx.Identifier{t.Schema, t.Table}.Sanitize()
	quoted, kind, unread, err := a.idColumn(ctx, name, t)
	if err != nil || quoted == "" || unread != "" {
		return nil, unread, err
	}
	query := func(condition string) error {
		found := outboxRow{table: t.Schema + "." + t.Table}
		err := tableread.Read(ctx, a.db, name, func(tx pgx.Tx) error {
			return tx.QueryRow(ctx, fmt.Sprintf(rowSQL, name, condition), id).Scan(&found.xid, &found.committedAt, &found.seen)
		})
		if err == nil {
			found.committedAt = utc(found.committedAt)
			row = &found
		}
		return err
	}
	err = query(quoted + " = $1::text::" + kind)
	// the type has no equality, or is not cast from text
	if sqlClass(err, "42883") || sqlClass(err, "42846") {
		err = query(quoted + "::text = $1")
	}
	if refusal, ok := tableread.IsRefusal(err); ok {
		return nil, refusal.Error(), nil
	}
	// not a value of that type, or the table is gone
	if errors.Is(err, pgx.ErrNoRows) || sqlClass(err, "22") || tableread.Undefined(err) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", explain("search the row in "+name, err)
	}
	return row, "", nil
}

// idColumn finds the table's id column, quoted, and its type; "": the table, or the column, no
// longer exists. A value of a type that is not PostgreSQL's own is not compared: its casts, and a
// domain's checks, are its owner's functions. So is a column that is computed when it is read.
func (a *Admin) idColumn(ctx context.Context, name string, t Outbox) (quoted, kind, unread string, err error) {
	var column string
	var own, computed bool
	err = a.db.QueryRow(ctx, `SELECT attname, format_type(atttypid, NULL), typnamespace = 'pg_catalog'::regnamespace, attgenerated = 'v'
		FROM pg_attribute JOIN pg_type y ON y.oid = atttypid
		WHERE attrelid = to_regclass($1) AND attnum > 0 AND attname = ANY ($2::text[]) AND NOT attisdropped ORDER BY array_position($2::text[], attname::text) LIMIT 1`,
		name, t.ID).Scan(&column, &kind, &own, &computed)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return "", "", "", nil
	case err != nil:
		return "", "", "", explain("read the columns of "+name, err)
	case !own:
		unread = fmt.Sprintf("%s is not searched: its column %s has type %s, which is not one of PostgreSQL's own", name, column, kind)
	case computed:
		unread = fmt.Sprintf("%s is not searched: its column %s is computed when it is read", name, column)
	}
	return "t." + pgx.Identifier{column}.Sanitize(), kind, unread, nil
}

func sqlClass(err error, class string) bool {
	var server *pgconn.PgError
	return errors.As(err, &server) && strings.HasPrefix(server.Code, class)
}
