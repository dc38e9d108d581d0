// The record of a slot: what the relay remembers of it in cdc_relay.slots and cdc_relay.progress.
// Without the record a relay could not tell its own slot from one that was moved or made again, so
// each change to a slot is recorded in an order that survives a crash.

package slot

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/schema"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/sent"
)

// Record is our row of cdc_relay.slots with the numbers of cdc_relay.progress: what we remember of
// the slot.
type Record struct {
	SystemID    string
	Timeline    int32
	Publication string
	State       string // StateCreating, StateReady, StateAdopt or StateTakeover
	Incarnation int64
	Epoch       int64
	Leader      string
	// Raised is when the row was last changed; it distinguishes two relays that raised the epoch to
	// the same number
	Raised    string
	Sends     schema.Sends
	SendsText string // Sends as the row has it, with which a write is compared
	// FlushLimit is the highest position that may be reported to the slot; 0 while the slot is
	// created
	FlushLimit pglogrepl.LSN
	// Reported is the position that was last reported to the slot when the row of
	// cdc_relay.progress was written
	Reported pglogrepl.LSN
	// Good is the highest position at which publication and tables were checked and found in order.
	// If a later check fails, rows committed after Good may be missing.
	Good pglogrepl.LSN
	// Settled is a position below which every committed event is settled; rows of ours that settle
	// an event were committed before Settled was written. 0 means that it is not known.
	Settled pglogrepl.LSN
	// Standbys are the physical slots that synchronized_standby_slots named while the slot was
	// read; OtherStandbys says whether the server had, or may have had, a standby besides them
	Standbys      []string
	OtherStandbys bool
	// Restored means that the slot was used on another system: rows of its tables may have numbers
	// of that system's transactions, which were given to others here
	Restored bool
	Used     bool   // the slot has been in use: cdc_relay.progress has a row
	TookFrom string // the other program's slot that this one replaces
	// TookUntil is, while the takeover is not complete, the position that the other slot must reach
	// before it is copied. Afterwards, in the same incarnation, everything committed below it was
	// sent by that slot's program. 0 means that there was no takeover.
	TookUntil pglogrepl.LSN
	keySecret [16]byte // see KeyHash
}

// KeyHash digests ordering keys under the secret of the slot.
func (r *Record) KeyHash() *event.KeyHash { return event.NewKeyHash(r.keySecret) }

const (
	// The states of a slot in cdc_relay.slots. Only a slot in state ready is read: one in state
	// creating is not complete, one in state adopt was accepted by an operator and is used or made
	// by the next start, and one in state takeover still waits for the other program.
	StateCreating = "creating"
	StateReady    = "ready"
	StateAdopt    = "adopt"
	StateTakeover = "takeover"
)

