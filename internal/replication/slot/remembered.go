// Compares what the publication sends with what is remembered of it, and updates that.

package slot

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pglogrepl"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/replication/publication"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/tableread"
)

// CheckPublication compares the publication with what the relay needs and with what is remembered
// of it. It changes nothing: a standby, or a relay that does not lead yet, may have a configuration
// that is never used. next is what the leader has to remember, including tables and prefixes
// configured since.
func CheckPublication(ctx context.Context, q source.Querier, c *source.Config, rec *Record) (next publication.State, err error) {
	was := rec.Remembered()
	now, err := publication.Check(ctx, q, c, was)
	if err != nil || rec == nil {
		return now, err
	}
	return now.KeepForeign(was).After(was), nil
}

// Remember makes next durable in the place of what rec has, under the epoch of the term that
// holds the slot, and says what is relayed from now on. from is the position that the session reads
// from.
//
// Only the session that holds the slot may do this. What a table's rows are is decided by the
// leader that reads them: a standby that recorded a table would make a promise that the leader,
// with another configuration, does not keep.
func Remember(ctx context.Context, q source.Querier, c *source.Config, epoch int64, rec *Record, next publication.State, from pglogrepl.LSN) error {
	was := rec.Remembered()
	if was.Equal(next) && next.KnowsBegin() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	if err := beginNow(ctx, q, c, next); err != nil {
		return err
	}
	tag, err := q.Exec(ctx, `UPDATE cdc_relay.slots SET sends = $2 WHERE slot = $1 AND sends::text = $3 AND epoch = $4 AND state = 'ready'`,
		c.Slot, next, rec.SendsText, epoch)
	if err != nil {
		return fmt.Errorf("write cdc_relay.slots: %w", err)
	}
	if tag.RowsAffected() == 0 {
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

// beginNow notes what was there before those tables of which it is not known: a table that was
// added, and each one whose record another version has written.
func beginNow(ctx context.Context, q source.Querier, c *source.Config, next publication.State) error {
	if next.KnowsBegin() {
		return nil
	}
	first, err := Past(ctx, q, c.Slot)
	if err == nil {
		next.BeginAt(first)
	}
	return err
}

// Past is a snapshot of rows that a slot sends no more, for publication.Table.First: those of the
// transactions below its catalog_xmin, the oldest one that it may still have to read. They had all
// ended before restart_lsn, which is not above what the slot has confirmed. Rows that its relay has
// deferred, or that are dead letters, are held for it by these.
func Past(ctx context.Context, q source.Querier, slot string) (first string, err error) {
	var xmin *int64
	err = q.QueryRow(ctx, `SELECT `+tableread.WholeXID("catalog_xmin")+`
		FROM pg_replication_slots, (SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next) n WHERE slot_name = $1
			AND NOT EXISTS (SELECT FROM cdc_relay.gap WHERE slot = $1::text AND recovered_at IS NULL)`, slot).Scan(&xmin)
	if err != nil && !source.IsNoRows(err) {
		return "", fmt.Errorf("read catalog_xmin of slot %q: %w", slot, err)
	}
	if xmin == nil || *xmin < 3 {
		return publication.NoRows, nil
	}
	return fmt.Sprintf("%d:%[1]d:", *xmin), nil
}

// ErrRememberedChanged means that another session, or an operator, changed the slot's record
// between our read and our write.
var ErrRememberedChanged = errors.New("the remembered state of the publication was changed in the meantime")

// SentBefore is what is remembered of a slot that is adopted or made again. On another system the
// names of what the slot has relayed say the same as before, and OIDs other tables: what is left
// out of the configuration there is not passed over either, but for a table whose rows an operator
// has skipped.
func (r *Record) SentBefore(ctx context.Context, q source.Querier, id Identity) (was publication.State, err error) {
	if r.SystemID == id.SystemID {
		was = r.Sends
		was.Tables = maps.Clone(was.Tables)
		was.BeginAt(publication.NoRows) // of tables that were relayed before that was recorded
		return was, nil
	}
	was = publication.State{Prefixes: r.Sends.Prefixes, Tables: map[string]publication.Table{}}
	for name, t := range r.Sends.Tables {
		if slices.Contains(r.Sends.Foreign, t.OID) {
			continue
		}
		var oid uint32
		err := q.QueryRow(ctx, `SELECT coalesce((SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
			WHERE '"' || replace(nspname, '"', '""') || '"."' || replace(relname, '"', '""') || '"' = $1::text), 0)`, name).Scan(&oid)
		if err != nil {
			return was, fmt.Errorf("read pg_class: %w", err)
		}
		was.Tables[name] = publication.Table{OID: oid, First: publication.NoRows}
	}
	return was, nil
}

// Remembered is what is remembered of a slot that may be used; nothing of one that is still to be
// created or adopted.
func (r *Record) Remembered() publication.State {
	if r == nil || r.State != StateReady {
		return publication.State{}
	}
	return r.Sends
}

// warnOfRowsBefore logs which rows of an added table are not sent: PostgreSQL leaves out what was
// inserted before the table was in the publication, whenever that commits. ALTER PUBLICATION does
// not wait for writers, so such a row may appear after the table was announced.
func warnOfRowsBefore(ctx context.Context, q source.Querier, c *source.Config, table string, t publication.Table) {
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
