// Package schema is what the relay needs in the database apart from the slot: the schema cdc_relay
// with its migrations and rights, and the publication. It also checks them, because somebody else
// may have changed them: that the schema is the relay's alone, and that the publication sends the
// outbox tables and has done so without interruption.
package schema

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Migrations returns the steps that make the schema cdc_relay; the first step makes version 1. It
// reads them at the first call. Steps only add what the version before them can ignore (tables,
// columns, sequences, indexes and functions), so that two neighbouring versions of the relay run
// side by side. The earlier version's Verify would refuse anything else.
var Migrations = sync.OnceValue(readMigrations)

// readMigrations reads the files of the migrations in the order of their names.
func readMigrations() (steps []string) {
	files, err := migrations.ReadDir("migrations")
	for _, f := range files {
		var step []byte
		if err == nil {
			step, err = migrations.ReadFile("migrations/" + f.Name())
		}
		steps = append(steps, string(step))
	}
	if err != nil {
		panic(err) // they are in the binary
	}
	return steps
}

const auditVersion = 2 // that of 002_audit.sql

// Bootstrap makes the table that says which migrations the schema has.
const Bootstrap = `CREATE TABLE IF NOT EXISTS cdc_relay.migration (version integer PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now());
COMMENT ON TABLE cdc_relay.migration IS 'Which steps of this schema were applied, and when.';
`

// schemaLock is the advisory lock under which the schema is changed: "cdc_rlay" as a number.
const schemaLock = 0x6364635f726c6179

// Ensure verifies the schema cdc_relay and brings it up to this version. Every start calls it. A
// role that may not do that gets a Stop with the command line of init. A new schema belongs to
// OwnerRole if this role may become OwnerRole, else to this role; a schema that exists stays its
// owner's.
func Ensure(ctx context.Context, pool *pgxpool.Pool, c *source.Config) error {
	is, err := verify(ctx, pool, Trust{})
	if err != nil {
		return err
	}
	if is == asMade {
		if complete, err := isComplete(ctx, pool); err != nil || complete {
			return err
		}
	}
	if is != none {
		if have, err := Version(ctx, pool); err != nil {
			return err
		} else if have >= len(Migrations()) {
			return CheckRights(ctx, pool)
		}
	}
	if !c.Create {
		return initNeededStop(pool, nil)
	}
	s, err := ensureOwner(ctx, pool)
	if err != nil {
		return err
	}
	err = installSchema(ctx, pool, s, Trust{}, func(tx pgx.Tx, now sessionRights) (asOwner bool, roles []string, err error) {
		return s.mayBecomeOwner && (now.schemaOwner == "" || now.schemaOwner == OwnerRole), nil, nil
	})
	if err != nil {
		return err
	}
	return CheckLogged(ctx, pool) // tables of an older version may be unlogged
}

// Install is Ensure for init: role, if it is set, gets the relay's rights, and a schema that exists
// is handed over to OwnerRole. The owner before keeps the relay's rights, because a relay may run
// as that role.
func Install(ctx context.Context, pool *pgxpool.Pool, role string) error {
	trust := Trust{Role: role}
	if err := Verify(ctx, pool, trust); err != nil {
		return err
	}
	s, err := ensureOwner(ctx, pool)
	if err != nil {
		return err
	}
	if own := s.schemaOwner == "" || s.schemaOwner == s.user; !s.mayBecomeOwner && !own {
		return checkComplete(ctx, pool, s, cmp.Or(role, s.user))
	}
	return installSchema(ctx, pool, s, trust, func(tx pgx.Tx, now sessionRights) (asOwner bool, roles []string, err error) {
		var handed bool
		if role != "" {
			roles = append(roles, role)
		}
		own := (now.schemaOwner == s.user || now.schemaOwner == "") && (role == "" || role == s.user)
		switch {
		case !s.mayBecomeOwner && !own:
			return false, nil, ownerNeededStop(now, cmp.Or(role, s.user))
		case !s.mayBecomeOwner:
			return false, roles, nil
		case now.schemaOwner != "" && now.schemaOwner != OwnerRole && !now.ownerSuper:
			roles = append(roles, now.schemaOwner)
		}
		if now.schemaOwner != "" {
			handed, err = handOverToOwner(ctx, tx)
		}
		if source.SQLState(err) == "42501" {
			err = ownerNeededStop(now, cmp.Or(role, s.user))
		}
		if err == nil && handed {
			if _, err = tx.Exec(ctx, "SET LOCAL ROLE "+OwnerRole); err == nil {
				err = restoreAuditFunctions(ctx, tx)
			}
		}
		return true, roles, err
	})
}

