// Which rows are copied: those that nobody is known to have been sent, and that no slot will send.

package repair

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/schema"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/sent"
)

// outboxTable is an outbox table whose rows are copied. Its SQL is of a row with the alias t.
type outboxTable struct {
	Table
	orderBy *orderColumn // the column to order by (--order-by); nil: another order

	id       string        // SQL of the event's id in UTF-8
	tx       string        // SQL of the transaction that wrote the row, a bigint; "": none
	family   []uint32      // sent.Description.Family
	restored bool          // its rows may have come with a dump: see slot.Record.Restored
	first    string        // schema.OutboxTable.First; "": there were no rows before the slot
	resendBy resendColumns // set for a resend alone
}

// resendColumns are the columns by which a resend chooses rows of a table, as far as it does.
type resendColumns struct {
	id, key, aggregate Part
	time               string // SQL of the event's time; "": it does not choose by time
}

// describeTables reads what the configured tables are, and refuses those that cannot be copied.
func (r *run) describeTables(ctx context.Context) ([]outboxTable, error) {
	tables := make([]outboxTable, len(r.c.Tables))
	r.tables = tables
	for i, of := range r.c.Tables {
		t := &tables[i]
		var err error
		if t.Table, err = DescribeTable(ctx, r.pool, r.c, of); err != nil {
			return nil, err
		}
		if r.opt.OrderBy != "" {
			if t.orderBy, err = r.readByColumn(ctx, of); err != nil {
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
		if was, there := r.remembered.Tables[source.QuoteTable(of)]; there && was.OID == of.OID && was.First != schema.NoRows {
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
func (r *run) refuseHalfDetached(ctx context.Context, tables []outboxTable) error {
	for i := range tables {
		var parent, partition string
		err := r.pool.QueryRow(ctx, `WITH RECURSIVE tree AS (SELECT $1::oid AS oid UNION SELECT inhrelid FROM pg_inherits JOIN tree ON inhparent = tree.oid)
			SELECT inhparent::regclass::text, inhrelid::regclass::text FROM pg_inherits JOIN tree ON inhparent = tree.oid WHERE inhdetachpending LIMIT 1`, tables[i].OID).Scan(&parent, &partition)
		switch {
		case source.IsNoRows(err):
		case err != nil:
			return fmt.Errorf("read pg_inherits: %w", err)
		default:
			return usageStop(fmt.Sprintf("DETACH PARTITION CONCURRENTLY of partition %s was interrupted: its rows are not read, and are a table's of its own only once it is finished", partition),
				fmt.Sprintf("ALTER TABLE %s DETACH PARTITION %s FINALIZE; then attach it again if its rows are to be sent", parent, partition))
		}
	}
	return nil
}

// conditionSQL is the operator's condition (--where) on a row of alias t.
func (r *run) conditionSQL() string {
	if r.opt.Where == "" {
		return "true"
	}
	return "(" + r.opt.Where + "\n)::boolean" // it may be NULL, which is a text
}

// unsentSQL is the condition that a row of alias t may have to be sent, in addition to the
// operator's. A backfill sends every row. Of a table without a column for the transaction nothing
// is known, and the operator's condition alone decides. Otherwise, of a row to be sent all is true:
//
//   - It is not in the sent set: no broker has confirmed it. See package sent. A row without its
//     transaction is in no set.
//   - It was not there before the slot was: nobody expected this slot to send it.
//   - Of an accepted gap: its transaction began before the gap ended. What began later the slot
//     sends. All that began before has ended (see checkEnded), so none of it can appear after the
//     gap is closed. A row may have its number from another server, of which the data was restored:
//     then the transaction counts that put it here, too.
func (r *run) unsentSQL(t *outboxTable) string {
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
func (r *run) ofGapSQL(t *outboxTable) string {
	return fmt.Sprintf(`%s IS NULL OR %[1]s < %d OR %[1]s >= pg_snapshot_xmax(pg_current_snapshot())::text::bigint OR age(t.xmin) > age('%d'::xid)`, t.tx, r.task.until, uint32(r.task.until))
}

// notSentSQL is the condition that a row is not in the sent set. It must not stand within an OR: it
// is a join, and would be evaluated row by row there.
func (t *outboxTable) notSentSQL() string {
	return `NOT EXISTS (SELECT FROM sent_rows s WHERE s.digest = ` + sent.DigestSQL(t.tx, t.id) + `)`
}

// beforeSQL is the condition that a row was there before the slot was.
func (t *outboxTable) beforeSQL() string {
	if t.first == "" {
		return "false"
	}
	return `coalesce(pg_visible_in_snapshot((` + t.tx + `)::text::xid8, ` + source.QuoteText(t.first) + `::pg_snapshot), false)`
}

// withSQL begins a statement that has unsentSQL or notSentSQL: it selects what the slot is known to
// have sent of a table.
func (r *run) withSQL(t *outboxTable) string {
	return `WITH sent_rows AS MATERIALIZED (SELECT DISTINCT unnest(digests) AS digest FROM cdc_relay.sent WHERE slot = ` + source.QuoteText(r.c.Slot) +
		` AND relation = ANY (` + sent.OIDArray(t.family) + `)) `
}

// checkTables looks, as a start does, for tables that the slot has relayed and whose rows would be
// left out: one that is not configured now ends the run, and others are named in the report.
func (r *run) checkTables(ctx context.Context) error {
	configured := r.c.QuotedTables()
	var oids []uint32
	for i := range r.tables {
		oids = append(oids, r.tables[i].OID)
	}
	for _, name := range slices.Sorted(maps.Keys(r.remembered.Tables)) {
		was := r.remembered.Tables[name]
		var now uint32
		var former []string
		err := r.pool.QueryRow(ctx, `SELECT coalesce((SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE format('"%s"."%s"', replace(nspname, '"', '""'), replace(relname, '"', '""')) = $1), 0),
			array(SELECT c.oid::regclass::text FROM pg_class c WHERE c.oid = ANY ($2::oid[]) AND c.oid <> ALL ($3::oid[]) AND relkind IN ('r', 'p'))`,
			name, append(was.Former, was.OID), oids).Scan(&now, &former)
		if err != nil {
			return fmt.Errorf("read pg_class: %w", err)
		}
		if !slices.Contains(configured, name) {
			if now != 0 || len(former) > 0 {
				return usageStop(fmt.Sprintf("slot %q has relayed table %s, which is not in source.tables: its rows would be left out", r.c.Slot, name),
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

// nameDetached names tables of which the slot has sent rows, and those with a column for the
// transaction, that are no part of a configured table now: a partition that was detached, or a
// table that was put aside. A table that any relay of this database sends is not among them.
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

// checkWhere has the server parse the expression, in each table and in two places: what is one
// condition stands in both, and "true) OR (true" or a second statement does not. Nothing of it
// runs.
func (r *run) checkWhere(ctx context.Context, tables []outboxTable) error {
	if r.opt.Where == "" {
		return nil
	}
	conn, err := r.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	for i := range tables {
		t := &tables[i]
		for _, sql := range []string{"SELECT FROM %[1]s t WHERE (%[2]s\n)", "SELECT CASE WHEN %[2]s\n THEN 1 END FROM %[1]s t"} {
			_, err := conn.Conn().PgConn().Prepare(ctx, "", fmt.Sprintf(sql, source.QuoteTable(t.Table.Table), r.opt.Where), nil)
			if source.SQLState(err) != "" {
				return usageStop(fmt.Sprintf("the WHERE is not a condition on table %s: %s", t, source.OneLine(err)), "write an SQL expression of its columns, such as created_at > '2026-01-31'")
			}
			if err != nil {
				return fmt.Errorf("check the WHERE: %w", err)
			}
		}
		if err := r.checkWhereCode(ctx, conn, t); err != nil {
			return err
		}
	}
	return nil
}

// usedSQL lists what the view of a condition uses: functions, operators, domains, and relations
// other than the table. Its columns: the thing, its owner, whether its code would run as the relay
// and the owner is not trusted, and its quoted name if it is an ordinary table, else "".
const usedSQL = `
SELECT pg_describe_object(d.refclassid, d.refobjid, 0), pg_get_userbyid(owner),
	coalesce(c.relkind NOT IN ('r', 'p'), true) AND owner NOT IN (SELECT oid FROM pg_roles WHERE rolsuper OR rolname IN (session_user, current_user)),
	coalesce((SELECT format('%I.%I', nspname, c.relname) FROM pg_namespace n WHERE n.oid = c.relnamespace AND c.relkind IN ('r', 'p')), '')
FROM pg_rewrite r
	JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid
	LEFT JOIN pg_proc p ON d.refclassid = 'pg_proc'::regclass AND p.oid = d.refobjid
	LEFT JOIN pg_operator o ON d.refclassid = 'pg_operator'::regclass AND o.oid = d.refobjid
	LEFT JOIN pg_type t ON d.refclassid = 'pg_type'::regclass AND t.oid = d.refobjid AND t.typtype = 'd'
	LEFT JOIN pg_class c ON d.refclassid = 'pg_class'::regclass AND c.oid = d.refobjid AND c.oid <> r.ev_class
	CROSS JOIN LATERAL (SELECT coalesce(p.proowner, o.oprowner, t.typowner, c.relowner) AS owner) w
WHERE r.ev_class = 'pg_temp.cdc_relay_where'::regclass AND owner IS NOT NULL AND c.oid IS DISTINCT FROM $1
ORDER BY 1`

// checkWhereCode refuses a condition that calls code of another role, such as the table's owner. It
// is looked up in a view that is made and rolled back: nothing of it runs.
func (r *run) checkWhereCode(ctx context.Context, conn *pgxpool.Conn, t *outboxTable) error {
	tx, err := conn.Begin(ctx)
	if err != nil {
		return fmt.Errorf("check the WHERE: %w", err)
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // nothing is kept
	_, err = tx.Exec(ctx, "CREATE TEMPORARY VIEW cdc_relay_where AS SELECT FROM "+source.QuoteTable(t.Table.Table)+" t WHERE ("+r.opt.Where+"\n)")
	switch state := source.SQLState(err); {
	case state == "42501" && strings.Contains(err.Error(), "temporary"):
		return usageStop("the role may not make temporary objects, by which a WHERE is looked at before it runs: "+source.OneLine(err).Error(),
			"GRANT TEMPORARY ON DATABASE to it, or choose the rows without --where")
	case state != "":
		return usageStop(fmt.Sprintf("the WHERE is not a condition on table %s: %s", t, source.OneLine(err)), "write an SQL expression of its columns, such as created_at > '2026-01-31'")
	case err != nil:
		return fmt.Errorf("check the WHERE: %w", err)
	}
	rows, err := tx.Query(ctx, usedSQL, t.OID)
	if err != nil {
		return fmt.Errorf("check the WHERE: %w", err)
	}
	var what, owner, another string
	var theirs bool
	var tables []string
	_, err = pgx.ForEachRow(rows, []any{&what, &owner, &theirs, &another}, func() error {
		switch {
		case theirs:
			return usageStop(fmt.Sprintf("the WHERE uses %s of role %s, which would run with the rights of the relay", what, owner),
				"write it without, or have a superuser own it")
		case another != "":
			tables = append(tables, another)
		}
		return nil
	})
	if stop := (*event.Stop)(nil); err != nil && !errors.As(err, &stop) {
		return fmt.Errorf("check the WHERE: %w", err)
	}
	for _, name := range tables {
		if err == nil {
			err = r.readError("check the WHERE", sent.CheckTable(ctx, tx, name))
		}
	}
	return err
}
