// The check that the schema cdc_relay is the relay's alone. Whatever somebody else put into the
// schema (a trigger, a function, a policy) would run with the relay's rights, so the check comes
// before anything in the schema is read or written.

package schema

import (
	"context"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// Trust adds roles to those whose objects in the schema cdc_relay are accepted anyway: superusers,
// OwnerRole and the current role.
type Trust struct {
	Role        string // a further role; "" adds none
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

// rankOwner is the rank of the fault that a table or another relation belongs to somebody else.
const rankOwner = 3 // of the faults: a table or a sequence of somebody else

// asMadeSQL returns whether the schema is as the relay makes it. If it returns true, verifySQL
// finds nothing, and no table is unlogged. It returns no row if there is no schema. It looks into a
// few indexes, where verifySQL costs a new session some 40 ms, most of it for the plan. false may
// have a harmless reason, so verifySQL is asked then.
//
// part is all that hangs on the schema by pg_depend, where the server notes what each object needs.
// Whatever somebody adds to the schema, or to a table in it, is in part: a trigger, a rule, a
// policy, statistics, a foreign key, a view, a type, or a table that hangs on another one. The
// relay makes none of these kinds. The other kinds, such as a default, an index or the constraint
// of a table that is not the relay's, may only need what is in part: so they call nothing, and are
// the relay's. (What came with PostgreSQL is not in pg_depend. A function needs more: who owns it,
// and with whose rights it runs, is looked at instead.) Everything in part has one owner, who is
// trusted, and gives nobody else the right to add anything. TestStrangeSchemaIsNotAsMade compares
// it with verifySQL.
const asMadeSQL = `
WITH RECURSIVE ns AS (SELECT oid, nspowner, nspacl FROM pg_namespace WHERE nspname = 'cdc_relay'),
part (classid, objid, above) AS (SELECT 'pg_namespace'::regclass::oid, oid, 0::oid FROM ns
	UNION SELECT d.classid, d.objid, part.classid FROM part CROSS JOIN LATERAL (
		SELECT k.classid, k.objid FROM pg_depend k WHERE k.refclassid = part.classid AND k.refobjid = part.objid OFFSET 0) d)
SELECT EXISTS (SELECT FROM pg_roles WHERE oid = nspowner AND (rolsuper OR rolname IN (session_user, current_user) OR rolname = '` + OwnerRole + `' AND NOT rolcanlogin))
	AND NOT EXISTS (SELECT FROM aclexplode(nspacl) WHERE privilege_type = 'CREATE' AND grantee <> nspowner)
	AND NOT EXISTS (SELECT FROM part WHERE (CASE classid
		WHEN 'pg_namespace'::regclass THEN true
		WHEN 'pg_proc'::regclass THEN (SELECT proowner = nspowner AND prosecdef FROM pg_proc WHERE oid = objid)
		WHEN 'pg_class'::regclass THEN (SELECT relowner = nspowner AND relkind IN ('r', 'S', 'i', 't') AND relpersistence = 'p' AND NOT relrowsecurity
				AND (relkind <> 'r' OR above = 'pg_namespace'::regclass)
				AND NOT EXISTS (SELECT FROM aclexplode(relacl) WHERE privilege_type IN ('TRIGGER', 'REFERENCES') AND grantee <> nspowner)
				AND (relkind <> 'r' OR NOT EXISTS (SELECT FROM pg_attribute, aclexplode(attacl) WHERE attrelid = objid AND privilege_type = 'REFERENCES' AND grantee <> nspowner))
			FROM pg_class WHERE oid = objid)
		WHEN 'pg_type'::regclass THEN above <> 'pg_namespace'::regclass
		WHEN 'pg_constraint'::regclass THEN (SELECT contype <> 'f' FROM pg_constraint WHERE oid = objid)
		ELSE classid = 'pg_attrdef'::regclass END) IS NOT TRUE)
	AND NOT EXISTS (SELECT FROM part CROSS JOIN LATERAL (
			SELECT k.refclassid, k.refobjid FROM pg_depend k WHERE k.classid = part.classid AND k.objid = part.objid OFFSET 0) d
		WHERE classid <> 'pg_proc'::regclass AND (refclassid = 'pg_proc'::regclass OR refclassid = 'pg_type'::regclass AND classid <> 'pg_type'::regclass
			OR (refclassid, refobjid) NOT IN (SELECT classid, objid FROM part)))
FROM ns`

// found is what verify has found.
type found uint8

const (
	none found = iota // there is no schema
	// asMade means that asMadeSQL returned true: nothing is strange, and no table is unlogged.
	asMade
	// nothingStrange means that asMadeSQL returned false and verifySQL found nothing: tables may be
	// unlogged.
	nothingStrange
)

// Verify refuses a schema cdc_relay that somebody else may have made, or put something into: it is
// asked before anything in it is read or written. A schema that does not exist is in order.
func Verify(ctx context.Context, q source.Querier, trust Trust) error {
	_, err := verify(ctx, q, trust)
	return err
}

// VerifyLogged is Verify and CheckLogged. After asMade it need not call CheckLogged: asMadeSQL has
// looked at the persistence of each table, too.
func VerifyLogged(ctx context.Context, q source.Querier) error {
	is, err := verify(ctx, q, Trust{})
	if err == nil && is == nothingStrange {
		err = CheckLogged(ctx, q)
	}
	return err
}

// verify is Verify, and also returns what it has found; that counts only without an error. It first
// asks asMadeSQL, which is fast, and verifySQL only if that returns false.
func verify(ctx context.Context, q source.Querier, trust Trust) (found, error) {
	var yes bool
	err := source.Ask(ctx, q, "verify schema cdc_relay", asMadeSQL).Scan(&yes)
	switch {
	case source.IsNoRows(err):
		return none, nil
	case err != nil:
		return none, err
	case yes:
		return asMade, nil
	}
	return nothingStrange, findStrange(ctx, q, trust)
}

// findStrange is Verify by verifySQL alone. Its error names all faults of the kind that is found
// first.
func findStrange(ctx context.Context, q source.Querier, trust Trust) error {
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
