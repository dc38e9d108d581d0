// Tests of the outbox tables, of messages, and of the retry table's rows.

package check

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// checkMessages warns of a database in another encoding than UTF-8, since PostgreSQL does not
// convert messages, and while every login of the database may emit messages, as is PostgreSQL's
// default: an event of a table needs INSERT on the table, one that is a message needs no other
// right.
func (c *checker) checkMessages(ctx context.Context) {
	const name = "messages"
	if c.cfg.Messages.Prefix == "" {
		return
	}
	var encoding, all string
	var open bool
	err := c.pool.QueryRow(ctx, `SELECT current_setting('server_encoding'), bool_or(has_function_privilege('public', oid, 'EXECUTE')),
			string_agg(oid::regprocedure::text, ', ' ORDER BY oid)
		FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace AND proname = 'pg_logical_emit_message'`).Scan(&encoding, &open, &all)
	detail := fmt.Sprintf("prefix %q, database encoding %s", c.cfg.Messages.Prefix, encoding)
	if err == nil && encoding != "UTF8" {
		c.addWarning(name, detail+": PostgreSQL does not convert messages, and one that is not UTF-8 is not relayed",
			fmt.Sprintf("SELECT pg_logical_emit_message(true, %s, convert_to(..., 'UTF8'))", source.QuoteText(c.cfg.Messages.Prefix)))
	}
	if err == nil && open {
		c.addWarning(name, detail+": PUBLIC may execute pg_logical_emit_message, so every login of this database can forge events",
			fmt.Sprintf("as a superuser, in this database: REVOKE EXECUTE ON FUNCTION %[1]s FROM PUBLIC; GRANT EXECUTE ON FUNCTION %[1]s TO <role that writes events>", all))
	}
	if err != nil || encoding == "UTF8" && !open {
		c.addResult(name, detail, err)
	}
}

// describeTables describes the tables as the relay will read them: OIDs, and the mapped columns
// with their types.
func (c *checker) describeTables(ctx context.Context, tables []decode.Table) string {
	texts := make([]string, len(tables))
	for i, t := range tables {
		m := t.Mapping
		var names []string
		for _, part := range []decode.Names{m.ID, m.Aggregate, m.Key, m.Type, m.Payload, m.Timestamp, m.Traceparent, m.Headers} {
			names = append(names, part.Any...)
		}
		var columns string
		err := c.pool.QueryRow(ctx, `SELECT coalesce(string_agg(attname || ' ' || format_type(atttypid, atttypmod), ', ' ORDER BY attnum), '') FROM pg_attribute
			WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped AND attname = ANY ($2)`, t.OID, append(names, c.cfg.Columns...)).Scan(&columns)
		if err != nil {
			columns = "cannot read its columns: " + source.OneLine(err).Error()
		}
		texts[i] = fmt.Sprintf("%s (OID %d: %s)", t, t.OID, columns)
	}
	return strings.Join(texts, ", ")
}

// checkReadable checks whether the tables can be read. Without that no slot is created; later only
// `events show` needs it, and the replay of a row over source.max_event_bytes.
func (c *checker) checkReadable(ctx context.Context, created bool) bool {
	const name = "rights"
	err := slot.CheckReadable(ctx, c.pool, c.cfg)
	var stop *event.Stop
	if created && errors.As(err, &stop) {
		if strings.HasPrefix(stop.What, "row level") {
			err = nil // it was for the moment of creation
		} else {
			c.addWarning(name, fmt.Sprintf("role %q may not read the outbox: `events show` does not find what was delivered, and a row over source.max_event_bytes is not replayed", c.user), stop.Fix)
			return false
		}
	}
	return c.addResult(name, "this role may do what the relay does", err)
}

// checkRetryTable reports rows of another system: they are not sent. Only an operator knows whether
// this server goes on in the place of that system, and nobody else will send them, or is a copy of
// it.
func (c *checker) checkRetryTable(ctx context.Context, systemID string) {
	rows, err := c.pool.Query(ctx, `SELECT system_id, count(*) FILTER (WHERE deferred) || ' deferred, ' || count(*) FILTER (WHERE NOT deferred) || ' dead letters', count(*), max(n)
		FROM (SELECT system_id, true AS deferred, n FROM cdc_relay.retry WHERE slot = $1
			UNION ALL SELECT system_id, false, n FROM cdc_relay.dead_letter WHERE slot = $1 AND state = 'open') r
		WHERE system_id <> $2 GROUP BY system_id ORDER BY system_id`, c.cfg.Slot, systemID)
	var foreign, moves []string
	var other, many string
	var count, last int64
	if err == nil {
		_, err = pgx.ForEachRow(rows, []any{&other, &many, &count, &last}, func() error {
			foreign = append(foreign, fmt.Sprintf("system %s (%s)", other, many))
			moves = append(moves, "cdc-relay accept "+c.found.SystemID(other, count, last)+" --same-data")
			return nil
		})
	}
	switch {
	case err != nil:
		c.addResult("deferred events", "", fmt.Errorf("read cdc_relay.retry: %w", err))
	case len(foreign) == 0:
		c.addResult("deferred events", "all of this system", nil)
	default:
		c.addWarning("deferred events", "rows of another system are not sent: "+strings.Join(foreign, ", "),
			"list them with `cdc-relay deferred list` and `cdc-relay dead-letters list`; if this database is a copy and the other server still runs, leave them: they are sent there; "+
				"if this server has taken its place (pg_upgrade, restore), this has them sent before what is new of their keys (a relay that leads ends with exit 1 and must be started again): "+
				strings.Join(moves, "; "))
	}
}