// ReadRecord reads the record of a slot; nil means that there is none.
func ReadRecord(ctx context.Context, q source.Querier, slot string) (*Record, error) {
	var r Record
	err := source.Ask(ctx, q, "read cdc_relay.slots", `SELECT s.system_id, s.timeline, s.publication, s.state, s.incarnation, s.epoch, s.leader, s.changed_at::text, s.sends, s.sends::text,
			coalesce(p.max_flush_lsn, '0/0'::pg_lsn), coalesce(p.reported, '0/0'::pg_lsn),
			coalesce(p.good, '0/0'::pg_lsn), p.slot IS NOT NULL,
			s.took_from, CASE s.took_incarnation WHEN s.incarnation THEN s.took_until ELSE '0/0' END,
			CASE p.settled_of WHEN s.incarnation THEN coalesce(p.settled_lsn, '0/0') ELSE '0/0' END, s.standbys, s.other_standbys, s.restored, s.key_secret
		FROM cdc_relay.slots s LEFT JOIN cdc_relay.progress p USING (slot) WHERE s.slot = $1`, slot).
		Scan(&r.SystemID, &r.Timeline, &r.Publication, &r.State, &r.Incarnation, &r.Epoch, &r.Leader, &r.Raised, &r.Sends, &r.SendsText, &r.FlushLimit, &r.Reported, &r.Good, &r.Used, &r.TookFrom, &r.TookUntil,
			&r.Settled, &r.Standbys, &r.OtherStandbys, &r.Restored, &r.keySecret)
	if source.IsNoRows(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &r, nil
}

// ReadBoth reads the slot, and then our record of it; each is nil if it does not exist. In this
// order the slot of a relay that runs is never above the flush limit that was read with it: a limit
// is raised before it is used, and lowered only to what the slot has. Nor is a slot that a new
// leader has moved compared with the epoch before.
func ReadBoth(ctx context.Context, q source.Querier, slot string) (*Record, *View, error) {
	view, err := ReadView(ctx, q, slot)
	if err != nil {
		return nil, nil, err
	}
	rec, err := ReadRecord(ctx, q, slot)
	return rec, view, err
}

// BeginCreating durably marks the slot as not to be used yet, before the slot exists. If a slot is
// found in this state while its creator's advisory lock is free, a crash has left it, and it is
// created again.
func BeginCreating(ctx context.Context, pool *pgxpool.Pool, c *source.Config, id Identity) error {
	return writeRecord(ctx, pool, c, `INSERT INTO cdc_relay.slots (slot, system_id, timeline, publication, state, incarnation)
		SELECT $1::text, $2::text, $3::integer, $4::text, 'creating', 1 WHERE `+stillLocked(c)+`
		ON CONFLICT (slot) DO UPDATE SET system_id = excluded.system_id, timeline = excluded.timeline,
			publication = excluded.publication, state = 'creating', changed_at = now(), restored = slots.restored OR slots.system_id <> excluded.system_id,
			sends = CASE WHEN slots.system_id = excluded.system_id THEN slots.sends ELSE '{}' END`,
		c.Slot, id.SystemID, id.Timeline, c.Publication)
}

// writeRecord runs a statement that writes the record. If it changes no row, the lock on the
// creation was lost.
func writeRecord(ctx context.Context, q source.Querier, c *source.Config, sql string, args ...any) error {
	changed, err := source.Execute(ctx, q, "write cdc_relay.slots", sql, args...)
	if err == nil && changed == 0 {
		err = lockLost(c)
	}
	return err
}

// NextIncarnation is, in SQL, above the incarnation of the slot's record and of every event that
// waits under the slot's name. Waiting events are sent first, by incarnation and position, so this
// holds even if the record was lost in between.
const NextIncarnation = `1 + greatest((SELECT incarnation FROM cdc_relay.slots WHERE slot = $1),
	(SELECT max(incarnation) FROM cdc_relay.retry WHERE slot = $1), (SELECT max(incarnation) FROM cdc_relay.dead_letter WHERE slot = $1), 0)`

// makeReady is MakeReady in a transaction of its own. unsent means that there are rows, on a server
// that took another one's place, which the slot does not send and which nobody is known to have
// sent.
func makeReady(ctx context.Context, pool *pgxpool.Pool, c *source.Config, id Identity, now schema.Sends, at pglogrepl.LSN, unsent bool) error {
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if unsent {
			if err := keepUnsent(ctx, tx, c, id); err != nil {
				return err
			}
		}
		return MakeReady(ctx, tx, c, id, now, at)
	})
}

// keepUnsent makes a gap for the rows that were committed on this server before its slot was made,
// so that recover sends them. It is needed if an operator has said that all rows from before the
// move were delivered: with any other answer there is a gap already. A copy of a slot has no row in
// cdc_relay.progress, and gets no gap.
func keepUnsent(ctx context.Context, tx pgx.Tx, c *source.Config, id Identity) error {
	made, err := source.Execute(ctx, tx, "write cdc_relay.gap", `INSERT INTO cdc_relay.gap (slot, system_id, incarnation, finding, reason)
		SELECT s.slot, $2, s.incarnation, '', 'slot_moved' FROM cdc_relay.slots s JOIN cdc_relay.progress p USING (slot) WHERE s.slot = $1
			AND NOT EXISTS (SELECT FROM cdc_relay.gap g WHERE g.slot = $1 AND g.system_id = $2 AND g.until_xid IS NULL AND g.recovered_at IS NULL)`, c.Slot, id.SystemID)
	if made > 0 {
		c.Log.Warn("rows that are not known to be sent were there before the slot was made: `cdc-relay recover` sends them", zap.String("slot", c.Slot))
	}
	return err
}

