// Package setup has the commands that make a slot, take over another program's, go on with one
// after exit 3 and remove it: init, takeover, accept and teardown.
package setup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/schema"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// InitOptions say what Init creates in addition to schema, publication and slot.
type InitOptions struct {
	OutboxTable bool   // create the configured tables that are missing, in the relay's own layout
	URL         string // of a role that may create them; "" is the relay's own
	Role        string // to GRANT the relay's rights to
	NoSlot      bool   // leave the slot to the first start, or to a takeover

	// Check is asked when the tables are there and the slot is not; nil: there is nothing to ask
	Check func(context.Context, *pgxpool.Pool) error
}

// Validate returns a Stop with exit code event.ExitUsage if the options or the configuration are
// not valid; it asks no server.
func (o InitOptions) Validate(c *source.Config) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if o.OutboxTable && len(c.Tables) == 0 {
		return &event.Stop{
			Code: event.ExitUsage, Reason: "config",
			What: "--outbox-table has no effect: source.tables names no table", Fix: "leave it out, or name the table",
		}
	}
	return nil
}

// outboxTableSQL is the layout that the default configuration reads, with the column of the row's
// transaction if one is mapped.
func outboxTableSQL(t decode.Table) []string {
	const layout = `CREATE TABLE IF NOT EXISTS %s (
    id            uuid PRIMARY KEY,
    aggregatetype text NOT NULL,
    aggregateid   text NOT NULL,
    type          text NOT NULL,
    payload       jsonb,
    headers       jsonb,
    traceparent   text,
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp()%s
)`
	c := transactionColumn(t)
	if c.Name == "" {
		return []string{fmt.Sprintf(layout, source.QuoteTable(t), "")}
	}
	column := fmt.Sprintf(",\n    %-13s %s DEFAULT %s", source.QuoteName(c.Name), c.TypeSQL(), c.DefaultSQL())
	return []string{fmt.Sprintf(layout, source.QuoteTable(t), column), c.TableSQL()}
}

