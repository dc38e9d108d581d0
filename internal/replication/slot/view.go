// Package slot is the slot and our record of it. It decides whether the slot is still the one that
// this relay knows, because a slot that was moved or made again would lose events silently. It also
// creates and adopts slots, remembers the publication that a slot is read with, watches the
// standbys that must have what was read, and reads what status and metrics show.
package slot

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// View is the slot's row of pg_replication_slots, with its holder and the server's current
// position.
type View struct {
	Name, Plugin, Type, Database string

	ConfirmedFlush     pglogrepl.LSN
	Restart            pglogrepl.LSN
	ActivePID          int32 // 0: nobody holds it
	WALStatus          string
	Invalidation       string // PG17+, else ""
	SafeWALBytes       *int64 // nil: unlimited, or lost
	Current            pglogrepl.LSN
	Holder, HolderUser string // application_name and role of the holder
	Streams            bool   // the holder is a walsender, and not a session that calls a function
	HolderState        string // sync_state of the holder in pg_stat_replication
	SpilledBytes       int64

	Failover  bool // PG17+: synced to standbys, and sends nothing that the named ones do not have
	Synced    bool // PG17+: it was synced from the primary; stays true after the promotion
	Temporary bool
}

// NotOurs returns why the slot cannot belong to a relay of this database; "" means that it can. The
// whole cluster shares the names of slots, so a slot of the right name may be another database's.
func (v *View) NotOurs(database string) string {
	switch {
	case v.Type != "logical" || v.Plugin != "pgoutput":
		return fmt.Sprintf("is a %s slot of plugin %q, not pgoutput", v.Type, v.Plugin)
	case v.Database != database:
		return fmt.Sprintf("belongs to database %q, not %q", v.Database, database)
	}
	return ""
}

// IsMade reports whether the slot's creation is complete. Until then the slot has no position, and
// is dropped when the session that creates it ends. That may be long after the session's client is
// gone, because the creation waits for open transactions.
func (v *View) IsMade() bool { return v.ConfirmedFlush != 0 }

// Active reports whether a session holds the slot: a walsender, or a session that calls a function
// on the slot (see Streams).
func (v View) Active() bool { return v.ActivePID != 0 }

// Invalidated reports whether the server has removed WAL that the slot would need.
func (v *View) Invalidated() bool { return v.WALStatus == "lost" || v.Invalidation != "" }

// ReadByRelay reports whether the holder's application_name is that of a relay, this one or
// another.
func (v *View) ReadByRelay() bool { return strings.HasPrefix(v.Holder, source.ApplicationPrefix) }

// Columns and Tables are the SELECT and FROM lists that a View is read with. to_jsonb makes one
// statement serve PostgreSQL 14 to 18. The functions are those of pg_replication_slots,
// pg_stat_activity, pg_stat_replication and pg_stat_replication_slots: the views join them with
// catalogs, and would make the plan ten times as expensive.
const (
	Columns = `coalesce(s.slot_name, ''), coalesce(s.plugin, ''), coalesce(s.slot_type, ''), coalesce((SELECT datname FROM pg_database WHERE oid = s.datoid), ''),
			coalesce(s.confirmed_flush_lsn, '0/0'::pg_lsn), coalesce(s.restart_lsn, '0/0'::pg_lsn),
			coalesce(s.active_pid, 0), coalesce(s.wal_status, ''), coalesce(to_jsonb(s)->>'invalidation_reason', ''),
			s.safe_wal_size, pg_current_wal_lsn(), coalesce(a.application_name, ''), coalesce(pg_get_userbyid(a.usesysid), ''),
			r.pid IS NOT NULL, coalesce(r.sync_state, ''), coalesce(t.spill_bytes, 0),
			coalesce((to_jsonb(s)->>'failover')::bool, false), coalesce((to_jsonb(s)->>'synced')::bool, false), coalesce(s.temporary, false)`
	Tables = `pg_get_replication_slots() s LEFT JOIN pg_stat_get_activity(coalesce(s.active_pid, 0)) a ON true
			LEFT JOIN pg_stat_get_wal_senders() r ON r.pid = s.active_pid
			LEFT JOIN pg_stat_get_replication_slot(CASE WHEN s.datoid IS NOT NULL THEN s.slot_name::text END) t ON true`
)

// ScanTargets are the scan targets for Columns, in their order.
func (v *View) ScanTargets() []any {
	return []any{
		&v.Name, &v.Plugin, &v.Type, &v.Database, &v.ConfirmedFlush, &v.Restart, &v.ActivePID, &v.WALStatus, &v.Invalidation,
		&v.SafeWALBytes, &v.Current, &v.Holder, &v.HolderUser, &v.Streams, &v.HolderState, &v.SpilledBytes,
		&v.Failover, &v.Synced, &v.Temporary,
	}
}

