// What keeps delivered rows of a table from being known, or deleted.

package retention

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sent"
)

// CheckTables returns a Stop with exit code event.ExitUsage if the rows of a table cannot be told
// apart by their transaction. A table that does not exist, and one that could not be read, is
// another's to report.
func CheckTables(ctx context.Context, q sent.Querier, tables []sent.Table) error {
	for _, t := range tables {
		d, err := sent.Describe(ctx, q, t)
		if err != nil {
			return err
		}
		if what, fix := lacks(&d, t); what != "" {
			return &event.Stop{Code: event.ExitUsage, Reason: "config", What: "retention: " + what, Fix: fix}
		}
	}
	return nil
}

// lacks says what retention misses on a table that exists; "": nothing.
func lacks(d *sent.Description, t sent.Table) (what, fix string) {
	const command = "run `cdc-relay init --add-transaction-column` (--print shows the SQL), or set retention.mode to none"
	if d.OID == 0 {
		return "", ""
	}
	if d.Unfit != "" {
		return fmt.Sprintf("%s has a column %s, wanted xid8 or bigint (outbox.transaction)", t, d.Unfit), "name another column in outbox.transaction, which `cdc-relay init --add-transaction-column` adds, or set retention.mode to none"
	}
	if d.Transaction == "" {
		return fmt.Sprintf("%s has no column %s of type xid8 (outbox.transaction), which says of a row whether it was delivered", t, listNames(t.Transaction)), command
	}
	return "", ""
}

// unindexed is why nothing is deleted from leaves that have no index on the transaction; nil: each
// one has.
func unindexed(d *sent.Description, leaves ...sent.Leaf) *refusal {
	var names, indexes []string
	for _, l := range leaves {
		if !l.Indexed {
			names = append(names, l.Name)
			indexes = append(indexes, fmt.Sprintf("CREATE INDEX CONCURRENTLY ON %s (%s)", l.Name, pgx.Identifier{d.Transaction}.Sanitize()))
		}
	}
	if len(names) == 0 {
		return nil
	}
	const most = 3
	more := ""
	if len(names) > most {
		names, indexes, more = names[:most], indexes[:most], fmt.Sprintf(" and %d more", len(names)-most)
	}
	fix := strings.Join(indexes, "; ")
	if d.Leaves[0].OID != d.OID {
		fix = "cdc-relay init --add-transaction-column, also for partitions to come; or on each partition: " + fix
	}
	return &refusal{"no valid btree index begins with column " + d.Transaction + " of " + strings.Join(names, ", ") + more, fix}
}

// weak says why rows of a table that has the column may lack their transaction: they are delivered,
// and then nothing is known of them.
func weak(d *sent.Description, t sent.Table) (list []Problem) {
	if d.Transaction == "" {
		return nil
	}
	c := sent.Column{Schema: t.Schema, Table: t.Name, Name: d.Transaction, Bigint: d.Bigint}
	for _, l := range d.Leaves {
		if !l.Defaults {
			list = append(list, Problem{
				Warn: true, What: fmt.Sprintf("column %s of %s has no default pg_current_xact_id(): rows without a value are not known to be delivered", d.Transaction, l.Name),
				Fix: fmt.Sprintf("ALTER TABLE %s ALTER COLUMN %s SET DEFAULT %s", l.Name, pgx.Identifier{d.Transaction}.Sanitize(), c.Value()),
			})
		}
		if !l.Triggered {
			list = append(list, Problem{
				Warn: true, What: fmt.Sprintf("%s has no trigger %s that is ENABLE ALWAYS and sets column %s to pg_current_xact_id(): rows that are inserted with another transaction's id are not known to be delivered", l.Name, c.Trigger(), d.Transaction),
				Fix: strings.Join(c.TriggerSQL(), "; "),
			})
		}
	}
	return list[:min(len(list), 3)]
}