// createTable creates a table that is missing. One that is there stays as it is, and is refused if
// a stranger could run code by it; it may have come just now.
func createTable(ctx context.Context, ddl *pgxpool.Pool, t decode.Table, role string) error {
	err := pgx.BeginFunc(ctx, ddl, func(tx pgx.Tx) error {
		var there bool
		if err := tx.QueryRow(ctx, `SELECT to_regclass($1) IS NOT NULL`, source.QuoteTable(t)).Scan(&there); err != nil {
			return err
		}
		if err := refuseForeign(ctx, tx, t, role); err != nil || there {
			return err
		}
		for _, sql := range outboxTableSQL(t) {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		return refuseForeign(ctx, tx, t, role)
	})
	if stop, ok := errors.AsType[*event.Stop](err); ok {
		return stop
	}
	if err != nil {
		return fmt.Errorf("create table %s.%s: %w", t.Schema, t.Name, err)
	}
	return nil
}

// tableGrantSQL is what a role needs to relay, in addition to schema.GrantSQL and the attribute
// REPLICATION.
func tableGrantSQL(c *source.Config, role string) []string {
	var list []string
	r := source.QuoteName(role)
	for _, t := range c.Tables {
		list = append(list, fmt.Sprintf("GRANT USAGE ON SCHEMA %s TO %s", source.QuoteName(t.Schema), r),
			fmt.Sprintf("GRANT SELECT ON %s TO %s", source.QuoteTable(t), r))
		if c.Deletes {
			list = append(list, source.GrantDelete(t, r))
		}
	}
	return list
}

// Init creates what is missing: tables when asked, schema, rights, publication and slot. With
// source.create: false publication and slot must exist, and are not changed: they may belong to
// another program that is still running. Init may be run any number of times.
func Init(ctx context.Context, c source.Config, opt InitOptions) error {
	if err := opt.Validate(&c); err != nil {
		return err
	}
	owner := c
	if opt.URL != "" {
		owner.URL, owner.Password = opt.URL, nil
	}
	ddl, err := source.ConnectPool(&owner)
	if err != nil {
		return err
	}
	defer ddl.Close()
	if err := source.CheckServer(ctx, ddl); err != nil {
		return source.OrFatal(&owner, err)
	}
	if err := source.CheckEncoding(ctx, ddl); err != nil {
		return err
	}
	if err := source.CheckFailoverSlot(ctx, ddl, &c); err != nil {
		return err
	}
	if err := CreateObjects(ctx, ddl, &owner, opt); err != nil {
		return err
	}
	if opt.Check != nil {
		if err := opt.Check(ctx, ddl); err != nil {
			return err
		}
	}
	pool, err := source.ConnectPool(&c)
	if err != nil {
		return err
	}
	defer pool.Close()
	switch {
	case opt.NoSlot:
		return nil
	case !c.Create:
		err = findExisting(ctx, pool, &c)
	default:
		var p *slot.Prepared
		p, err = slot.Prepare(ctx, pool, &c, source.ConnectStream)
		if err == nil {
			p.Close()
		}
	}
	if err != nil {
		return slot.ConnectAndNameStop(ctx, c, source.OrFatal(&c, err), 0)
	}
	view, err := slot.ReadView(ctx, pool, c.Slot)
	if err != nil || view == nil {
		return err
	}
	if err := slot.CheckRecordedPosition(ctx, pool, &c, view); err != nil {
		return slot.ConnectAndNameStop(ctx, c, err, 0)
	}
	c.Log.Info("ready", append(c.RelayedFields(), zap.String("slot", c.Slot), zap.String("publication", c.Publication))...)
	return nil
}

// CreateObjects does, as the role of ddl, what Init does before the slot: tables and rights if opt
// asks for them, the schema, and the publication unless source.create is false or the slot is in
// use.
func CreateObjects(ctx context.Context, ddl *pgxpool.Pool, c *source.Config, opt InitOptions) error {
	if opt.OutboxTable {
		for _, t := range c.Tables {
			if err := createTable(ctx, ddl, t, opt.Role); err != nil {
				return err
			}
		}
	}
	if err := schema.Install(ctx, ddl, opt.Role); err != nil {
		return err
	}
	if opt.Role != "" {
		err := pgx.BeginFunc(ctx, ddl, func(tx pgx.Tx) error {
			for _, sql := range tableGrantSQL(c, opt.Role) {
				if _, err := tx.Exec(ctx, sql); err != nil {
					return fmt.Errorf("%s: %w", sql, err)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if !c.Create {
		return nil
	}
	rec, err := slot.ReadRecord(ctx, ddl, c.Slot)
	if err != nil {
		return err
	}
	if rec != nil && rec.State == slot.StateReady {
		return nil // a publication that is missing now was lost: prepare says what that means
	}
	if _, err := schema.FindTables(ctx, ddl, c, true); err != nil {
		return err
	}
	return schema.EnsurePublication(ctx, ddl, c)
}

// findExisting returns a Stop if publication or slot are missing that source.create: false wants to
// be there.
func findExisting(ctx context.Context, pool *pgxpool.Pool, c *source.Config) error {
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	there, err := schema.PublicationExists(ctx, pool, c)
	if err != nil {
		return err
	}
	rec, view, err := slot.ReadBoth(ctx, pool, c.Slot)
	if err != nil {
		return err
	}
	missing := func(what, name string) error {
		return &event.Stop{
			Code: event.ExitOperator, Reason: what + "_missing",
			What: fmt.Sprintf("%s %q does not exist and source.create is false; the schema was created", what, name), Fix: source.NameHint(what),
		}
	}
	switch {
	case view == nil && rec != nil && rec.State == slot.StateReady:
		return slot.MissingStop(c, rec, slot.Identity{})
	case rec != nil && rec.State == slot.StateTakeover:
		return slot.TakeoverUnfinishedStop(c, rec)
	case view == nil:
		return missing("slot", c.Slot)
	case !there:
		return missing("publication", c.Publication)
	}
	return nil
}

// PrintInit writes the SQL of Init, for those who run it by other means. It does not connect.
func PrintInit(w io.Writer, c source.Config, opt InitOptions) error {
	if err := opt.Validate(&c); err != nil {
		return err
	}
	var b strings.Builder
	// Whoever runs it may do everything: no function that somebody has put into public, or into
	// another schema of that role's path, is called in the place of PostgreSQL's own.
	b.WriteString("SET search_path = pg_catalog;\n\n")
	if opt.OutboxTable {
		for _, t := range c.Tables {
			list := outboxTableSQL(t)
			list = append([]string{list[0], foreignCheckSQL(t, opt.Role)}, list[1:]...)
			b.WriteString(strings.Join(list, ";\n") + ";\n\n")
		}
	}
	b.WriteString(schema.PrintedOwner + "BEGIN;\nCREATE SCHEMA cdc_relay AUTHORIZATION " + schema.OwnerRole + ";\n" +
		"SET LOCAL ROLE " + schema.OwnerRole + ";\n" + schema.Bootstrap + "\n")
	for i, sql := range schema.Migrations() {
		fmt.Fprintf(&b, "%sINSERT INTO cdc_relay.migration (version) VALUES (%d);\n\n", sql, i+1)
	}
	if opt.Role != "" {
		b.WriteString(strings.Join(schema.GrantSQL(opt.Role, false), ";\n") + ";\n")
	}
	b.WriteString("COMMIT;\n\n")
	if opt.Role != "" {
		fmt.Fprintf(&b, "ALTER ROLE %s REPLICATION;\n", source.QuoteName(opt.Role))
		for _, sql := range tableGrantSQL(&c, opt.Role) {
			b.WriteString(sql + ";\n")
		}
		b.WriteString("\n")
	}
	if c.Create {
		b.WriteString("-- The publication must exist before the slot. One that exists belongs to somebody else and gets no comment.\nBEGIN;\n" +
			schema.CreatePublicationSQL(&c) + ";\n" + schema.MarkPublicationSQL(&c) + ";\nCOMMIT;\n\n")
	}
	if c.Create && !opt.NoSlot {
		fmt.Fprintf(&b, "-- A slot created by hand is adopted as it is: rows committed before it are not sent, and nothing checks for them. The row\n"+
			"-- records that this is accepted. It is written only for a slot that is newer than the publication.\n"+
			"SELECT set_config('cdc_relay.published', pg_current_wal_insert_lsn()::text, false);\n"+
			"%[3]s;\n"+
			"BEGIN;\nSET LOCAL ROLE "+schema.OwnerRole+";\n"+
			"INSERT INTO cdc_relay.slots (slot, system_id, timeline, publication, state, incarnation)\n"+
			"SELECT slot_name, '', 0, %[2]s, 'adopt', 0 FROM pg_replication_slots\n"+
			"WHERE slot_name = %[1]s AND active_pid IS NULL AND confirmed_flush_lsn >= current_setting('cdc_relay.published')::pg_lsn;\nCOMMIT;\n", source.QuoteText(c.Slot), source.QuoteText(c.Publication), source.MakeSlotSQL(&c))
	}
	b.WriteString("\nRESET search_path;\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// foreignSQL returns what of a table is a stranger's, the table first: the thing and its owner. No
// stranger is a superuser, the current role, and role, the relay's.
//
// Who made a table before init decides what runs, with the rights of whoever inserts: triggers,
// rules, policies, defaults, generated columns, constraints, the functions of indexes and of types,
// also of its partitions and of what it inherits from. So all that is walked, as pg_depend has it,
// and each thing must have an owner who could do the same anyway. What PostgreSQL brings with it is
// not in pg_depend. A foreign key is left out: it is checked as the owner of the other table. An
// event trigger, which a superuser alone makes, would run for what init itself creates.
//
// It reads the catalogue alone: it waits for no lock, and runs nothing of what it looks at.
func foreignSQL(t decode.Table, role string) string {
	return strings.NewReplacer("{table}", source.QuoteText(source.QuoteTable(t)), "{role}", source.QuoteText(role)).Replace(`
WITH RECURSIVE trusted AS (SELECT oid FROM pg_roles WHERE rolsuper OR rolname IN (current_user, session_user, {role})),
used (classid, objid) AS (
    SELECT 'pg_class'::regclass::oid, to_regclass({table})::oid
    UNION ALL SELECT 'pg_event_trigger'::regclass, oid FROM pg_event_trigger WHERE evtenabled <> 'D'
    UNION SELECT n.* FROM used u CROSS JOIN LATERAL (
        SELECT refclassid, refobjid FROM pg_depend WHERE classid = u.classid AND objid = u.objid AND deptype <> 'e'
        UNION ALL SELECT k.* FROM (SELECT u.objid WHERE u.classid = 'pg_class'::regclass) c (oid) CROSS JOIN LATERAL (
            SELECT 'pg_trigger'::regclass::oid, oid FROM pg_trigger WHERE tgrelid = c.oid AND NOT tgisinternal
            UNION ALL SELECT 'pg_rewrite'::regclass, oid FROM pg_rewrite WHERE ev_class = c.oid
            UNION ALL SELECT 'pg_policy'::regclass, oid FROM pg_policy WHERE polrelid = c.oid
            UNION ALL SELECT 'pg_attrdef'::regclass, oid FROM pg_attrdef WHERE adrelid = c.oid
            UNION ALL SELECT 'pg_constraint'::regclass, oid FROM pg_constraint WHERE conrelid = c.oid AND contype <> 'f'
            UNION ALL SELECT 'pg_statistic_ext'::regclass, oid FROM pg_statistic_ext WHERE stxrelid = c.oid
            UNION ALL SELECT 'pg_class'::regclass, indexrelid FROM pg_index WHERE indrelid = c.oid
            UNION ALL SELECT 'pg_class'::regclass, unnest(ARRAY[inhrelid, inhparent]) FROM pg_inherits WHERE c.oid IN (inhrelid, inhparent)) k
        UNION ALL SELECT 'pg_constraint'::regclass, oid FROM pg_constraint WHERE u.classid = 'pg_type'::regclass AND contypid = u.objid
        UNION ALL SELECT 'pg_class'::regclass, typrelid FROM pg_type WHERE u.classid = 'pg_type'::regclass AND oid = u.objid AND typrelid <> 0) n),
owned (classid, objid, owner) AS (
    SELECT 'pg_class'::regclass::oid, oid, relowner FROM pg_class
    UNION ALL SELECT 'pg_proc'::regclass, oid, proowner FROM pg_proc
    UNION ALL SELECT 'pg_type'::regclass, oid, typowner FROM pg_type
    UNION ALL SELECT 'pg_operator'::regclass, oid, oprowner FROM pg_operator
    UNION ALL SELECT 'pg_opclass'::regclass, oid, opcowner FROM pg_opclass
    UNION ALL SELECT 'pg_opfamily'::regclass, oid, opfowner FROM pg_opfamily
    UNION ALL SELECT 'pg_collation'::regclass, oid, collowner FROM pg_collation
    UNION ALL SELECT 'pg_statistic_ext'::regclass, oid, stxowner FROM pg_statistic_ext
    UNION ALL SELECT 'pg_event_trigger'::regclass, oid, evtowner FROM pg_event_trigger)
SELECT pg_describe_object(classid, objid, 0), pg_get_userbyid(owner)::text FROM used JOIN owned USING (classid, objid)
WHERE owner NOT IN (SELECT oid FROM trusted) ORDER BY objid <> to_regclass({table}), 1 LIMIT 1`)
}

// foreignFix is the fix of refuseForeign, and of the SQL that does the same.
const foreignFix = "find out who made it: it could run code as whoever inserts. Then drop it, or run init with --url of that role, or without --outbox-table if the role is to be trusted"

// refuseForeign returns a Stop for a table by which a stranger could run code.
func refuseForeign(ctx context.Context, tx pgx.Tx, t decode.Table, role string) error {
	var what, owner string
	err := tx.QueryRow(ctx, foreignSQL(t, role)).Scan(&what, &owner)
	switch {
	case source.IsNoRows(err):
		return nil
	case err != nil:
		return fmt.Errorf("read whose it is: %w", err)
	}
	return &event.Stop{
		Code: event.ExitOperator, Reason: "table_foreign",
		What: fmt.Sprintf("table %s is not used: %s belongs to role %q", t, what, owner), Fix: foreignFix,
	}
}

// foreignCheckSQL is refuseForeign for those who run SQL by other means.
func foreignCheckSQL(t decode.Table, role string) string {
	return fmt.Sprintf(`DO $do$ DECLARE thing text; stranger text; BEGIN
    SELECT * INTO thing, stranger FROM (%s) f;
    IF FOUND THEN
        RAISE EXCEPTION 'table %% is not used: %% belongs to role %%', %s, thing, stranger USING HINT = %s;
    END IF;
END $do$`, foreignSQL(t, role), source.QuoteText(t.String()), source.QuoteText(foreignFix))
}
