// Decisions about rows that the relay stops at: they are events of a configured table, or none.

package accept

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/publication"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
)

// rows writes the decision to the slot's record. A relay that leads reads it at its next check, or
// when it comes to such a row.
func (a *acceptance) rows(ctx context.Context) error {
	of, err := a.opt.Rows.rows()
	if err != nil {
		return err
	}
	rec := a.found.Record
	if rec == nil || rec.State != slot.StateReady && rec.State != slot.StateAdopt {
		return usage(fmt.Sprintf("slot %q is not in use, so there are no rows to decide about", a.c.Slot), "run `cdc-relay check`")
	}
	if a.opt.ID != a.found.RowsID(of) {
		return usage(fmt.Sprintf("finding %s is not open: it is not about these rows, or the slot was accepted since", printable(a.opt.ID)), "start the relay again, and copy the command from its message")
	}
	next, done, err := a.decide(ctx, of)
	if err != nil {
		return err
	}
	if next.Equal(rec.Sends) {
		before, err := a.before(ctx, done)
		a.result.Done = "nothing: it was decided before"
		if before != "" {
			a.result.Done = "nothing: it was accepted " + before
		}
		return err
	}
	a.result.Done = done
	return pgx.BeginFunc(ctx, a.pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `UPDATE cdc_relay.slots SET sends = $2 WHERE slot = $1 AND sends::text = $3 AND state = $5 AND incarnation = $4`,
			a.c.Slot, next, rec.SendsText, rec.Incarnation, rec.State)
		if err != nil {
			return fmt.Errorf("write cdc_relay.slots: %w", err)
		}
		if tag.RowsAffected() == 0 {
			return usage(fmt.Sprintf("the record of slot %q was changed meanwhile", a.c.Slot), "run this again")
		}
		return a.audit(ctx, tx, done)
	})
}

// decide returns what is to be remembered, and what that means.
func (a *acceptance) decide(ctx context.Context, of event.Rows) (next publication.State, done string, err error) {
	was := a.found.Record.Sends
	switch {
	case a.opt.Rows.SkipMessages != "":
		return was.SkipMessages(of.Name), fmt.Sprintf("messages with prefix %s are not relayed", of.Name), nil
	case a.opt.Rows.Skip != "":
		done = fmt.Sprintf("rows of table %s (OID %d) are not relayed", of.Name, of.OID)
		if slices.Contains(was.Foreign, of.OID) {
			return was, done, nil
		}
		return was.Skip(of.OID), done, nil
	}
	scope, err := was.FindScope(ctx, a.pool, a.c, of.OID, of.Name)
	if err != nil {
		return was, "", err
	}
	t, err := a.table(scope.Root)
	if err != nil {
		return was, "", err
	}
	oids := []uint32{of.OID}
	if scope.Root != nil { // its other partitions have rows of the same time
		var leaves []uint32
		if err := a.pool.QueryRow(ctx, `SELECT array(SELECT relid::oid FROM pg_partition_tree($1::oid::regclass) WHERE isleaf)`, scope.Root.OID).Scan(&leaves); err != nil {
			return was, "", fmt.Errorf("read the partitions of %s: %w", scope.Root, err)
		}
		oids = append(oids, leaves...)
	}
	return was.Adopt(*t, oids...), fmt.Sprintf("rows of table %s (OID %d) are events of %s", of.Name, of.OID, t), nil
}

// table is the configured table whose events the rows are: root, of which theirs is a partition
// now, or the one that was named, or the only one.
func (a *acceptance) table(root *decode.Table) (*decode.Table, error) {
	if root != nil && (a.opt.Rows.Of == "" || a.opt.Rows.Of == root.String()) {
		return root, nil
	}
	var names []string
	for i := range a.c.Tables {
		t := &a.c.Tables[i]
		names = append(names, t.String())
		if a.opt.Rows.Of == t.String() || a.opt.Rows.Of == "" && len(a.c.Tables) == 1 {
			return t, nil
		}
	}
	return nil, usage("--events does not say of which table", "add --of "+strings.Join(names, " or --of "))
}