// MakeReady records that a slot may be used from now on, with a new incarnation. The slot was
// created, or adopted, at the position at. now is what the publication sent before the slot was
// created, so that a later change of the publication is noticed. A gap that an operator accepted
// ends where the slot begins.
func MakeReady(ctx context.Context, tx pgx.Tx, c *source.Config, id Identity, now schema.Sends, at pglogrepl.LSN) error {
	err := writeRecord(ctx, tx, c, `INSERT INTO cdc_relay.slots (slot, system_id, timeline, publication, sends, state, incarnation)
		SELECT $1::text, $2::text, $3::integer, $4::text, $5::jsonb, 'ready', `+NextIncarnation+` WHERE `+stillLocked(c)+`
		ON CONFLICT (slot) DO UPDATE SET system_id = excluded.system_id, timeline = excluded.timeline,
			publication = excluded.publication, sends = excluded.sends, state = 'ready', incarnation = excluded.incarnation, restored = slots.restored OR slots.system_id <> excluded.system_id,
			epoch = slots.epoch + 1, changed_at = now(), standbys = '{}', other_standbys = true`, c.Slot, id.SystemID, id.Timeline, c.Publication, now)
	if err == nil {
		_, err = source.Execute(ctx, tx, "write cdc_relay.progress", `INSERT INTO cdc_relay.progress (slot, max_flush_lsn, reported, good, settled_lsn, settled_of)
				VALUES ($1, $2, $2, $2, $2, (SELECT incarnation FROM cdc_relay.slots WHERE slot = $1))
			ON CONFLICT (slot) DO UPDATE SET max_flush_lsn = $2, reported = $2, good = $2, settled_lsn = $2, settled_of = excluded.settled_of, at = now()`, c.Slot, at)
	}
	if err == nil {
		_, err = source.Execute(ctx, tx, "write cdc_relay.gap", `UPDATE cdc_relay.gap SET until_lsn = $2, until_xid = pg_snapshot_xmax(pg_current_snapshot())
			WHERE slot = $1 AND system_id = $3 AND until_xid IS NULL`, c.Slot, at, id.SystemID)
	}
	return err
}

// BeginRemaking raises the epoch and sets state creating, for a command that makes the slot again.
// From now on a former leader changes nothing in the retry table, and no relay uses or makes the
// slot: a slot in this state that has been in use is left to the next recover (UnfinishedStop). The
// rest of the record stays as it is.
func BeginRemaking(ctx context.Context, pool *pgxpool.Pool, c *source.Config) error {
	return writeRecord(ctx, pool, c, `UPDATE cdc_relay.slots SET epoch = epoch + 1, leader = $2, state = 'creating', changed_at = now() WHERE slot = $1 AND `+stillLocked(c), c.Slot, Recovering)
}

// CancelRemaking sets back the state that BeginRemaking has changed. The epoch stays raised.
func CancelRemaking(ctx context.Context, pool *pgxpool.Pool, c *source.Config, state string) error {
	_, err := source.Execute(context.WithoutCancel(ctx), pool, "write cdc_relay.slots", `UPDATE cdc_relay.slots SET state = $2, changed_at = now() WHERE slot = $1 AND state = 'creating' AND `+stillLocked(c), c.Slot, state)
	return err
}

// RaiseEpoch raises the epoch, so that a former leader is fenced, in a transaction under the lock
// on the creation.
func RaiseEpoch(ctx context.Context, tx pgx.Tx, c *source.Config) error {
	return writeRecord(ctx, tx, c, `UPDATE cdc_relay.slots SET epoch = epoch + 1, changed_at = now() WHERE slot = $1 AND `+stillLocked(c), c.Slot)
}

// WriteAudit records what an operator's command has done to the slot; who is the session's user.
// The row has a number that no other one gets, also after a rollback.
func WriteAudit(ctx context.Context, tx pgx.Tx, slot, systemID, action, why, result string) (number int64, err error) {
	err = source.Ask(ctx, tx, "write cdc_relay.audit", `INSERT INTO cdc_relay.audit (slot, system_id, action, n, why, result) VALUES ($1, $2, $3, 0, $4, $5) RETURNING seq`,
		slot, systemID, action, why, result).Scan(&number)
	return number, err
}

