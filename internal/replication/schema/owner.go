// The role that owns the schema cdc_relay: how it comes to exist, and how what exists is handed to
// it. A role that nobody can log in as has no sessions in which somebody could change its objects.

package schema

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// OwnerRole owns the schema cdc_relay in each database of the cluster. It may not log in.
const OwnerRole = "cdc_relay_owner"

// sessionRights is what this session may do about OwnerRole and the schema cdc_relay.
type sessionRights struct {
	user           string // the session's role
	super          bool   // it is a superuser
	createRole     bool   // it has CREATEROLE
	createHere     bool   // it may CREATE in the database
	mayBecomeOwner bool   // it may SET ROLE to OwnerRole
	hasGrantSet    bool   // the server has GRANT ... WITH SET: PostgreSQL 16 and later
	ownerExists    bool   // OwnerRole exists
	ownerMayLogin  bool   // OwnerRole may log in
	schemaOwner    string // the role that owns the schema; "": there is no schema
	ownerSuper     bool   // that role is a superuser
}

func readSessionRights(ctx context.Context, q source.Querier) (s sessionRights, err error) {
	err = source.Ask(ctx, q, "read the rights of role "+OwnerRole, `SELECT me.rolname::text, me.rolsuper, me.rolcreaterole, v.newer, has_database_privilege(me.oid, current_database(), 'CREATE'),
			o.oid IS NOT NULL, coalesce(o.rolcanlogin, false), coalesce(pg_has_role(me.oid, o.oid, CASE WHEN v.newer THEN 'SET' ELSE 'MEMBER' END), false),
			coalesce(n.rolname::text, ''), coalesce(n.rolsuper, false)
		FROM pg_roles me CROSS JOIN (SELECT current_setting('server_version_num')::int >= 160000 AS newer) v
		LEFT JOIN pg_roles o ON o.rolname = $1
		LEFT JOIN (SELECT r.rolname, r.rolsuper FROM pg_namespace JOIN pg_roles r ON r.oid = nspowner WHERE nspname = 'cdc_relay') n ON true
		WHERE me.rolname = session_user`, OwnerRole).
		Scan(&s.user, &s.super, &s.createRole, &s.hasGrantSet, &s.createHere, &s.ownerExists, &s.ownerMayLogin, &s.mayBecomeOwner, &s.schemaOwner, &s.ownerSuper)
	return s, err
}

// grantOwnerSQL lets a session become OwnerRole. From PostgreSQL 16 on it does not have the owner's
// rights until it does.
func (s sessionRights) grantOwnerSQL(to string) string {
	sql := "GRANT " + OwnerRole + " TO " + to
	if s.hasGrantSet {
		sql += " WITH INHERIT FALSE, SET TRUE"
	}
	return sql
}

// ensureOwner creates OwnerRole and grants it to this session, as far as the session may do that;
// mayBecomeOwner of the answer says whether it can SET ROLE to it. The role is the whole cluster's,
// so another database's init may do the same at the same time. Nothing of it is in a transaction,
// for which such an init would have to wait.
func ensureOwner(ctx context.Context, pool *pgxpool.Pool) (sessionRights, error) {
	s, err := readSessionRights(ctx, pool)
	if err != nil {
		return s, err
	}
	for _, step := range []struct {
		needed func() bool
		sql    func() string
	}{
		{func() bool { return !s.ownerExists && (s.super || s.createRole && s.createHere) }, func() string { return createOwnerSQL }},
		{func() bool { return s.ownerExists && !s.ownerMayLogin && !s.mayBecomeOwner }, func() string { return s.grantOwnerSQL("SESSION_USER") }},
	} {
		if !step.needed() {
			continue
		}
		_, err := pool.Exec(ctx, step.sql())
		switch source.SQLState(err) {
		case "", "42710", "23505", "42501", "XX000": // done, done by another session, not allowed
		default:
			return s, fmt.Errorf("%s: %w", step.sql(), err)
		}
		if err != nil && source.SQLState(err) == "" {
			return s, fmt.Errorf("%s: %w", step.sql(), err)
		}
		if s, err = readSessionRights(ctx, pool); err != nil {
			return s, err
		}
	}
	if s.ownerMayLogin {
		return s, &event.Stop{
			Code: event.ExitOperator, Reason: "schema_foreign",
			What: "role " + OwnerRole + ", which is to own the schema cdc_relay, may log in", Fix: "ALTER ROLE " + OwnerRole + " NOLOGIN",
		}
	}
	return s, nil
}

