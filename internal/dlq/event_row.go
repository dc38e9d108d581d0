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

	"github.com/cdc-relay/cdc-relay/internal/tableread"
)

// outboxRow is an event's row in an outbox table.
type outboxRow struct {
	table       string
	xid         int64 // of the transaction that wrote it last, with its epoch
	committedAt *time.Time
	seen        pglogrepl.LSN // the end of the WAL after the row was seen; 0: not known
}

// rowSQL reads an outboxRow. The end of the WAL is read after the statement's snapshot. A standby
// does not say it.
var rowSQL = `SELECT ` + tableread.WholeXID("t.xmin") + ` AS xid,
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

// progress is how far the slot is: what the relay has recorded of it, and what the server says.
type progress struct {
	there, active bool // the slot exists in this database; somebody reads it
	// the record is of this system and its slot is ready; only then the other fields are set
	known bool

	settledXID int64 // every transaction with a lower id is settled; 0: not known
	// every transaction with a lower id had ended when the WAL ended at endedAt; 0: not known
	endedXID int64
	endedAt  pglogrepl.LSN
	// the slot's position now, and the oldest transaction that it may still send; 0: not known, as
	// when the slot is not where the relay has left it
	confirmed  pglogrepl.LSN
	catalogXID int64
}

// progressSQL reads a progress. A slot above the flush limit was re-created or moved, and its
// position says nothing of what the relay has sent. The limit is of the statement's snapshot, and
// the slot's position is of a moment later: moved may be wrong while a relay raises the limit.
var progressSQL = `SELECT r.slot_name IS NOT NULL, coalesce(r.active_pid IS NOT NULL, false),
		coalesce(s.state = 'ready' AND s.system_id = (SELECT system_identifier::text FROM pg_control_system()), false),
		coalesce(p.settled_xid::text::bigint, 0), coalesce(p.ended_xid::text::bigint, 0), coalesce(p.ended_at, '0/0'),
		coalesce(r.confirmed_flush_lsn, '0/0'), coalesce(` + tableread.WholeXID("r.catalog_xmin") + `, 0),
		coalesce(r.confirmed_flush_lsn > p.max_flush_lsn, true) AS moved
	FROM (SELECT $1::text AS slot, pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next) me
		LEFT JOIN cdc_relay.slots s ON s.slot = me.slot LEFT JOIN cdc_relay.progress p ON p.slot = me.slot
		LEFT JOIN pg_replication_slots r ON r.slot_name = me.slot AND r.database = current_database()`

func (a *Admin) progress(ctx context.Context) (p progress, err error) {
	var moved bool
	for range 3 {
		err = a.db.QueryRow(ctx, progressSQL, a.slot).Scan(&p.there, &p.active, &p.known, &p.settledXID, &p.endedXID, &p.endedAt, &p.confirmed, &p.catalogXID, &moved)
		if err != nil {
			return p, explain("read how far the slot is", err)
		}
		if !moved || !p.there {
			break
		}
	}
	if !p.known {
		p = progress{there: p.there, active: p.active}
	}
	if moved {
		p.confirmed, p.catalogXID = 0, 0
	}
	return p, nil
}

// settled reports whether the transaction of a row is settled, and a position below which it was
// committed (0: not known). "Settled" is I2: the broker has confirmed its events, or they are in
// the retry tables. The slot's confirmed position, and the relay's watermark, pass a transaction
// only when it is settled (I1), and a row is visible only after its commit is in the WAL. So:
//
//  1. Below settledXID: the relay has recorded that, in this database. Whoever sees the record,
//     also after a promotion or a restore, sees the retry tables as they were then or later.
//     Another system's record is not used, because its ids are of other transactions.
//  2. Below endedXID, when the slot's position has reached endedAt: these transactions had ended
//     before endedAt was read, so their commits are below it. A subtransaction's id is above its
//     transaction's, which had ended too.
//  3. The slot's position, or the relay's watermark, has reached the end of the WAL as it was after
//     the row was seen.
//  4. Below catalogXID, the oldest transaction that the slot may still need to decode: the older
//     ones had ended below the slot's position.
//
// By 2, 3 and 4 the slot is past the transaction. It passes one of a table that has left the
// publication, too, until the relay's next look at that stops it. What the relay records is of
// before its last look.
//
// A slot that was dropped and made again is above the flush limit, and then 2 and 4 are not used,
// nor its position in 3. When a relay records a new slot (slot.MakeReady), settledXID begins again,
// with what was committed before it: see beforeSlot.
func (p *progress) settled(row *outboxRow, relay Relay) (yes bool, before pglogrepl.LSN) {
	below := func(at pglogrepl.LSN) {
		if yes = true; before == 0 || at != 0 && at < before {
			before = at
		}
	}
	if row.xid < p.settledXID {
		below(0)
	}
	if row.xid < p.endedXID && (yes || p.confirmed >= p.endedAt) {
		below(p.endedAt)
	}
	if row.xid < p.catalogXID {
		below(p.confirmed)
	}
	if row.seen != 0 && max(p.confirmed, relay.Settled) >= row.seen {
		below(row.seen)
	}
	return yes, before
}

// beforeSlot reports whether a row was committed before the slot was created, whose relay has not
// recorded anything since: after that nothing tells them from delivered ones.
func (p *progress) beforeSlot(row *outboxRow) bool { return p.endedXID == 0 && row.xid < p.settledXID }

// place describes an event whose row is in the outbox.
func (a *Admin) place(ctx context.Context, e *Event, row *outboxRow, p progress, relay Relay) error {
	yes, before := p.settled(row, relay)
	switch {
	case yes && p.beforeSlot(row):
		e.State, e.Why = EventNotSent, "committed before the slot, not sent by it"
		return nil
	case yes:
		gap, err := a.acceptedGap(ctx, row.xid)
		if err != nil {
			return err
		}
		if gap != "" {
			e.State, e.Why = EventAccepted, gap
			return nil
		}
		e.State = EventDelivered
		past := "the slot is past its transaction"
		if before != 0 {
			e.CommittedBefore = before.String()
			past = "committed before " + e.CommittedBefore + ", which is settled"
		}
		unless := ", unless it was committed before the slot was created"
		if row.xid >= p.settledXID {
			unless += ", or its table has left the publication since the relay looked last"
		}
		e.Why = past + ", and nothing of it is in the retry table: the broker has confirmed it" + unless
	case !p.there:
		e.State, e.Why = EventNotSeen, fmt.Sprintf("its row is committed, and slot %q is not in this database: see `cdc-relay check`", a.slot)
	case relay.Streaming && relay.InFlight > 0:
		e.State, e.Why = EventInFlight, fmt.Sprintf("the relay has %d events in flight, and has not settled all that was committed up to this one", relay.InFlight)
	case relay.Streaming && relay.Settled != 0:
		e.State, e.Why = EventNotSeen, fmt.Sprintf("the relay has nothing in flight, and has read up to %s: the server has not sent it more", relay.Settled)
	case p.active:
		e.State, e.Why = EventInFlight, "a relay reads the slot, and the slot is not known to be past this row's transaction"
	default:
		e.State, e.Why = EventNotSeen, "its row is committed, and no relay leads: it is sent when one does"
	}
	return nil
}

// acceptedGap describes an interval that was accepted as missing and has the transaction in it; "":
// none has.
func (a *Admin) acceptedGap(ctx context.Context, xid int64) (string, error) {
	var finding string
	var at time.Time
	err := a.db.QueryRow(ctx, `SELECT g.finding, g.accepted_at FROM cdc_relay.gap g JOIN cdc_relay.slots s ON s.slot = g.slot AND s.system_id = g.system_id
		WHERE g.slot = $1::text AND g.recovered_at IS NULL AND coalesce(g.from_xid::text::bigint <= $2, true) AND coalesce(g.until_xid::text::bigint > $2, true)
		ORDER BY g.id DESC LIMIT 1`, a.slot, xid).Scan(&finding, &at)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return "", nil
	case err != nil:
		return "", explain("read cdc_relay.gap", err)
	}
	return fmt.Sprintf("committed in an interval that was accepted as missing at %s (finding %s): it may have been delivered before", at.UTC().Format(time.RFC3339), finding), nil
}