// checkComplete is Install by a role that may change nothing in the schema: it reports an error
// unless the schema is of this version, belongs to OwnerRole or a superuser, and gives role its
// rights.
func checkComplete(ctx context.Context, pool *pgxpool.Pool, s sessionRights, role string) error {
	if s.schemaOwner != OwnerRole && !s.ownerSuper { // its owner can forge the audit
		return ownerNeededStop(s, role)
	}
	have, err := Version(ctx, pool)
	if _, refused := errors.AsType[*event.Stop](err); refused || err == nil && have < len(Migrations()) {
		return ownerNeededStop(s, role)
	}
	if err != nil {
		return err
	}
	ok, err := hasRights(ctx, pool, role, true)
	if err != nil {
		return err
	}
	if !ok {
		return ownerNeededStop(s, role)
	}
	return CheckLogged(ctx, pool)
}

// installSchema creates and migrates the schema in one transaction. decide sees the schema as it is
// under the lock, and says whether the transaction runs as OwnerRole, and which roles get the
// relay's rights.
func installSchema(ctx context.Context, pool *pgxpool.Pool, s sessionRights, trust Trust, decide func(pgx.Tx, sessionRights) (asOwner bool, roles []string, err error)) error {
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, int64(schemaLock)); err != nil {
			return err
		}
		now, err := readSessionRights(ctx, tx)
		if err != nil {
			return err
		}
		if err := Verify(ctx, tx, trust); err != nil { // it may have come in the meantime
			return err
		}
		asOwner, roles, err := decide(tx, now)
		if err != nil {
			return err
		}
		create, become := "CREATE SCHEMA cdc_relay", ""
		if asOwner {
			create, become = create+" AUTHORIZATION "+OwnerRole, "SET LOCAL ROLE "+OwnerRole+";\n"
		}
		if now.schemaOwner == "" {
			if _, err := tx.Exec(ctx, create); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(ctx, become+Bootstrap); err != nil {
			return err
		}
		if err := applyMigrations(ctx, tx); err != nil {
			return err
		}
		if asOwner && !s.super {
			roles = append(roles, s.user)
		}
		for _, role := range roles {
			owns := !asOwner && role == cmp.Or(now.schemaOwner, s.user)
			for _, sql := range GrantSQL(role, owns) {
				if _, err := tx.Exec(ctx, sql); err != nil {
					return fmt.Errorf("%s: %w", sql, err)
				}
			}
		}
		return nil
	})
	var stop *event.Stop
	switch {
	case errors.As(err, &stop):
		return stop
	case source.SQLState(err) == "42501":
		return initNeededStop(pool, err)
	case err != nil:
		return fmt.Errorf("migrate schema cdc_relay: %w", err)
	}
	return nil
}

// MayCreate returns why Ensure cannot create a schema that does not exist; nil means that it can.
func MayCreate(ctx context.Context, pool *pgxpool.Pool) error {
	s, err := readSessionRights(ctx, pool)
	if err == nil && !s.createHere {
		return initNeededStop(pool, errors.New("no right to CREATE in the database"))
	}
	return err
}

// MayMigrate reports whether Ensure can bring a schema of an older version up to this one.
func MayMigrate(ctx context.Context, pool *pgxpool.Pool) (bool, error) {
	s, err := readSessionRights(ctx, pool)
	return s.super || s.schemaOwner == s.user || s.schemaOwner == OwnerRole && s.mayBecomeOwner, err
}