// ForgetRecord removes our rows about a slot that does not exist any more, or never existed.
func ForgetRecord(ctx context.Context, q source.Querier, slot string) error {
	_, err := source.Execute(ctx, q, "delete from cdc_relay.slots", `WITH p AS (DELETE FROM cdc_relay.progress WHERE slot = $1)
		DELETE FROM cdc_relay.slots WHERE slot = $1`, slot)
	return err
}

// forgetUnmade undoes BeginCreating. If the slot was in use before, its record stays, with the
// operator's acceptance of its loss: the record has the incarnation, and other relays' teardown
// must see that the schema is still needed.
func forgetUnmade(ctx context.Context, pool *pgxpool.Pool, c *source.Config) error {
	_, err := source.Execute(ctx, pool, "forget a slot that was not created", `WITH used AS (UPDATE cdc_relay.slots SET state = 'adopt', changed_at = now()
			WHERE slot = $1 AND state = 'creating' AND slot IN (SELECT slot FROM cdc_relay.progress) AND `+stillLocked(c)+` RETURNING slot)
		DELETE FROM cdc_relay.slots WHERE slot = $1 AND state = 'creating' AND slot NOT IN (SELECT slot FROM cdc_relay.progress) AND `+stillLocked(c), c.Slot)
	return err
}

// ForgetUnmade is forgetUnmade for a caller that can do nothing about its error but log it: the
// next start finds the record in state creating.
func ForgetUnmade(ctx context.Context, pool *pgxpool.Pool, c *source.Config) {
	if err := forgetUnmade(ctx, pool, c); err != nil {
		c.Log.Warn("failed to forget a slot that was not created", zap.String("slot", c.Slot), zap.Error(err))
	}
}

// SameTables reports whether the tables that a slot has relayed still have the OIDs that its record
// has. After a restored dump they do not.
func SameTables(ctx context.Context, q source.Querier, slot string) (same bool, err error) {
	err = source.Ask(ctx, q, "read cdc_relay.slots", `SELECT coalesce(bool_and(EXISTS (
			SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
			WHERE c.oid = (e.value->>'oid')::oid AND '"' || replace(nspname, '"', '""') || '"."' || replace(relname, '"', '""') || '"' = e.key)), false)
		FROM cdc_relay.slots s, jsonb_each(coalesce(s.sends->'tables', '{}')) e WHERE s.slot = $1`, slot).Scan(&same)
	return same, err
}

// MoveRows gives the deferred rows, dead letters, requests and jobs of a slot on one system to the
// same slot on another system. moved is the number of deferred rows and dead letters. The slot's
// record is still that of the first system.
//
// pg_upgrade keeps the OIDs of tables, so what is known of rows stays known. Where a table has
// another OID, as in a restored dump, nothing is known any more: the sent set is emptied, and
// deferred events and dead letters forget which row was theirs. MoveRows may take long, so nothing
// bounds it here.
func MoveRows(ctx context.Context, tx pgx.Tx, slot, from, to string) (moved int64, err error) {
	same, err := SameTables(ctx, tx, slot)
	if err != nil {
		return 0, err
	}
	if !same {
		if _, err := tx.Exec(ctx, `DELETE FROM cdc_relay.sent WHERE slot = $1`, slot); err != nil {
			return 0, fmt.Errorf("write cdc_relay.sent: %w", err)
		}
	}
	// A request that somebody has stored for the other system is about none of its rows, and must
	// not be in the way.
	_, err = source.Execute(ctx, tx, "write cdc_relay.request", `UPDATE cdc_relay.request r SET state = 'cancelled', done_at = now() FROM cdc_relay.request q
		WHERE r.slot = $1 AND r.system_id = $3 AND r.state = 'waiting' AND q.slot = $1 AND q.system_id = $2 AND q.state = 'waiting' AND q.n = r.n`, slot, from, to)
	if err != nil {
		return 0, err
	}
	for _, table := range []string{"retry", "dead_letter", "request", "bulk"} {
		also := ""
		if !same && (table == "retry" || table == "dead_letter") {
			also = ", relation = NULL, tx = NULL"
		}
		tag, err := tx.Exec(ctx, `UPDATE cdc_relay.`+table+` SET system_id = $3`+also+` WHERE slot = $1 AND system_id = $2`, slot, from, to)
		if err != nil {
			return moved, fmt.Errorf("write cdc_relay.%s: %w", table, err)
		}
		if table == "retry" || table == "dead_letter" {
			moved += tag.RowsAffected()
		}
	}
	// On this system ids of transactions mean other transactions. So a gap that has ended takes in
	// all rows that are there now.
	_, err = source.Execute(ctx, tx, "write cdc_relay.gap", `UPDATE cdc_relay.gap SET system_id = $3,
			until_xid = CASE WHEN until_xid IS NOT NULL THEN pg_snapshot_xmax(pg_current_snapshot()) END
		WHERE slot = $1 AND system_id = $2 AND recovered_at IS NULL`, slot, from, to)
	return moved, err
}

