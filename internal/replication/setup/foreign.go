// Whether somebody else could run code by an outbox table that exists.

package setup

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

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

// foreignFix is for both ways to refuse a table.
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

// printedForeign is refuseForeign for those who run SQL by other means.
func printedForeign(t decode.Table, role string) string {
	return fmt.Sprintf(`DO $do$ DECLARE thing text; stranger text; BEGIN
    SELECT * INTO thing, stranger FROM (%s) f;
    IF FOUND THEN
        RAISE EXCEPTION 'table %% is not used: %% belongs to role %%', %s, thing, stranger USING HINT = %s;
    END IF;
END $do$`, foreignSQL(t, role), source.QuoteText(t.String()), source.QuoteText(foreignFix))
}