// checkReclaim looks for the one right without which everything works but the return of disk space.
func (c *checker) checkReclaim(ctx context.Context) {
	var may bool
	err := c.pool.QueryRow(ctx, `SELECT has_table_privilege('cdc_relay.retry', 'TRUNCATE')`).Scan(&may)
	switch {
	case err != nil || may:
		c.addResult("retry table", "gives its space back once it is empty", err)
	default:
		c.addWarning("retry table", "this role may not truncate cdc_relay.retry: once no event is deferred, the table keeps its space", "GRANT TRUNCATE ON cdc_relay.retry TO "+source.QuoteName(c.user))
	}
}

// checkUnheld names the other slots of relays in which something waits for nobody.
func (c *checker) checkUnheld(ctx context.Context) {
	const name = "unheld slot"
	list, err := slot.ReadUnheld(ctx, c.pool, c.cfg.Slot)
	c.warnUnchecked(name, err)
	for _, u := range list {
		c.addWarning(name, fmt.Sprintf("nobody holds slot %s: %s", u.Name, u.Waits()), u.Fix())
	}
}

// checkLargeRows adds what a row may cost in memory.
func (c *checker) checkLargeRows(context.Context) {
	const name = "max_event_bytes"
	if c.cfg.MaxEventBytes == 0 {
		c.addResult(name, "not set: a row takes about three times its size of the relay's memory, and PostgreSQL sends rows of up to 1 GB", nil)
		return
	}
	c.addResult(name, "a row of more than "+source.BytesText(uint64(c.cfg.MaxEventBytes))+" becomes a dead letter, and is not held in memory", nil)
}

// checkGuard tests the limits of the disk guard against the server's, and adds how much it may
// still defer.
func (c *checker) checkGuard(ctx context.Context) {
	const name = "disk guard"
	if !c.cfg.Guard.IsSet() {
		return
	}
	if err := source.CheckGuard(ctx, c.pool, c.cfg.Guard); err != nil {
		c.addResult(name, "", err)
		return
	}
	left, err := c.guardBytesLeft(ctx)
	if !c.warnUnchecked(name, err) {
		c.addResult(name, "its limits fit the server's"+left, nil)
	}
}

// guardBytesLeft is how much the guard may still defer, for people; "": all, as there are no tables
// yet.
func (c *checker) guardBytesLeft(ctx context.Context) (string, error) {
	var exists bool
	if err := c.pool.QueryRow(ctx, "SELECT to_regclass('cdc_relay.dead_letter') IS NOT NULL").Scan(&exists); err != nil || !exists {
		return "", err
	}
	disk, err := slot.ReadDisk(ctx, c.pool, c.cfg.Slot, c.cfg.Guard)
	used := disk.Own
	if err == nil && used >= c.cfg.Guard.MaxBytes/2 {
		var rows int64
		rows, err = slot.ReadRows(ctx, c.pool, c.cfg.Guard)
		used = min(used, rows)
	}
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("; %s of guard.max_bytes is left", source.BytesText(uint64(max(0, c.cfg.Guard.MaxBytes-used)))), nil
}

// forgersSQL lists, per role and object, the rights by which the audit or a request can be forged:
// more than the relay and deploy/sql/03-operator.sql need. Roles that may become the owner are left
// out, since nothing binds them, and so are roles that the relay's is a member of, where the relay
// needs the right. A right on a column counts unless operators need it. TRIGGER is checkSchema's.
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

// checkAudit warns about roles that may write into the audit, or change the tables from which it is
// written, also about the relay's own role: whoever has its password could do it then.
func (c *checker) checkAudit(ctx context.Context) {
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
		c.addWarning(name, fmt.Sprintf("role %q may do what the owner of cdc_relay (%s) may: the audit is only as safe as its password", c.user, owner),
			"let the relay log in as another role, which owns nothing here: "+source.InitHint("NEW_ROLE"))
	case len(who) > 0:
		c.addWarning(name, "unless they are roles of other relays, these may forge or remove what operators did: "+strings.Join(who, "; "),
			strings.Join(fixes, "; "))
	default:
		c.addResult(name, fmt.Sprintf("the relay appends, operators ask; only %s may change it", owner), nil)
	}
}
