// The row of an event in an outbox table: how it is searched without running code of the table's
// owner, and where its event is when it has no row in the retry table or among the dead letters.

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

	"github.com/cdc-relay/cdc-relay/internal/sent"
	"github.com/cdc-relay/cdc-relay/internal/tableread"
)

// outboxRow is an event's row in an outbox table.
type outboxRow struct {
	table string
	id    string // as the stream has it
	// as which the stream may name its table: the leaf that has it, and its parents
	relations   []uint32
	tx          *int64 // the transaction that wrote it; nil: it does not say
	committedAt *time.Time
	seen        pglogrepl.LSN // the end of the WAL after the row was seen; 0: not known
}

// rowSQL reads an outboxRow. The end of the WAL is read after the statement's snapshot. A standby
// does not say it. The server forgets when old transactions were committed, and refuses ids that it
// has given again.
const rowSQL = `SELECT r.id, array(SELECT r.tableoid UNION SELECT relid::oid FROM pg_partition_ancestors(r.tableoid) relid), r.tx,
		CASE WHEN current_setting('track_commit_timestamp')::bool AND r.tx BETWEEN greatest(3, next - 2147483648) AND next - 1
			THEN pg_xact_commit_timestamp((r.tx & 4294967295)::text::xid) END,
		CASE WHEN pg_is_in_recovery() THEN '0/0' ELSE pg_current_wal_insert_lsn() END
	FROM (SELECT t.tableoid, %s AS id, %s AS tx FROM %s t WHERE %s) r, (SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next) n
	ORDER BY r.tx DESC NULLS LAST LIMIT 1`