// applyMigrations applies the steps that the schema does not have yet.
func applyMigrations(ctx context.Context, tx pgx.Tx) error {
	var have int
	if err := tx.QueryRow(ctx, `SELECT coalesce(max(version), 0) FROM cdc_relay.migration`).Scan(&have); err != nil {
		return err
	}
	// an index of a large retry table takes longer than a statement may
	if _, err := tx.Exec(ctx, `SET LOCAL statement_timeout = 0`); err != nil {
		return err
	}
	for version := have + 1; version <= len(Migrations()); version++ {
		if _, err := tx.Exec(ctx, Migrations()[version-1]); err != nil {
			return fmt.Errorf("migration %d: %w", version, err)
		}
		if _, err := tx.Exec(ctx, `INSERT INTO cdc_relay.migration (version) VALUES ($1)`, version); err != nil {
			return err
		}
	}
	return nil
}

// Version is the newest step applied; 0 means that the schema does not exist. It trusts the schema,
// so Verify must come first.
func Version(ctx context.Context, pool *pgxpool.Pool) (int, error) {
	var version int
	err := source.Ask(ctx, pool, "read cdc_relay.migration", `SELECT coalesce(max(version), 0) FROM cdc_relay.migration`).Scan(&version)
	switch source.SQLState(err) {
	case "42P01", "3F000": // no such table, no such schema
		return 0, nil
	case "42501":
		return 0, initNeededStop(pool, err)
	}
	if err != nil {
		return 0, err
	}
	return version, nil
}

// GrantSQL gives a role what it needs in the schema to relay, and takes back what it must not have,
// whoever gave it: to the audit it may only append. From the owner of the schema nothing is taken,
// because its next migration and prune_audit would fail.
func GrantSQL(role string, owns bool) []string {
	r := source.QuoteName(role)
	list := []string{
		"GRANT USAGE ON SCHEMA cdc_relay TO " + r,
		"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA cdc_relay TO " + r,
		"GRANT TRUNCATE ON cdc_relay.retry TO " + r, // without it the table keeps its space
		"GRANT USAGE ON ALL SEQUENCES IN SCHEMA cdc_relay TO " + r,
		"GRANT EXECUTE ON FUNCTION cdc_relay.cancel_request(bigint, text, text), cdc_relay.cancel_job(bigint, text, text) TO " + r,
	}
	if owns {
		return list
	}
	return append(list,
		"REVOKE INSERT, UPDATE, DELETE, TRUNCATE ON cdc_relay.audit FROM "+r,
		// the order and the time are the database's
		"GRANT INSERT ("+strings.Join(auditColumns, ", ")+") ON cdc_relay.audit TO "+r,
		"REVOKE INSERT, UPDATE, DELETE, TRUNCATE ON cdc_relay.migration FROM "+r)
}

// relayTables and relaySequences are what the relay's role may write, relayFunctions what it may
// call; each migration adds its own. To the audit it only appends.
var (
	relayTables    = []string{"slots", "progress", "retry", "dead_letter", "request", "bulk", "gap", "sent"}
	relaySequences = []string{"row_number", "job"}
	auditColumns   = []string{"slot", "system_id", "who", "action", "n", "incarnation", "commit_lsn", "idx", "why", "result", "request"}
	relayFunctions = []string{"cancel_request(bigint,text,text)", "cancel_job(bigint,text,text)"}
)

// pruneFunction shortens the audit, which only the owner of the schema may do.
const pruneFunction = "prune_audit(interval)"

// CheckRights checks the rights that every statement of the relay and its commands needs, so that a
// missing GRANT is reported at the start, and not by the first statement that lacks it. It also
// checks that no table is unlogged.
func CheckRights(ctx context.Context, pool *pgxpool.Pool) error {
	ok, err := hasRights(ctx, pool, "", false)
	if err != nil {
		return err
	}
	if !ok {
		return initNeededStop(pool, nil)
	}
	return CheckLogged(ctx, pool)
}

// hasRights reports whether role has the rights of CheckRights; "" stands for the current role. all
// asks for everything that GrantSQL gives. Without all, TRUNCATE is not needed: without it only
// space is kept.
func hasRights(ctx context.Context, pool *pgxpool.Pool, role string, all bool) (ok bool, err error) {
	err = source.Ask(ctx, pool, "read rights on schema cdc_relay", rightsSQL, rightsArguments(role, all)...).Scan(&ok)
	return ok, err
}

