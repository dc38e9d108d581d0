// Tests of who may forge the audit: rights that somebody was given beyond what the relay and
// deploy/sql/03-operator.sql need.

package check

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// forgersSQL lists, per role and object, the rights by which the audit or a request can be forged,
// with the REVOKE. Who may become the owner is left out, since nothing binds him, and so are roles
// that the relay's is a member of, where the relay needs the right. A column's right counts unless
// an operator may give that column. TRIGGER is the line schema's.
const forgersSQL = `WITH rights AS (
		SELECT c.oid, c.relname::text AS object, NULL::text AS col, a.grantee, a.privilege_type AS priv, c.relowner AS owner
		FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) a WHERE c.oid = ANY ('{cdc_relay.audit,cdc_relay.request,cdc_relay.bulk}'::regclass[])
		UNION ALL SELECT c.oid, c.relname, t.attname, a.grantee, a.privilege_type, c.relowner
		FROM pg_class c JOIN pg_attribute t ON t.attrelid = c.oid CROSS JOIN LATERAL aclexplode(t.attacl) a
		WHERE c.oid = ANY ('{cdc_relay.audit,cdc_relay.request,cdc_relay.bulk}'::regclass[])
		UNION ALL SELECT p.oid, 'FUNCTION', NULL, a.grantee, a.privilege_type, p.proowner
		FROM pg_proc p CROSS JOIN LATERAL aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a WHERE p.oid = 'cdc_relay.prune_audit(interval)'::regprocedure),
	forging AS (SELECT r.*, g.oid IS NOT NULL AND pg_has_role(session_user, g.oid, 'MEMBER') AS relays FROM rights r LEFT JOIN pg_roles g ON g.oid = r.grantee
		WHERE NOT coalesce(pg_has_role(g.oid, r.owner, 'MEMBER'), false) AND r.priv IN ('INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'EXECUTE')
		AND NOT (r.priv = 'INSERT' AND r.col IS NOT NULL AND r.object <> 'audit'
			AND r.col IN ('slot', 'system_id', 'kind', 'n', 'route_name', 'routing_key', 'reason', 'filter', 'rate', 'matched', 'in_dead_letters'))),
	named AS (SELECT object, grantee, priv || coalesce(' (' || string_agg(quote_ident(col), ', ' ORDER BY col) || ')', '') AS priv FROM forging
		WHERE NOT relays OR object = 'audit' AND priv <> 'INSERT' OR object = 'FUNCTION'
		GROUP BY object, grantee, priv, col IS NULL)
	SELECT CASE WHEN grantee = 0 THEN 'PUBLIC' ELSE pg_get_userbyid(grantee)::text END,
		string_agg(priv, ', ' ORDER BY priv) || ' ON ' || CASE object WHEN 'FUNCTION' THEN 'FUNCTION cdc_relay.prune_audit(interval)' ELSE 'cdc_relay.' || object END
	FROM named GROUP BY object, grantee
	UNION ALL SELECT pg_get_userbyid(m.member), 'pg_write_all_data' FROM pg_auth_members m JOIN pg_roles r ON r.oid = m.member
	WHERE m.roleid = 'pg_write_all_data'::regrole AND NOT r.rolsuper
	ORDER BY 1, 2`

// audit warns about roles that may write into the audit, or change what it is written from, and
// about a relay that could: what it may not, nobody who has its password may.
func (c *checker) audit(ctx context.Context) {
	const name = "audit"
	var owner string
	var owns bool
	err := c.pool.QueryRow(ctx, `SELECT pg_get_userbyid(relowner), pg_has_role(session_user, relowner, 'MEMBER') FROM pg_class WHERE oid = 'cdc_relay.audit'::regclass`).
		Scan(&owner, &owns)
	var who, fixes []string
	if err == nil {
		var rows pgx.Rows
		if rows, err = c.pool.Query(ctx, forgersSQL); err == nil {
			var role, rights string
			_, err = pgx.ForEachRow(rows, []any{&role, &rights}, func() error {
				who = append(who, fmt.Sprintf("%s may %s", role, rights))
				if role != "PUBLIC" {
					role = source.QuoteName(role)
				}
				fixes = append(fixes, fmt.Sprintf("REVOKE %s FROM %s", rights, role))
				return nil
			})
		}
	}
	switch {
	case c.warnUnchecked(name, err):
	case owns: // first: asked by an owner, the relay's role would be one of those below
		c.warn(name, fmt.Sprintf("role %q may do what the owner of cdc_relay (%s) may: the audit is only as safe as its password", c.user, owner),
			"use a role that owns nothing here: "+source.InitHint("ROLE"))
	case len(who) > 0:
		c.warn(name, "unless they are roles of other relays, these may forge or remove what operators did: "+strings.Join(who, "; "),
			strings.Join(fixes, "; "))
	default:
		c.add(name, fmt.Sprintf("the relay appends, operators ask; only %s may change it", owner), nil)
	}
}