// ReadView reads the slot of that name; nil means that there is none.
func ReadView(ctx context.Context, q source.Querier, slot string) (*View, error) {
	var v View
	err := source.Ask(ctx, q, "read pg_replication_slots", "SELECT "+Columns+" FROM "+Tables+" WHERE s.slot_name = $1", slot).Scan(v.ScanTargets()...)
	switch {
	case source.IsNoRows(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return &v, nil
}

// HolderName describes for people who holds the slot; "" means that nobody does.
func (v *View) HolderName() string {
	switch {
	case !v.Active():
		return ""
	case v.Holder == "":
		return fmt.Sprintf("pid %d", v.ActivePID)
	}
	return fmt.Sprintf("%q (pid %d)", v.Holder, v.ActivePID)
}

// InUseError is the error for a slot that must be free and is not. For the walsender of a relay it
// is an ordinary error, and the relay waits: it may be the relay's own walsender, which has not
// noticed yet that its client died. The relay also waits for a session that calls a function, such
// as a psql that peeks, because the function ends. The walsender of any other program is a Stop: an
// operator must end it.
func InUseError(c *source.Config, view *View) error {
	switch {
	case view.ReadByRelay():
		return fmt.Errorf("slot %q is active for %s (pid %d)", c.Slot, view.Holder, view.ActivePID)
	case !view.Streams:
		return fmt.Errorf("slot %q is active for %q (role %s, pid %d), which calls a function on it: waiting for its end", c.Slot, view.Holder, view.HolderUser, view.ActivePID)
	}
	return &event.Stop{
		Code: event.ExitOperator, Reason: "slot_active",
		What: fmt.Sprintf("slot %q is active for %q (role %s, pid %d), which is not a cdc-relay", c.Slot, view.Holder, view.HolderUser, view.ActivePID),
		Fix:  "stop that program, or choose another source.slot",
	}
}

// ReadActive reads the slot's row for the session that streams. The error is ErrNotActive if our
// walsender, pid, does not hold the slot.
func ReadActive(ctx context.Context, q source.Querier, c *source.Config, pid uint32) (*View, error) {
	view, err := ReadView(ctx, q, c.Slot)
	if err != nil {
		return nil, err
	}
	if view == nil || view.ActivePID != int32(pid) {
		return nil, ErrNotActive
	}
	return view, nil
}

// ErrNotActive says that the slot is gone, or that another session, or no session, holds it.
var ErrNotActive = errors.New("the slot is no longer active for this session")

const (
	// heldBytesNamed is how many bytes of settled WAL a slot must keep before HeldBy asks why.
	heldBytesNamed = 1 << 20
	// restartStep is how often the server moves restart_lsn: to the beginning of the oldest
	// transaction of the cluster that is open at that time.
	restartStep = 15 * time.Second
)

// HeldBytes is the WAL that the slot keeps although everything in it is settled, for example
// because a transaction began there that is still open.
func (v *View) HeldBytes() uint64 {
	if v.Restart == 0 || v.Restart > v.ConfirmedFlush {
		return 0
	}
	return uint64(v.ConfirmedFlush - v.Restart)
}

// HeldBy returns the transactions that make the slot keep HeldBytes, or that its creation waits
// for, the oldest first, at most source.MostOpenNamed. An empty list means that nothing unusual
// keeps WAL.
func (v *View) HeldBy(ctx context.Context, q source.Querier) ([]source.OpenTransaction, error) {
	var list []source.OpenTransaction
	var err error
	switch {
	case v == nil:
	case v.HalfMade():
		list, err = source.OpenTransactions(ctx, q, false)
	case v.HeldBytes() >= heldBytesNamed:
		list, err = source.LongTransactions(ctx, q, restartStep)
	}
	return list[:min(len(list), source.MostOpenNamed)], err
}

// HalfMade reports whether a relay's walsender is creating the slot. The walsender goes on after
// its client was killed, until the transactions that it waits for have ended.
func (v *View) HalfMade() bool { return v.Active() && v.Streams && !v.IsMade() && v.ReadByRelay() }

// BeingMadeStop is the Stop for a slot that the server is still creating: it names the transactions
// that the creation waits for.
func BeingMadeStop(ctx context.Context, q source.Querier, view *View) *event.Stop {
	list, err := source.OpenTransactions(ctx, q, false)
	open := source.OpenTransactionsText(list)
	if err != nil {
		open = source.OneLine(err).Error()
	}
	return &event.Stop{
		Code: event.ExitFailure, Reason: "slot_active",
		What: fmt.Sprintf("slot %q is being created by %s, which waits for the transactions that were open: %s", view.Name, view.HolderName(), open),
		Fix:  fmt.Sprintf("%s; or give it up: SELECT pg_terminate_backend(%d)", source.EndTransactionsHint(list), view.ActivePID),
	}
}

// endCreation ends the walsender that creates the slot. The unfinished slot goes with it.
func endCreation(ctx context.Context, q source.Querier, view *View) error {
	var ended bool
	err := source.Ask(ctx, q, "end the creation of a slot", `SELECT coalesce(bool_and(pg_terminate_backend(pid, $2)), true) FROM pg_stat_activity WHERE pid = $1 AND backend_type = 'walsender'`,
		view.ActivePID, undoPatience.Milliseconds()).Scan(&ended)
	if err != nil || !ended {
		return errors.Join(BeingMadeStop(ctx, q, view), err)
	}
	return nil
}
