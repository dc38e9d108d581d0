// The role that owns the schema cdc_relay: how it comes to exist, and how what exists is handed to
// it. A role that nobody can log in as has no sessions in which somebody could change its objects.

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

// standing is what this session may do about OwnerRole and the schema.
type standing struct {
	user                     string
	super, createRole, newer bool   // newer: PostgreSQL 16, with GRANT ... WITH SET
	createHere               bool   // CREATE on the database
	exists, login, may       bool   // of OwnerRole; may: this session may SET ROLE to it
	owner                    string // of the schema; "": there is none
	ownerSuper               bool
}

func readStanding(ctx context.Context, q source.Querier) (s standing, err error) {
	err = q.QueryRow(ctx, `SELECT me.rolname::text, me.rolsuper, me.rolcreaterole, v.newer, has_database_privilege(me.oid, current_database(), 'CREATE'),
			o.oid IS NOT NULL, coalesce(o.rolcanlogin, false), coalesce(pg_has_role(me.oid, o.oid, CASE WHEN v.newer THEN 'SET' ELSE 'MEMBER' END), false),
			coalesce(n.rolname::text, ''), coalesce(n.rolsuper, false)
		FROM pg_roles me CROSS JOIN (SELECT current_setting('server_version_num')::int >= 160000 AS newer) v
		LEFT JOIN pg_roles o ON o.rolname = $1
		LEFT JOIN (SELECT r.rolname, r.rolsuper FROM pg_namespace JOIN pg_roles r ON r.oid = nspowner WHERE nspname = 'cdc_relay') n ON true
		WHERE me.rolname = session_user`, OwnerRole).
		Scan(&s.user, &s.super, &s.createRole, &s.newer, &s.createHere, &s.exists, &s.login, &s.may, &s.owner, &s.ownerSuper)
	if err != nil {
		return s, fmt.Errorf("read the rights of role %s: %w", OwnerRole, err)
	}
	return s, nil
}

// grantOwnerSQL lets a session become OwnerRole. From PostgreSQL 16 on it does not have the owner's
// rights until it does.
func (s standing) grantOwnerSQL(to string) string {
	sql := "GRANT " + OwnerRole + " TO " + to
	if s.newer {
		sql += " WITH INHERIT FALSE, SET TRUE"
	}
	return sql
}

// become creates OwnerRole and makes sure that this session may SET ROLE to it, if it may do that;
// may of the answer says whether it can. Another database's init may do the same at the same time:
// the role is the whole cluster's. It is created outside of any transaction, for which such an init
// would have to wait.
func become(ctx context.Context, pool *pgxpool.Pool) (standing, error) {
	s, err := readStanding(ctx, pool)
	if err != nil {
		return s, err
	}
	for _, step := range []struct {
		needed func() bool
		sql    func() string
	}{
		{func() bool { return !s.exists && (s.super || s.createRole && s.createHere) }, func() string { return createOwnerSQL }},
		{func() bool { return s.exists && !s.login && !s.may }, func() string { return s.grantOwnerSQL("SESSION_USER") }},
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
		if s, err = readStanding(ctx, pool); err != nil {
			return s, err
		}
	}
	if s.login {
		return s, &event.Stop{
			Code: event.ExitOperator, Reason: "schema_foreign",
			What: "role " + OwnerRole + ", which is to own the schema cdc_relay, may log in", Fix: "ALTER ROLE " + OwnerRole + " NOLOGIN",
		}
	}
	return s, nil
}

const createOwnerSQL = "CREATE ROLE " + OwnerRole + " NOLOGIN"

// PrintedOwner is become for those who run SQL by other means.
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
	s, err := readStanding(ctx, tx)
	if err != nil || !s.may || s.owner != OwnerRole {
		return err
	}
	if _, err := tx.Exec(ctx, "SET LOCAL ROLE "+OwnerRole); err != nil {
		return fmt.Errorf("set role: %w", err)
	}
	return nil
}

// needOwner is why init does not create the schema: it would belong to a role that is neither
// OwnerRole nor the relay's.
func needOwner(s standing, role string) error {
	fix := s.grantOwnerSQL(source.QuoteName(s.user))
	if !s.exists {
		fix = createOwnerSQL + "; " + fix
	}
	what := fmt.Sprintf("role %q may not create role %s, which is to own the schema cdc_relay, or may not become it", s.user, OwnerRole)
	if s.owner != "" {
		what = fmt.Sprintf("the schema cdc_relay belongs to role %q, and role %q may not hand it over to %s", s.owner, s.user, OwnerRole)
	}
	return &event.Stop{
		Code: event.ExitFailure, Reason: "rights", What: what,
		Fix: fmt.Sprintf("as a superuser: %s; then run init again, or run it with --url of a superuser, or of a role with CREATEROLE that owns what is there, and --role %s", fix, source.QuoteName(role)),
	}
}

// handOver gives what exists in the schema to OwnerRole, and only what is not its own: REASSIGN
// OWNED would take along what the role has elsewhere. It waits for statements that use the tables,
// lock_timeout at most. The schema comes last, and OwnerRole may CREATE in it before: who is no
// superuser may give a table only to a role that may, and while the schema is still its own.
// handed: something was not its own.
//
// A function that runs with its owner's rights would run with OwnerRole's from now on, whoever
// wrote it: one that is not the relay's is refused, and the relay's are made again by restore.
func handOver(ctx context.Context, tx pgx.Tx) (handed bool, err error) {
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
	rows, err := tx.Query(ctx, `WITH ns AS (SELECT oid, nspowner FROM pg_namespace WHERE nspname = 'cdc_relay'), o AS (SELECT oid FROM pg_roles WHERE rolname = $1::text)
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
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
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

// restore makes again, as OwnerRole, the functions and defaults by which the audit says who did
// what: the owner before could change them. Those of a step that is still to come are not there.
func restore(ctx context.Context, tx pgx.Tx) error {
	var have int
	if err := tx.QueryRow(ctx, `SELECT coalesce(max(version), 0) FROM cdc_relay.migration`).Scan(&have); err != nil || have < auditVersion {
		return err
	}
	if _, err := tx.Exec(ctx, strings.ReplaceAll(auditSQL, "CREATE FUNCTION", "CREATE OR REPLACE FUNCTION")); err != nil {
		return fmt.Errorf("make the functions of cdc_relay again: %w", err)
	}
	return nil
}