const createOwnerSQL = "CREATE ROLE " + OwnerRole + " NOLOGIN"

// PrintedOwner is the SQL of ensureOwner, for those who run it by other means.
const PrintedOwner = `-- The role that owns the schema cdc_relay, here and in every database of the cluster. Nobody logs in as it.
DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '` + OwnerRole + `') THEN
        BEGIN ` + createOwnerSQL + `; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END; -- another database's did
    END IF;
    IF NOT pg_has_role(session_user, '` + OwnerRole + `', CASE WHEN current_setting('server_version_num')::int >= 160000 THEN 'SET' ELSE 'MEMBER' END) THEN
        EXECUTE 'GRANT ` + OwnerRole + ` TO SESSION_USER'
            || CASE WHEN current_setting('server_version_num')::int >= 160000 THEN ' WITH INHERIT FALSE, SET TRUE' ELSE '' END;
    END IF;
END $$;

`

// BecomeOwner makes the rest of a transaction run as the owner of the schema, if that is OwnerRole
// and this session may become it. SET LOCAL ROLE NONE ends that.
func BecomeOwner(ctx context.Context, tx pgx.Tx) error {
	s, err := readSessionRights(ctx, tx)
	if err != nil || !s.mayBecomeOwner || s.schemaOwner != OwnerRole {
		return err
	}
	if _, err := tx.Exec(ctx, "SET LOCAL ROLE "+OwnerRole); err != nil {
		return fmt.Errorf("set role: %w", err)
	}
	return nil
}

// ownerNeededStop is why init does not create or change the schema: it would belong to a role that
// is neither OwnerRole nor the relay's, or it belongs to another role than this one. It never
// advises to make role, the relay's, a member of OwnerRole: it could change the audit.
func ownerNeededStop(s sessionRights, role string) error {
	fix := s.grantOwnerSQL(source.QuoteName(s.user))
	if !s.ownerExists {
		fix = createOwnerSQL + "; " + fix
	}
	what := fmt.Sprintf("role %q may not create role %s, which is to own the schema cdc_relay, or may not become it", s.user, OwnerRole)
	other := fmt.Sprintf("run it with --url of a superuser, or of a role with CREATEROLE that owns what is there, and --role %s", source.QuoteName(role))
	notLooked := ""
	if role != s.user {
		notLooked = fmt.Sprintf(", or role %q may not look", s.user)
	}
	switch s.schemaOwner {
	case "":
	case OwnerRole:
		what = fmt.Sprintf("the schema cdc_relay is of an older version, or role %q lacks rights in it%s; it belongs to %s, which role %q may not become",
			role, notLooked, OwnerRole, s.user)
	default:
		what = fmt.Sprintf("the schema cdc_relay belongs to role %q, and role %q may not hand it over to %s", s.schemaOwner, s.user, OwnerRole)
	}
	if role != s.user {
		other = fmt.Sprintf("as a superuser: %s; then run init again, or %s", fix, other)
	}
	return &event.Stop{Code: event.ExitFailure, Reason: "rights", What: what, Fix: other}
}

