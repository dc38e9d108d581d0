// Adopting a slot: it is used at its current position, once an operator has accepted what that
// skips.

package slot

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/publication"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// adoptSlot uses a slot at its current position, as an operator has accepted it, and logs that
// position. The tables and prefixes that were sent before are kept: their rows may be in the slot.
func adoptSlot(ctx context.Context, pool *pgxpool.Pool, c *source.Config, id Identity, view *View, was publication.State) error {
	if err := CheckIdentity(c, nil, view, id); err != nil {
		return err
	}
	if view.Active() {
		return InUse(c, view)
	}
	if err := CheckLeftOut(ctx, pool, c, was); err != nil {
		return err
	}
	if err := publication.Ensure(ctx, pool, c); err != nil {
		return err
	}
	sent, err := checkAdoptable(ctx, pool, c, was)
	if err != nil {
		return err
	}
	if err := makeReady(ctx, pool, c, id, sent, view.ConfirmedFlush, false); err != nil {
		return err
	}
	sent.LogForeign(ctx, pool, c)
	c.Log.Warn("slot adopted: events committed before its position are not sent by this relay",
		zap.String("slot", c.Slot), zap.Stringer("lsn", view.ConfirmedFlush))
	return nil
}

// checkAdoptable returns what the publication sends, or why the slot cannot be adopted with it.
func checkAdoptable(ctx context.Context, q source.Querier, c *source.Config, was publication.State) (publication.State, error) {
	sent, err := publication.Check(ctx, q, c, publication.State{})
	if err != nil {
		return sent, err
	}
	var partitioned bool
	if was.Publication != sent.Publication || was.Version != sent.Version {
		if partitioned, err = refuseUnlistedPartitions(ctx, q, c, sent); err != nil {
			return sent, err
		}
	}
	sent = sent.KeepForeign(was).After(was)
	// A listed table may be, or have been, a partition, and rows of the outbox may wait under its
	// name: the relay stops at the first row of each and asks, also when it was foreign before.
	if partitioned {
		sent.Foreign = nil
	}
	return sent, nil
}

// refuseUnlistedPartitions keeps a slot from being adopted when rows in it could pass unseen: one
// that another program has used, or whose publication was altered. Without
// publish_via_partition_root, which Debezium does not set, a row comes under the name of its
// partition. The relay stops at one of a table that is a partition now, and at any of a table that
// the publication listed. Under a publication that has all tables or any schema nothing shows what
// a detached or dropped table belonged to. partitioned: one of the tables is.
func refuseUnlistedPartitions(ctx context.Context, q source.Querier, c *source.Config, sent publication.State) (partitioned bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	schemas, err := publication.HasSchemas(ctx, q, c)
	if err != nil {
		return false, err
	}
	for name, t := range sent.Tables {
		var root, listed bool
		err := q.QueryRow(ctx, `SELECT relkind = 'p', EXISTS (SELECT FROM pg_publication_rel r WHERE r.oid = ANY ($2::oid[]))
			FROM pg_class WHERE oid = $1`, t.OID, t.Through).Scan(&root, &listed)
		if err != nil && !source.IsNoRows(err) {
			return false, fmt.Errorf("read pg_class: %w", err)
		}
		partitioned = partitioned || root
		if root && (schemas || !listed) {
			return true, &event.Stop{
				Code: event.ExitOperator, Reason: "table",
				What: fmt.Sprintf("slot %q may have rows of former partitions of table %s under their own names, which cannot be distinguished from rows of other tables: publication %q does not list the table by name, or has a schema as well",
					c.Slot, name, c.Publication),
				Fix: source.LookHint(c.Slot) + "; then go on without that: " + source.AcceptCommand + source.NewSlot + source.NewSlotHint(c) + "; then find and re-send what waited in it",
			}
		}
	}
	return partitioned, nil
}
