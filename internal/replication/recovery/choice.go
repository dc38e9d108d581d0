// Which rows are copied: those that nobody is known to have been sent, and that no slot will send.

package recovery

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/replication/publication"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/replication/tablerows"
	"github.com/cdc-relay/cdc-relay/internal/sent"
)

// table is an outbox table.
type table struct {
	tablerows.Table
	by *byColumn // the column to order by; nil: another order

	id string // SQL of the event's id in UTF-8
	// SQL of the transaction that wrote the row, a bigint; "": the table has no column for it
	tx       string
	family   []uint32
	restored bool   // it may have come with a dump: see slot.Record.Restored
	first    string // what was there before the slot was: see publication.Table.First; "": nothing
	named    named  // of a resend
}

// named is how a resend names rows of a table.
type named struct {
	id, key, aggregate tablerows.Part
	time               string // SQL
}

// describe reads what the tables are.
func (r *run) describe(ctx context.Context) ([]table, error) {
	tables := make([]table, len(r.c.Tables))
	r.tables = tables
	for i, of := range r.c.Tables {
		t := &tables[i]
		var err error
		if t.Table, err = tablerows.Describe(ctx, r.pool, r.c, of); err != nil {
			return nil, err
		}
		if r.opt.OrderBy != "" {
			if t.by, err = r.readByColumn(ctx, of); err != nil {
				return nil, err
			}
		}
		known, err := sent.Describe(ctx, r.pool, sent.Table{Schema: of.Schema, Name: of.Name, ID: of.Mapping.ID.Any, Transaction: of.Mapping.Transaction.Any})
		if err != nil {
			return nil, err
		}
		t.id, t.family, t.restored = known.IDSQL(), known.Family, r.restored
		if known.Transaction != "" {
			t.tx = "(" + sent.TxSQL("t."+source.QuoteName(known.Transaction), known.Bigint) + ")"
		}
		if r.resend != nil {
			if err := r.nameColumns(ctx, t); err != nil {
				return nil, err
			}
		}
		if was, there := r.was.Tables[source.QuoteTable(of)]; there && was.OID == of.OID && was.First != publication.NoRows {
			t.first = was.First
		}
	}
	if err := r.refuseHalfDetached(ctx, tables); err != nil {
		return nil, err
	}
	return tables, r.checkWhere(ctx, tables)
}

// refuseHalfDetached ends a run if DETACH PARTITION CONCURRENTLY was begun and not finished: a
// query leaves the partition out, and the catalogue has it as a partition still.
func (r *run) refuseHalfDetached(ctx context.Context, tables []table) error {
	for i := range tables {
		var parent, partition string
		err := r.pool.QueryRow(ctx, `WITH RECURSIVE tree AS (SELECT $1::oid AS oid UNION SELECT inhrelid FROM pg_inherits JOIN tree ON inhparent = tree.oid)
			SELECT inhparent::regclass::text, inhrelid::regclass::text FROM pg_inherits JOIN tree ON inhparent = tree.oid WHERE inhdetachpending LIMIT 1`, tables[i].OID).Scan(&parent, &partition)
		switch {
		case source.IsNoRows(err):
		case err != nil:
			return fmt.Errorf("read pg_inherits: %w", err)
		default:
			return usage(fmt.Sprintf("DETACH PARTITION CONCURRENTLY of partition %s was interrupted: its rows are not read, and are a table's of its own only once it is finished", partition),
				fmt.Sprintf("ALTER TABLE %s DETACH PARTITION %s FINALIZE; then attach it again if its rows are to be sent", parent, partition))
		}
	}
	return nil
}

// conditionSQL is the operator's condition.
func (r *run) conditionSQL() string {
	if r.opt.Where == "" {
		return "true"
	}
	return "(" + r.opt.Where + "\n)::boolean" // it may be NULL, which is a text
}

// unsentSQL is the condition that a row of alias t may have to be sent, beside the operator's. For
// a backfill each row has. Of a table without the transaction nothing is known, and the operator's
// condition alone decides.
//
//   - It is not in the sent set: no broker has confirmed it. See package sent. A row without its
//     transaction is in no set.
//   - It was not there before the slot was: nobody expected this slot to send it.
//   - Of an accepted gap: its transaction began before the gap ended. What began later the slot
//     sends. All that began before has ended (see checkEnded), so none of it can appear after the
//     gap is closed. A row may have its number from another server, of which the data was restored:
//     then the transaction counts that put it here, too.
func (r *run) unsentSQL(t *table) string {
	switch {
	case r.resend != nil && (!r.resend.knowsSent() || t.tx == ""):
		return r.chosenSQL(t)
	case r.report.backfill || t.tx == "":
		return "true"
	}
	sql := t.notSentSQL() + " AND NOT " + t.beforeSQL()
	if r.task.until > 0 {
		sql += " AND (" + r.ofGapSQL(t) + ")"
	}
	if r.resend != nil {
		sql += " AND " + r.chosenSQL(t)
	}
	return sql
}