// handOverToOwner gives what exists in the schema to OwnerRole; handed: something was not its own
// before. REASSIGN OWNED would also hand over what the former owner has elsewhere. It waits for
// statements that use the tables, lock_timeout at most. OwnerRole gets CREATE on the schema first
// and the schema last: a role that is no superuser may give a table only to a role with CREATE, and
// only while it owns the schema.
//
// A function that runs with its owner's rights would run with OwnerRole's from now on, whoever
// wrote it: one that is not the relay's is refused, and the relay's are made again by
// restoreAuditFunctions.
func handOverToOwner(ctx context.Context, tx pgx.Tx) (handed bool, err error) {
	var strange string
	err = tx.QueryRow(ctx, `SELECT coalesce(string_agg(p.oid::regprocedure::text, ', ' ORDER BY p.oid), '') FROM pg_proc p
		WHERE pronamespace = to_regnamespace('cdc_relay')::oid AND p.oid <> ALL (SELECT coalesce(to_regprocedure('cdc_relay.' || f)::oid, 0) FROM unnest($1::text[]) f)`,
		append([]string{pruneFunction}, relayFunctions...)).Scan(&strange)
	if err != nil {
		return false, err
	}
	if strange != "" {
		return false, &event.Stop{
			Code: event.ExitOperator, Reason: "schema_foreign",
			What: "the schema cdc_relay has functions that are none of the relay's, and would run as " + OwnerRole + ": " + strange,
			Fix:  "find out who made them; then DROP ROUTINE " + strange + ", and run init again",
		}
	}
	list, err := source.List(ctx, tx, "read what is in schema cdc_relay", pgx.RowTo[string], `WITH ns AS (SELECT oid, nspowner FROM pg_namespace WHERE nspname = 'cdc_relay'), o AS (SELECT oid FROM pg_roles WHERE rolname = $1::text)
		SELECT sql FROM (
			SELECT 1 AS step, 'GRANT USAGE, CREATE ON SCHEMA cdc_relay TO ' || quote_ident($1::text) AS sql FROM ns, o WHERE nspowner <> o.oid
			UNION ALL SELECT 2, format('ALTER TABLE %s OWNER TO %I', c.oid::regclass, $1::text) FROM pg_class c JOIN ns ON relnamespace = ns.oid, o WHERE relkind = 'r' AND relowner <> o.oid
			UNION ALL SELECT 3, format('ALTER SEQUENCE %s OWNER TO %I', c.oid::regclass, $1::text) FROM pg_class c JOIN ns ON relnamespace = ns.oid, o WHERE relkind = 'S' AND relowner <> o.oid
				AND NOT EXISTS (SELECT FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = c.oid AND deptype IN ('a', 'i'))
			UNION ALL SELECT 4, format('ALTER ROUTINE %s OWNER TO %I', p.oid::regprocedure, $1::text) FROM pg_proc p JOIN ns ON pronamespace = ns.oid, o WHERE proowner <> o.oid
			UNION ALL SELECT 5, format('ALTER SCHEMA cdc_relay OWNER TO %I', $1::text) FROM ns, o WHERE nspowner <> o.oid
		) all_of_it ORDER BY step, sql`, OwnerRole)
	if err != nil {
		return false, err
	}
	for _, sql := range list {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return false, fmt.Errorf("%s: %w", sql, err)
		}
	}
	return len(list) > 0, nil
}

// restoreAuditFunctions makes the functions and defaults by which the audit says who did what
// again, as OwnerRole: the former owner could have changed them. Nothing is to be done before
// auditVersion.
func restoreAuditFunctions(ctx context.Context, tx pgx.Tx) error {
	var have int
	if err := tx.QueryRow(ctx, `SELECT coalesce(max(version), 0) FROM cdc_relay.migration`).Scan(&have); err != nil || have < auditVersion {
		return err
	}
	if _, err := tx.Exec(ctx, strings.ReplaceAll(Migrations()[auditVersion-1], "CREATE FUNCTION", "CREATE OR REPLACE FUNCTION")); err != nil {
		return fmt.Errorf("make the functions of cdc_relay again: %w", err)
	}
	return nil
}

// Trust adds to the roles whose objects in the schema cdc_relay are accepted: superusers, OwnerRole
// and the current role.
type Trust struct {
	Role        string // "" adds none
	Replication bool   // every role with REPLICATION, which may do what a relay does
}