// CheckPublication compares the publication with what the relay needs and with what is remembered
// of it. It changes nothing: a standby, or a relay that does not lead yet, may have a configuration
// that is never used. next is what the leader has to remember, including tables and prefixes
// configured since.
func CheckPublication(ctx context.Context, q source.Querier, c *source.Config, rec *Record) (next schema.Sends, err error) {
	was := rec.Remembered()
	now, err := schema.CheckPublication(ctx, q, c, was)
	if err != nil || rec == nil {
		return now, err
	}
	return now.KeepForeign(was).AddRemembered(was), nil
}

// RememberSends makes next durable in the place of what rec has, under the epoch of the term that
// holds the slot, and logs which tables and prefixes are relayed from now on. from is the position
// that the session reads from, for the log.
//
// Only the session that holds the slot may do this. What a table's rows are is decided by the
// leader that reads them: a standby that recorded a table would make a promise that the leader,
// with another configuration, does not keep.
func RememberSends(ctx context.Context, q source.Querier, c *source.Config, epoch int64, rec *Record, next schema.Sends, from pglogrepl.LSN) error {
	was := rec.Remembered()
	if was.Equal(next) && next.KnowsFirst() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	if err := noteBegin(ctx, q, c, next); err != nil {
		return err
	}
	changed, err := source.Execute(ctx, q, "write cdc_relay.slots", `UPDATE cdc_relay.slots SET sends = $2 WHERE slot = $1 AND sends::text = $3 AND epoch = $4 AND state = 'ready'`,
		c.Slot, next, rec.SendsText, epoch)
	switch {
	case err != nil:
		return err
	case changed == 0:
		return ErrRememberedChanged
	}
	for name := range next.Tables {
		if _, known := was.Tables[name]; !known {
			c.Log.Info("table added: its rows are relayed from this position on",
				zap.String("table", name), zap.Stringer("lsn", from), zap.String("slot", c.Slot))
			warnOfRowsBefore(ctx, q, c, name, next.Tables[name])
		}
	}
	for _, prefix := range next.Prefixes {
		if !slices.Contains(was.Prefixes, prefix) {
			c.Log.Info("message prefix added: its messages are relayed from this position on",
				zap.String("message_prefix", prefix), zap.Stringer("lsn", from), zap.String("slot", c.Slot))
		}
	}
	return nil
}

// noteBegin sets OutboxTable.First of the tables of next that lack it: a table that was just added,
// and each of a slot that was adopted, or made for a recovery.
func noteBegin(ctx context.Context, q source.Querier, c *source.Config, next schema.Sends) error {
	if next.KnowsFirst() {
		return nil
	}
	first, err := PastSnapshot(ctx, q, c.Slot)
	if err == nil {
		next.SetFirst(first)
	}
	return err
}

