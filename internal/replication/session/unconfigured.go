// Decides about rows of tables that are not configured: which are skipped, and which stop the
// relay.

package session

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/publication"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// notConfigured decides about the first row, in this session, of a table that is not configured, or
// about a message of a prefix that was relayed before. nil: the row is not ours; it is counted and
// skipped.
//
// A row must not be skipped if somebody meant it to be relayed. During a rolling deployment the
// leader still has the old configuration while the table is in the publication already; after its
// rollback the other way round. The leader cannot know which configuration is right, so it stops
// before the row. Its transaction stays in the slot, for a relay that knows the table.
func (r *reading) notConfigured(name string, oid uint32, reason string) error {
	if oid == 0 && !slices.Contains(r.sent.Prefixes, name) { // an operator ignores it
		r.skipped(reason)
		return nil
	}
	r.t.Line.Wake(true) // what was read need not wait for the catalogue
	err := r.leftOutStop(name, oid)
	if err != nil { // an operator may have declared it ignored meanwhile: the log has warned
		// Only the row of our own term counts, whatever its state. A row that is gone, or another
		// leader's, proves nothing: the Stop stays.
		rec, lookErr := slot.ReadRecord(r.ctx, r.Pool, r.Cfg.Slot)
		switch {
		case lookErr != nil:
			err = lookErr
		case rec != nil && rec.Epoch == r.t.Epoch && rec.Sends.Accepts(r.Cfg.Tables, oid):
			return errAccepted
		case rec != nil && rec.Epoch == r.t.Epoch:
			r.sent = rec.Sends
			err = r.leftOutStop(name, oid)
		}
	}
	if err == nil {
		r.skipped(reason)
		return nil
	}
	if r.ctx.Err() != nil {
		return errReadCut
	}
	return err
}

// leftOutStop returns a Stop for a row or message that may not be skipped, according to the slot's
// record.
func (r *reading) leftOutStop(name string, oid uint32) error {
	if oid == 0 {
		if !slices.Contains(r.sent.Prefixes, name) {
			return nil
		}
		return publication.PrefixLeftOut(r.Cfg, name)
	}
	scope, err := r.sent.FindScope(r.ctx, r.Pool, r.Cfg, oid, name)
	if err != nil {
		return err
	}
	if scope.Left, scope.LeftOID = r.sent.LeftOut(r.Cfg, name, scope.Tree); scope.Foreign() {
		return nil
	}
	return scope.Stop(r.Cfg, name, oid)
}

// replaced stops before the first row of another table that has the name of a configured one. The
// catalogue normally has the new table already, and its check names both ways to continue. A table
// that was created and dropped in between is only in the stream.
func (r *reading) replaced(t *decode.Table, oid uint32) error {
	r.t.Line.Wake(true) // what was read need not wait for the catalogue
	if err := r.checkVisible(); err != nil {
		return err
	}
	rec, err := slot.ReadRecord(r.ctx, r.Pool, r.Cfg.Slot)
	if err == nil && rec != nil && rec.Sends.Accepts(r.Cfg.Tables, oid) {
		return errAccepted
	}
	if err == nil {
		_, err = slot.CheckPublication(r.ctx, r.Pool, r.Cfg, rec)
	}
	if err != nil {
		if r.ctx.Err() != nil {
			return errReadCut
		}
		return err
	}
	// Only now: a foreign table that has taken the configured name may be the outbox, and the
	// catalogue has said so above. One that had the name for a while, and has it no longer,
	// is still foreign.
	if slices.Contains(r.sent.Foreign, oid) {
		return nil
	}
	return &event.Stop{
		Code: event.ExitOperator, Reason: "table_replaced", Rows: &event.Rows{Name: t.String(), OID: oid},
		What: fmt.Sprintf("slot %q has rows of another table that was named %s (OID %d; the configured table has OID %d)", r.Cfg.Slot, t, oid, t.OID),
		Fix:  fmt.Sprintf("if its rows are events: %s; if they are not: %s", publication.EventsCommand(t.String(), oid), publication.SkipCommand(t.String(), oid)),
	}
}

// errAccepted ends a session whose decoder does not know yet that rows of a former table are ours:
// the next one reads them.
var errAccepted = errors.New("an operator has accepted the rows of a former table: reading them again as those of the outbox")

// checkVisible returns an error while the catalogue does not show the transaction that is read yet.
// A commit is sent a moment before it becomes visible, and long before if it waits for a
// synchronous standby. Until then the transaction holds the lock of its own id. The session is
// repeated after the error.
func (r *reading) checkVisible() error {
	ctx, cancel := context.WithTimeout(r.ctx, source.AnswerTimeout)
	defer cancel()
	var open bool
	err := r.Pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'transactionid' AND transactionid = $1::text::xid AND mode = 'ExclusiveLock')`,
		fmt.Sprint(r.xid)).Scan(&open)
	switch {
	case r.ctx.Err() != nil:
		return errReadCut
	case err != nil:
		return fmt.Errorf("read pg_locks: %w", err)
	case open:
		return fmt.Errorf("transaction %d, which uses the name of another table, is not visible yet", r.xid)
	}
	return nil
}

// skipped counts what is not an event. A message with our prefix that is not transactional is
// probably a mistake: it is logged once.
func (r *reading) skipped(reason string) {
	if r.Cfg.Hooks.Skipped != nil {
		r.Cfg.Hooks.Skipped(reason)
	}
	if reason == decode.NonTransactional && !r.warned {
		r.warned = true
		r.Cfg.Log.Warn("skipped a message that is not transactional: PostgreSQL sends it even if its transaction is rolled back",
			zap.String("prefix", r.Cfg.Messages.Prefix),
			zap.String("fix", fmt.Sprintf("SELECT pg_logical_emit_message(true, %s, ...)", source.QuoteText(r.Cfg.Messages.Prefix))))
	}
}