// verifySQL returns what is wrong first, each thing of one kind: the thing, why, and what to do
// about it; no row if nothing is. $1 and $2 are Trust. It reads the catalogue alone, so it waits
// for no lock and runs nothing of what it looks at.
//
// A trigger, rule, policy, domain, cast or function of somebody else would run with the relay's
// rights as soon as the relay reads or writes. Who may CREATE in the schema, or has TRIGGER on a
// table, can add one after this look. A trigger that runs what a superuser or this role wrote, such
// as a superuser's own audit, is in order; PostgreSQL's own functions, some of which drop rows, are
// not. What an expression calls is in pg_depend; what came with PostgreSQL is not there, or is in
// pg_catalog, where a superuser alone makes anything.
const verifySQL = `
WITH ns AS (SELECT oid, nspowner, nspacl FROM pg_namespace WHERE nspname = 'cdc_relay'),
trusted AS (SELECT oid FROM pg_roles WHERE rolsuper OR rolname IN (session_user, current_user, $1::text)
	OR rolname = '` + OwnerRole + `' AND NOT rolcanlogin OR $2::bool AND rolreplication),
self AS (SELECT oid FROM pg_roles WHERE rolsuper OR rolname IN (session_user, current_user)),
kinds (relkind, kind) AS (VALUES ('r', 'table'), ('S', 'sequence'), ('i', 'index'), ('v', 'view'), ('m', 'materialized view'),
	('f', 'foreign table'), ('p', 'partitioned table'), ('I', 'partitioned index'), ('c', 'type')),
rel AS (SELECT c.oid, c.relkind, k.kind, c.relowner, c.relacl, c.relrowsecurity, c.relname, format('cdc_relay.%I', c.relname) AS name
	FROM pg_class c JOIN ns ON c.relnamespace = ns.oid JOIN kinds k ON k.relkind = c.relkind::text),
part AS (SELECT 'pg_class'::regclass::oid AS classid, oid AS objid, name FROM rel
	UNION ALL SELECT 'pg_attrdef'::regclass, d.oid, name FROM pg_attrdef d JOIN rel ON rel.oid = d.adrelid
	UNION ALL SELECT 'pg_constraint'::regclass, k.oid, name FROM pg_constraint k JOIN rel ON rel.oid = k.conrelid
	UNION ALL SELECT 'pg_statistic_ext'::regclass, s.oid, name FROM pg_statistic_ext s JOIN rel ON rel.oid = s.stxrelid),
fault (rank, what, why, fix) AS (
	SELECT 1, 'schema cdc_relay', format('belongs to role %I', pg_get_userbyid(nspowner)),
			format('if role %I made it for the relay, run ''cdc-relay init'' as that role or ALTER SCHEMA cdc_relay OWNER TO ` + OwnerRole + `; if not, DROP SCHEMA cdc_relay CASCADE and run ''cdc-relay init''', pg_get_userbyid(nspowner))
		FROM ns WHERE nspowner NOT IN (SELECT oid FROM trusted)
	UNION ALL SELECT 2, 'schema cdc_relay', 'gives ' || coalesce('role ' || quote_ident(r.rolname), 'PUBLIC') || ' the right to create objects in it',
			'REVOKE CREATE ON SCHEMA cdc_relay FROM ' || coalesce(quote_ident(r.rolname), 'PUBLIC')
		FROM ns, aclexplode(nspacl) a LEFT JOIN pg_roles r ON r.oid = a.grantee
		WHERE a.privilege_type = 'CREATE' AND a.grantee NOT IN (SELECT oid FROM trusted)
	UNION ALL SELECT 3, kind || ' ' || name, format('belongs to role %I', pg_get_userbyid(relowner)),
			format('ALTER %s %s OWNER TO ` + OwnerRole + `', upper(kind), name)
		FROM rel WHERE relowner NOT IN (SELECT oid FROM trusted) AND relkind NOT IN ('i', 'I', 'c')
			AND NOT (relkind = 'S' AND EXISTS (SELECT FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = rel.oid AND deptype IN ('a', 'i')))
	UNION ALL SELECT 4, kind || ' ' || name, 'is none of the relay''s: it makes tables and sequences alone', format('DROP %s %s', upper(kind), name)
		FROM rel WHERE relkind NOT IN ('r', 'i', 'S', 'c')
	UNION ALL SELECT 5, 'function ' || p.oid::regprocedure, format('belongs to role %I', pg_get_userbyid(proowner)), 'DROP ROUTINE ' || p.oid::regprocedure
		FROM pg_proc p JOIN ns ON p.pronamespace = ns.oid
		WHERE proowner NOT IN (SELECT oid FROM trusted) OR NOT prosecdef AND proowner NOT IN (SELECT oid FROM self)
	UNION ALL SELECT 6, pg_describe_object(classid, objid, 0), 'is none of the relay''s, but in its schema', 'drop it'
		FROM pg_depend JOIN ns ON refclassid = 'pg_namespace'::regclass AND refobjid = ns.oid
		WHERE deptype = 'n' AND classid NOT IN ('pg_class'::regclass, 'pg_proc'::regclass)
	UNION ALL SELECT 7, 'table ' || name, format('has a trigger %I, which calls %s of role %I', tgname, p.oid::regprocedure, pg_get_userbyid(proowner)),
			format('DROP TRIGGER %I ON %s', tgname, name)
		FROM rel JOIN pg_trigger t ON tgrelid = rel.oid AND NOT tgisinternal JOIN pg_proc p ON p.oid = tgfoid
		WHERE proowner NOT IN (SELECT oid FROM self) OR pronamespace = 'pg_catalog'::regnamespace
	UNION ALL SELECT 8, 'table ' || name, 'gives ' || coalesce('role ' || quote_ident(r.rolname), 'PUBLIC') || ' the right to create '
				|| CASE a.privilege_type WHEN 'TRIGGER' THEN 'triggers on it' ELSE 'foreign keys to it' END,
			format('REVOKE %s ON %s FROM %s', a.privilege_type, name, coalesce(quote_ident(r.rolname), 'PUBLIC'))
		FROM rel CROSS JOIN LATERAL (SELECT * FROM aclexplode(relacl) UNION SELECT c.* FROM pg_attribute, aclexplode(attacl) c WHERE attrelid = rel.oid) a
			LEFT JOIN pg_roles r ON r.oid = a.grantee
		WHERE a.privilege_type IN ('TRIGGER', 'REFERENCES') AND a.grantee NOT IN (SELECT oid FROM trusted)
	UNION ALL SELECT 9, 'table ' || name, format('has a rule %I', rulename), format('DROP RULE %I ON %s', rulename, name)
		FROM rel JOIN pg_rewrite ON ev_class = rel.oid WHERE relkind = 'r'
	UNION ALL SELECT 10, 'table ' || name, format('has a policy %I', polname), format('DROP POLICY %I ON %s', polname, name)
		FROM rel JOIN pg_policy ON polrelid = rel.oid
	UNION ALL SELECT 11, 'table ' || name, 'has row level security', format('ALTER TABLE %s DISABLE ROW LEVEL SECURITY', name)
		FROM rel WHERE relrowsecurity
	UNION ALL SELECT 12, 'table ' || name, format('is in one inheritance with others: %s inherits from %s', inhrelid::regclass, inhparent::regclass),
			format('ALTER TABLE %s NO INHERIT %s', inhrelid::regclass, inhparent::regclass)
		FROM rel JOIN pg_inherits ON rel.oid IN (inhrelid, inhparent) WHERE relkind = 'r'
	UNION ALL SELECT 13, 'table ' || name, format('has a foreign key of table %s', conrelid::regclass), format('ALTER TABLE %s DROP CONSTRAINT %I', conrelid::regclass, conname)
		FROM rel JOIN pg_constraint ON contype = 'f' AND rel.oid IN (conrelid, confrelid)
	UNION ALL SELECT 14, 'relation ' || name, format('uses %s in %s', pg_describe_object(refclassid, refobjid, 0), pg_describe_object(d.classid, d.objid, objsubid)),
			'drop what uses it'
		FROM part CROSS JOIN LATERAL (SELECT * FROM pg_depend WHERE pg_depend.classid = part.classid AND pg_depend.objid = part.objid OFFSET 0) d
		WHERE refclassid NOT IN ('pg_namespace'::regclass, 'pg_am'::regclass, 'pg_constraint'::regclass)
			AND NOT (refclassid = 'pg_class'::regclass AND refobjid IN (SELECT oid FROM rel))
			AND coalesce((pg_identify_object(refclassid, refobjid, 0)).schema, '') <> 'pg_catalog')
SELECT rank, what, why, fix FROM fault WHERE rank = (SELECT min(rank) FROM fault) ORDER BY what, why LIMIT 50`