// PastSnapshot is, for schema.OutboxTable.First, the text of a snapshot that sees the rows which a
// slot sends no more: the rows of transactions below the slot's catalog_xmin, the oldest
// transaction that it may still have to read. All these had ended before restart_lsn, which is not
// above what the slot has confirmed. Rows that wait in the retry table, or are dead letters, are
// protected by their rows there. Without a catalog_xmin, and with an open gap, it is schema.NoRows.
func PastSnapshot(ctx context.Context, q source.Querier, slot string) (first string, err error) {
	var xmin *int64
	err = q.QueryRow(ctx, `SELECT `+sent.WholeXIDSQL("catalog_xmin")+`
		FROM pg_replication_slots, (SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next) n WHERE slot_name = $1
			AND NOT EXISTS (SELECT FROM cdc_relay.gap WHERE slot = $1::text AND recovered_at IS NULL)`, slot).Scan(&xmin)
	if err != nil && !source.IsNoRows(err) {
		return "", fmt.Errorf("read catalog_xmin of slot %q: %w", slot, err)
	}
	if xmin == nil || *xmin < 3 {
		return schema.NoRows, nil
	}
	return fmt.Sprintf("%d:%[1]d:", *xmin), nil
}

// ErrRememberedChanged means that another session, or an operator, changed the slot's record
// between our read and our write.
var ErrRememberedChanged = errors.New("the remembered state of the publication was changed in the meantime")

// SentBefore is what is remembered of a slot that is adopted or made again. On another system names
// still mean the same tables, but OIDs do not. So the tables are looked up by name, and the
// publication is left out. A table that is no longer configured is remembered there too, unless an
// operator has skipped its rows.
func (r *Record) SentBefore(ctx context.Context, q source.Querier, id Identity) (was schema.Sends, err error) {
	if r.SystemID == id.SystemID {
		was = r.Sends
		was.Tables = maps.Clone(was.Tables)
		was.SetFirst(schema.NoRows) // of tables that were relayed before that was recorded
		return was, nil
	}
	was = schema.Sends{Prefixes: r.Sends.Prefixes, Tables: map[string]schema.OutboxTable{}}
	for name, t := range r.Sends.Tables {
		if slices.Contains(r.Sends.Foreign, t.OID) {
			continue
		}
		var oid uint32
		err := source.Ask(ctx, q, "read pg_class", `SELECT coalesce((SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
			WHERE '"' || replace(nspname, '"', '""') || '"."' || replace(relname, '"', '""') || '"' = $1::text), 0)`, name).Scan(&oid)
		if err != nil {
			return was, err
		}
		was.Tables[name] = schema.OutboxTable{OID: oid, First: schema.NoRows}
	}
	return was, nil
}

// Remembered is what is remembered of a slot that is in state ready. Of any other slot it is
// nothing, because the slot is still to be created or adopted.
func (r *Record) Remembered() schema.Sends {
	if r == nil || r.State != StateReady {
		return schema.Sends{}
	}
	return r.Sends
}

// warnOfRowsBefore logs which rows of an added table are not sent. PostgreSQL leaves out a row that
// was inserted before the table was in the publication, whenever the row is committed. ALTER
// PUBLICATION does not wait for writers, so such a row may appear after the table was announced.
func warnOfRowsBefore(ctx context.Context, q source.Querier, c *source.Config, table string, t schema.OutboxTable) {
	if len(t.Through) == 0 { // with all tables: its rows are sent from its first one on
		return
	}
	var open, rows bool
	err := q.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_publication_rel r WHERE r.oid = ANY ($1::oid[])
			AND age(r.xmin) <= age(pg_snapshot_xmin(pg_current_snapshot())::xid)), EXISTS (SELECT FROM `+table+`)`, t.Through).Scan(&open, &rows)
	switch {
	case err != nil: // the role may not read it, which only the first start needs
		c.Log.Warn("cannot check whether the added table had rows before", zap.String("table", table), zap.Error(err))
	case open:
		c.Log.Warn("transactions that were open when the table was added to the publication are still open: rows they inserted before are not sent",
			zap.String("table", table), zap.String("fix", "find and re-send these rows when the transactions have ended; next time: BEGIN; LOCK TABLE "+table+
				" IN SHARE ROW EXCLUSIVE MODE; ALTER PUBLICATION "+source.QuoteName(c.Publication)+" ADD TABLE ONLY "+table+"; COMMIT"))
	case rows:
		c.Log.Info("the added table has rows: those committed before it was added to the publication are not sent", zap.String("table", table))
	}
}
