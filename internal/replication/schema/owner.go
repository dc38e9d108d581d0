// The role that owns the schema cdc_relay: how it comes to exist, and how what exists is handed to
// it. Whoever owns the schema can change its tables and functions, and forge the audit. So the
// owner is a role that cannot log in: only a session that may SET ROLE to it, such as that of init,
// acts as the owner, and the relay's own role need not be able to.

package schema

import (
	"context"
	"fmt"
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

// readSessionRights reads what this session may do, from the catalogue.
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

// grantOwnerSQL lets the role `to` become OwnerRole by SET ROLE. From PostgreSQL 16 on, the role
// has none of the owner's rights before it does that.
func (s sessionRights) grantOwnerSQL(to string) string {
	sql := "GRANT " + OwnerRole + " TO " + to
	if s.hasGrantSet {
		sql += " WITH INHERIT FALSE, SET TRUE"
	}
	return sql
}

// ensureOwner creates OwnerRole and grants it to this session's role, as far as the session may do
// that; mayBecomeOwner of the answer says whether it can SET ROLE to OwnerRole. The role is the
// whole cluster's, so the init of another database may do the same at the same time. Nothing here
// is in a transaction, because that other init would have to wait for its end.
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

// createOwnerSQL makes OwnerRole.
const createOwnerSQL = "CREATE ROLE " + OwnerRole + " NOLOGIN"

// PrintedOwner is the SQL of ensureOwner, for operators who run it by other means.
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

// BecomeOwner makes the rest of a transaction run as the owner of the schema, if the owner is
// OwnerRole and this session may become it. SET LOCAL ROLE NONE ends that.
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

// ownerNeededStop is why init does not create or change the schema: a new schema would belong to a
// role that is neither OwnerRole nor the relay's, or the schema belongs to a role that this session
// may not become. It never advises to make role, which is the relay's, a member of OwnerRole,
// because the relay could then change the audit.
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

// handOverToOwner gives what exists in the schema to OwnerRole; handed is true if something
// belonged to another role before. REASSIGN OWNED would also hand over what the former owner has
// elsewhere. handOverToOwner waits for statements that use the tables, for lock_timeout at most.
// OwnerRole gets CREATE on the schema first and the schema last: a role that is no superuser may
// give a table only to a role with CREATE, and only while it owns the schema.
//
// A function that runs with its owner's rights would run with OwnerRole's from now on, whoever
// wrote it. So a function that is not the relay's is refused, and the relay's are made again by
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

// restoreAuditFunctions makes, as OwnerRole, the functions and defaults again by which the audit
// says who did what, because the former owner could have changed them. A schema older than
// auditVersion does not have them yet.
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