const rankOwner = 3 // of the faults: a table or a sequence of somebody else

// Verify refuses a schema cdc_relay that somebody else may have made, or put something into: it is
// asked before anything in it is read or written. A schema that does not exist is in order.
func Verify(ctx context.Context, q source.Querier, trust Trust) error {
	type fault struct {
		Rank           int
		What, Why, Fix string
	}
	faults, err := source.List(ctx, q, "verify schema cdc_relay", pgx.RowToStructByPos[fault], verifySQL, trust.Role, trust.Replication)
	if err != nil || len(faults) == 0 {
		return err
	}
	first := faults[0].What + " " + faults[0].Why
	var fixes, more []string
	for i, f := range faults {
		if i > 0 && !slices.Contains(more, f.What) {
			more = append(more, f.What)
		}
		if !slices.Contains(fixes, f.Fix) {
			fixes = append(fixes, f.Fix)
		}
	}
	fix := strings.Join(fixes, "; ")
	if faults[0].Rank == rankOwner {
		fix = "if the relay made them: " + fix + "; if not, drop them"
	}
	if len(more) > 0 {
		first += " (the same is true of " + strings.Join(more, ", ") + ")"
	}
	return &event.Stop{
		Code: event.ExitOperator, Reason: "schema_foreign",
		What: first + ", so whoever did that could run code as the relay",
		Fix:  "find out who did it; then, as a superuser or as its owner: " + fix,
	}
}
