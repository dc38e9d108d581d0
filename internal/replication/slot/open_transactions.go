// What a slot waits for: the transactions that its creation waits for, and those that keep it from
// giving WAL back.

package slot

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

const (
	// heldFrom is how much WAL behind its position a slot keeps that is worth a word.
	heldFrom = 1 << 20
	// steps are how often the server moves restart_lsn, to where the oldest transaction of the
	// cluster began that was open then.
	steps = 15 * time.Second
)

// HeldBytes is the WAL that the slot keeps although everything in it is settled.
func (v *View) HeldBytes() uint64 {
	if v.Restart == 0 || v.Restart > v.ConfirmedFlush {
		return 0
	}
	return uint64(v.ConfirmedFlush - v.Restart)
}

// HeldBy returns the transactions for which the slot keeps such WAL, or for which its creation
// waits, the oldest first, at most source.MostOpen; none: it is as it should be.
func (v *View) HeldBy(ctx context.Context, q source.Querier) ([]source.OpenTransaction, error) {
	var list []source.OpenTransaction
	var err error
	switch {
	case v == nil:
	case v.HalfMade():
		list, err = source.OpenTransactions(ctx, q, false)
	case v.HeldBytes() >= heldFrom:
		list, err = source.LongTransactions(ctx, q, steps)
	}
	return list[:min(len(list), source.MostOpen)], err
}

// HalfMade reports whether a relay's walsender is creating the slot. It goes on after its client
// was killed, until the transactions have ended that it waits for.
func (v *View) HalfMade() bool { return v.Active() && v.Streams && !v.Made() && v.ReadByRelay() }

// BeingMade says for what the creation of a slot waits.
func BeingMade(ctx context.Context, q source.Querier, view *View) *event.Stop {
	list, err := source.OpenTransactions(ctx, q, false)
	open := source.OpenText(list)
	if err != nil {
		open = source.OneLine(err).Error()
	}
	return &event.Stop{
		Code: event.ExitFailure, Reason: "slot_active",
		What: fmt.Sprintf("slot %q is being created by %s, which waits for the transactions that were open: %s", view.Name, view.HolderName(), open),
		Fix:  fmt.Sprintf("%s; or give it up: SELECT pg_terminate_backend(%d)", source.EndOpen(list), view.ActivePID),
	}
}

// endCreation ends the walsender that creates the slot, and with it goes what there is of the slot.
func endCreation(ctx context.Context, q source.Querier, view *View) error {
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	var ended bool
	err := q.QueryRow(ctx, `SELECT coalesce(bool_and(pg_terminate_backend(pid, $2)), true) FROM pg_stat_activity WHERE pid = $1 AND backend_type = 'walsender'`,
		view.ActivePID, undoPatience.Milliseconds()).Scan(&ended)
	if err != nil || !ended {
		return errors.Join(BeingMade(ctx, q, view), err)
	}
	return nil
}