// isComplete reports, in one statement, whether the schema is of this version or a newer one, and
// the current role has the rights of CheckRights. If it returns false, Version and CheckRights tell
// why.
func isComplete(ctx context.Context, pool *pgxpool.Pool) (yes bool, err error) {
	err = source.Ask(ctx, pool, "read cdc_relay.migration", `SELECT coalesce((SELECT max(version) FROM cdc_relay.migration) >= $7, false) AND (`+rightsSQL+`)`,
		append(rightsArguments("", false), len(Migrations()))...).Scan(&yes)
	if source.SQLState(err) != "" { // a table is missing, or may not be read
		return false, nil
	}
	return yes, err
}

// rightsSQL is the statement of hasRights, for the arguments of rightsArguments.
const rightsSQL = `SELECT (SELECT bool_and(has_table_privilege(w.who, 'cdc_relay.' || t, r))
			FROM unnest($1::text[]) t, unnest('{SELECT,INSERT,UPDATE,DELETE}'::text[]) r)
		AND (NOT $6 OR has_table_privilege(w.who, 'cdc_relay.retry', 'TRUNCATE'))
		AND has_schema_privilege(w.who, 'cdc_relay', 'USAGE')
		AND has_table_privilege(w.who, 'cdc_relay.audit', 'SELECT')
		AND (SELECT bool_and(has_column_privilege(w.who, 'cdc_relay.audit', c, 'INSERT')) FROM unnest($4::text[]) c)
		AND (SELECT bool_and(has_sequence_privilege(w.who, 'cdc_relay.' || s, 'USAGE')) FROM unnest($2::text[]) s)
		AND (SELECT bool_and(coalesce(has_function_privilege(w.who, to_regprocedure('cdc_relay.' || f), 'EXECUTE'), false)) FROM unnest($3::text[]) f)
		FROM (SELECT coalesce(nullif($5::text, ''), current_user)::name) w (who)`

// rightsArguments are the first six arguments of rightsSQL.
func rightsArguments(role string, all bool) []any {
	return []any{relayTables, relaySequences, relayFunctions, auditColumns, role, all}
}

// CheckLogged refuses unlogged tables, which a crash of the server empties: the events in them
// count as settled, and the slot has moved past them.
func CheckLogged(ctx context.Context, q source.Querier) error {
	var unlogged []string
	err := source.Ask(ctx, q, "read pg_class", `SELECT array(SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = 'cdc_relay' AND c.relkind = 'r' AND c.relpersistence <> 'p' ORDER BY 1)`).Scan(&unlogged)
	if err != nil {
		return err
	}
	if len(unlogged) == 0 {
		return nil
	}
	var fixes []string
	for _, table := range unlogged {
		fixes = append(fixes, "ALTER TABLE cdc_relay."+source.QuoteName(table)+" SET LOGGED")
	}
	return &event.Stop{
		Code: event.ExitOperator, Reason: "schema",
		What: fmt.Sprintf("tables of schema cdc_relay are UNLOGGED (%s): a crash of PostgreSQL empties them, and the events in them are lost", strings.Join(unlogged, ", ")),
		Fix:  strings.Join(fixes, "; ") + "; then start the relay again",
	}
}

// initNeededStop is the Stop for a schema that only init, run by another role, can make usable.
func initNeededStop(pool *pgxpool.Pool, cause error) error {
	return &event.Stop{
		Code: event.ExitFailure, Reason: "schema",
		What: "schema cdc_relay is missing, older than this version, or not accessible to this role",
		Fix:  source.InitHint(pool.Config().ConnConfig.User),
		Err:  cause,
	}
}

// MisfitStop returns a Stop for an error about a table of ours, or about any column, that does not
// exist: the schema is that of another version of the relay, or somebody changed it. nil means that
// err is about something else.
func MisfitStop(err error) error {
	const noColumn, noTable = "42703", "42P01"
	code := source.SQLState(err)
	if code != noColumn && (code != noTable || !strings.Contains(err.Error(), "cdc_relay.")) {
		return nil
	}
	return &event.Stop{
		Code: event.ExitFailure, Reason: "schema", Err: err,
		What: "schema cdc_relay does not fit this version of the relay, or was removed under it",
		Fix:  "run the version that created it; or let that version deliver everything, then `cdc-relay teardown --yes` and start this one; if it was removed, start the relay again: it says what is missing",
	}
}