// ofGapSQL is the condition that a row may be of an accepted gap.
func (r *run) ofGapSQL(t *table) string {
	return fmt.Sprintf(`%s IS NULL OR %[1]s < %d OR %[1]s >= pg_snapshot_xmax(pg_current_snapshot())::text::bigint OR age(t.xmin) > age('%d'::xid)`, t.tx, r.task.until, uint32(r.task.until))
}

// notSentSQL is a condition of its own, which is a join: within an OR it would be asked row by row.
func (t *table) notSentSQL() string {
	return `NOT EXISTS (SELECT FROM sent_rows s WHERE s.digest = ` + sent.DigestSQL(t.tx, t.id) + `)`
}

// beforeSQL is the condition that a row was there before the slot was.
func (t *table) beforeSQL() string {
	if t.first == "" {
		return "false"
	}
	return `coalesce(pg_visible_in_snapshot((` + t.tx + `)::text::xid8, ` + source.QuoteText(t.first) + `::pg_snapshot), false)`
}

// withSQL begins a statement with unsentSQL: what the slot is known to have sent of a table.
func (r *run) withSQL(t *table) string {
	return `WITH sent_rows AS MATERIALIZED (SELECT DISTINCT unnest(digests) AS digest FROM cdc_relay.sent WHERE slot = ` + source.QuoteText(r.c.Slot) +
		` AND relation = ANY (` + sent.OIDArray(t.family) + `)) `
}

// checkTables looks, as a start does, for tables that the slot has relayed and whose rows would be
// left out: one that is not configured now ends the run, and others are named in the report.
func (r *run) checkTables(ctx context.Context) error {
	configured := r.c.QuotedTables()
	for _, name := range slices.Sorted(maps.Keys(r.was.Tables)) {
		was := r.was.Tables[name]
		var now uint32
		var former []string
		err := r.pool.QueryRow(ctx, `SELECT coalesce((SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE format('"%s"."%s"', replace(nspname, '"', '""'), replace(relname, '"', '""')) = $1), 0),
			array(SELECT c.oid::regclass::text FROM pg_class c WHERE c.oid = ANY ($2::oid[]) AND c.oid <> ALL ($3::oid[]) AND relkind IN ('r', 'p'))`,
			name, append(was.Former, was.OID), r.oids()).Scan(&now, &former)
		if err != nil {
			return fmt.Errorf("read pg_class: %w", err)
		}
		if !slices.Contains(configured, name) {
			if now != 0 || len(former) > 0 {
				return usage(fmt.Sprintf("slot %q has relayed table %s, which is not in source.tables: its rows would be left out", r.c.Slot, name),
					"add it to source.tables; if it is no outbox table any more, drop or rename it")
			}
			continue
		}
		if now != was.OID && was.OID != 0 {
			r.report.Named = append(r.report.Named, fmt.Sprintf("table %s is another one than the slot has relayed: each of its rows counts as not sent", name))
			for _, other := range former {
				r.report.Named = append(r.report.Named, fmt.Sprintf("table %s, which had the name %s when the slot relayed it, is not read", other, name))
			}
		}
	}
	return r.nameDetached(ctx)
}

// oids are those of the configured tables.
func (r *run) oids() (list []uint32) {
	for i := range r.tables {
		list = append(list, r.tables[i].OID)
	}
	return list
}

// nameDetached names tables of which the slot has sent rows, and those with a column for the
// transaction, that are no part of a configured table now: a partition that was detached, or a
// table that was put aside. A table that any relay of this database sends is none of them.
func (r *run) nameDetached(ctx context.Context) error {
	var family []uint32
	for _, t := range r.tables {
		family = append(family, t.family...)
	}
	rows, err := r.pool.Query(ctx, `SELECT c.oid::regclass::text FROM pg_class c
		WHERE relkind = 'r' AND NOT relispartition AND c.oid <> ALL ($2::oid[])
			AND (c.oid IN (SELECT relation FROM cdc_relay.sent WHERE slot = $1)
				OR EXISTS (SELECT FROM pg_attrdef d WHERE d.adrelid = c.oid AND pg_get_expr(d.adbin, d.adrelid) LIKE '%pg_current_xact_id()%'))
			AND NOT EXISTS (SELECT FROM cdc_relay.slots s, jsonb_each(coalesce(s.sends->'tables', '{}')) e WHERE (e.value->>'oid')::oid = c.oid AND (s.slot <> $1 OR s.state = 'ready'))
		ORDER BY 1`, r.c.Slot, family)
	if err != nil {
		return fmt.Errorf("read which tables may have rows: %w", err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("read which tables may have rows: %w", err)
	}
	const most = 10
	if more := len(names) - most; more > 0 {
		names = append(names[:most], fmt.Sprintf("of %d more names", more))
	}
	for _, name := range names {
		r.report.Named = append(r.report.Named, fmt.Sprintf("table %s may have rows of an outbox table, as a partition that was detached has; it is no part of a configured table now, and is not read", name))
	}
	return nil
}