// committed searches the row in a table; of several the one that was written last. unread is why
// the table is not looked into: reading it could run code of its owner.
func (a *Admin) committed(ctx context.Context, id string, t Outbox) (row *outboxRow, unread string, err error) {
	name := pgx.Identifier{t.Schema, t.Table}.Sanitize()
	quoted, kind, unread, err := a.idColumn(ctx, name, t)
	if err != nil || quoted == "" || unread != "" {
		return nil, unread, err
	}
	text := tableread.TextSQL(quoted, kind == "bpchar")
	tx, err := a.transactionColumn(ctx, name, t)
	if err != nil {
		return nil, "", err
	}
	query := func(condition string) error {
		found := outboxRow{table: t.Schema + "." + t.Table}
		err := tableread.Read(ctx, a.db, name, func(of pgx.Tx) error {
			return of.QueryRow(ctx, fmt.Sprintf(rowSQL, text, tx, name, condition), id).Scan(&found.id, &found.relations, &found.tx, &found.committedAt, &found.seen)
		})
		if err == nil {
			found.committedAt = utc(found.committedAt)
			row = &found
		}
		return err
	}
	err = query(quoted + "::" + kind + " = $1::text::" + kind)
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

// transactionColumn is the SQL of the transaction of a row of a table; NULL if it has no column for
// it.
func (a *Admin) transactionColumn(ctx context.Context, name string, t Outbox) (string, error) {
	var column *string
	err := a.db.QueryRow(ctx, `SELECT (SELECT attname FROM pg_attribute
		WHERE attrelid = to_regclass($1) AND attnum > 0 AND attname = ANY ($2::text[]) AND NOT attisdropped AND `+tableread.BaseTypeSQL("atttypid")+` IN ('xid8'::regtype, 'bigint'::regtype)
		ORDER BY array_position($2::text[], attname::text) LIMIT 1)`, name, t.Transaction).Scan(&column)
	switch {
	case err != nil:
		return "", explain("read the columns of "+name, err)
	case column == nil:
		return "NULL::bigint", nil
	}
	// whichever of the two it is
	return sent.TxSQL("t."+pgx.Identifier{*column}.Sanitize()+"::text::xid8", false), nil
}

// idColumn finds the table's id column, quoted, and its type, of a domain the base type; "": the
// table, or the column, no longer exists. A value of a type that is not PostgreSQL's own is not
// compared: its casts are its owner's functions. So is a column that is computed when it is read.
// The type is without a length, to which a cast would cut a longer id: -1, for NULL is one
// character.
func (a *Admin) idColumn(ctx context.Context, name string, t Outbox) (quoted, kind, unread string, err error) {
	var column string
	var own, computed bool
	err = a.db.QueryRow(ctx, `SELECT attname, format_type(y.oid, -1), typnamespace = 'pg_catalog'::regnamespace, attgenerated = 'v'
		FROM pg_attribute JOIN pg_type y ON y.oid = `+tableread.BaseTypeSQL("atttypid")+`
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

// progress is how far the slot is: what the server says, if the relay's record is of this system.
type progress struct {
	there, active bool // the slot exists in this database; somebody reads it
	// the record is of this system and its slot is ready; only then the others are set
	known bool

	// the slot's position, and the oldest transaction that it may still send; 0: not known, as when
	// the slot is not where the relay has left it
	confirmed  pglogrepl.LSN
	catalogXID int64
}

// progressSQL reads a progress. A slot above the flush limit was re-created or moved, and its
// position says nothing of what the relay has read. The limit is of the statement's snapshot, and
// the slot's position is of a moment later: moved may be wrong while a relay raises the limit.
var progressSQL = `SELECT r.slot_name IS NOT NULL, coalesce(r.active_pid IS NOT NULL, false),
		coalesce(s.state = 'ready' AND s.system_id = (SELECT system_identifier::text FROM pg_control_system()), false),
		coalesce(r.confirmed_flush_lsn, '0/0'), coalesce(` + tableread.WholeXID("r.catalog_xmin") + `, 0),
		coalesce(r.confirmed_flush_lsn > p.max_flush_lsn, true) AS moved
	FROM (SELECT $1::text AS slot, pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next) me
		LEFT JOIN cdc_relay.slots s ON s.slot = me.slot LEFT JOIN cdc_relay.progress p ON p.slot = me.slot
		LEFT JOIN pg_replication_slots r ON r.slot_name = me.slot AND r.database = current_database()`

func (a *Admin) progress(ctx context.Context) (p progress, err error) {
	var moved bool
	for range 3 {
		err = a.db.QueryRow(ctx, progressSQL, a.slot).Scan(&p.there, &p.active, &p.known, &p.confirmed, &p.catalogXID, &moved)
		if err != nil {
			return p, explain("read how far the slot is", err)
		}
		if !moved || !p.there {
			break
		}
	}
	if moved || !p.known {
		p.confirmed, p.catalogXID = 0, 0
	}
	return p, nil
}

// isPast reports whether the slot is past the transaction of a row, so that it does not send the
// row any more. A row is visible only after its commit is in the WAL, and the slot's position
// passes a transaction only when its events are settled (I1) and recorded.
//
//  1. Below catalogXID: the older ones had ended below the slot's position.
//  2. The position has reached the end of the WAL as it was after the row was seen.
func (p *progress) isPast(row *outboxRow) bool {
	return *row.tx < p.catalogXID || row.seen != 0 && p.confirmed >= row.seen
}

// wasSent reports whether a row is in the sent set of our slot: see package sent.
func (a *Admin) wasSent(ctx context.Context, id string, row *outboxRow) (yes bool, err error) {
	if row.tx == nil || *row.tx <= 0 {
		return false, nil
	}
	digest, _ := sent.Digest(uint64(*row.tx), []byte(id), nil)
	err = a.db.QueryRow(ctx, sent.HasSQL, a.slot, row.relations, sent.Chunk(uint64(*row.tx)), digest).Scan(&yes)
	if err != nil {
		return false, explain("read cdc_relay.sent", err)
	}
	return yes, nil
}

// isRetried reports whether one of the deferred rows and dead letters with an id is of a row: of
// one whose transaction is not known it may be.
func (a *Admin) isRetried(ctx context.Context, id string, row *outboxRow) (yes bool, err error) {
	const same = ` t WHERE t.slot = $1 AND t.id = $2::bytea AND (t.tx IS NULL OR $3::bigint IS NULL OR t.tx = $3) AND (t.relation IS NULL OR t.relation = ANY ($4::bigint[]))`
	relations := make([]int64, len(row.relations))
	for i, oid := range row.relations {
		relations[i] = int64(oid)
	}
	err = a.db.QueryRow(ctx, `SELECT EXISTS (SELECT FROM cdc_relay.retry`+same+`) OR EXISTS (SELECT FROM cdc_relay.dead_letter`+same+` AND `+prefixExpression("t.id")+` = $5::bytea)`,
		a.slot, []byte(id), row.tx, relations, prefix([]byte(id))).Scan(&yes)
	if err != nil {
		return false, explain("read cdc_relay.retry", err)
	}
	return yes, nil
}

// purged returns the number of the purged dead letter of a row; 0: there is none.
func (a *Admin) purged(ctx context.Context, id string, row *outboxRow) (n int64, err error) {
	if row.tx == nil || *row.tx <= 0 {
		return 0, nil
	}
	digest, _ := sent.Digest(uint64(*row.tx), []byte(id), nil)
	err = a.db.QueryRow(ctx, `SELECT coalesce(max(n), 0) FROM cdc_relay.dead_letter WHERE slot = $1 AND digest = $2 AND relation::oid = ANY ($3::oid[])`, a.slot, digest, row.relations).Scan(&n)
	if err != nil {
		return 0, explain("read cdc_relay.dead_letter", err)
	}
	return n, nil
}

// place describes an event whose row is in the outbox, and that has no row in the retry table and
// no dead letter.
func (a *Admin) place(ctx context.Context, e *Event, row *outboxRow, p progress, relay Relay) error {
	delivered, err := a.wasSent(ctx, e.ID, row)
	if err != nil {
		return err
	}
	purged, err := a.purged(ctx, e.ID, row)
	if err != nil {
		return err
	}
	switch {
	case purged > 0:
		e.State, e.Why = EventDeadLetter, fmt.Sprintf("dead letter %d: %s", purged, Purged)
	case delivered:
		e.State, e.Why = EventDelivered, "the broker has confirmed it (it is in cdc_relay.sent)"
	case row.tx == nil:
		e.State, e.Why = EventUnknown, "its row does not have the transaction that wrote it (outbox.transaction), by which deliveries are recorded"
	case p.isPast(row):
		e.State, e.Why = EventUnknown, "the slot is past its transaction, and no confirm of it is recorded: it was written before the slot, passed over, or is not the row that was inserted"
	case !p.there:
		e.State, e.Why = EventNotSeen, fmt.Sprintf("its row is committed, and slot %q is not in this database: see `cdc-relay check`", a.slot)
	case relay.Streaming && relay.InFlight > 0:
		e.State, e.Why = EventInFlight, fmt.Sprintf("the relay has %d events in flight, and has not settled all that was committed up to this one", relay.InFlight)
	case relay.Streaming && relay.Settled != 0 && (row.seen == 0 || relay.Settled < row.seen):
		e.State, e.Why = EventNotSeen, fmt.Sprintf("the relay has nothing in flight, and has read up to %s: the server has not sent it more", relay.Settled)
	case p.active:
		e.State, e.Why = EventInFlight, "a relay reads the slot, and the slot is not past this row's transaction"
	default:
		e.State, e.Why = EventNotSeen, "its row is committed, and no relay leads: it is sent when one does"
	}
	return nil
}
