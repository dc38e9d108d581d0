// Tests of the outbox tables, of messages, and of the retry table's rows.

package check

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/replication/survey"
	"github.com/jackc/pgx/v5"
)

// messages warns about encodings (rows of tables are converted to UTF-8, messages are not), and
// while every login of the database may emit messages, as PostgreSQL comes: an event of a table
// needs INSERT on the table, one that is a message nothing else.
func (c *checker) messages(ctx context.Context) {
	const name = "messages"
	if c.c.Messages.Prefix == "" {
		return
	}
	var encoding, all string
	var open bool
	err := c.pool.QueryRow(ctx, `SELECT current_setting('server_encoding'), bool_or(has_function_privilege('public', oid, 'EXECUTE')),
			string_agg(oid::regprocedure::text, ', ' ORDER BY oid)
		FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace AND proname = 'pg_logical_emit_message'`).Scan(&encoding, &open, &all)
	detail := fmt.Sprintf("prefix %q, database encoding %s", c.c.Messages.Prefix, encoding)
	if err == nil && encoding != "UTF8" {
		c.warn(name, detail+": PostgreSQL does not convert messages, and one that is not UTF-8 is not relayed",
			fmt.Sprintf("SELECT pg_logical_emit_message(true, %s, convert_to(..., 'UTF8'))", source.QuoteText(c.c.Messages.Prefix)))
	}
	if err == nil && open {
		c.warn(name, detail+": PUBLIC may execute pg_logical_emit_message, so every login of this database can forge events",
			fmt.Sprintf("as a superuser, in this database: REVOKE EXECUTE ON FUNCTION %[1]s FROM PUBLIC; GRANT EXECUTE ON FUNCTION %[1]s TO <role that writes events>", all))
	}
	if err != nil || encoding == "UTF8" && !open {
		c.add(name, detail, err)
	}
}

// fitting describes the tables as the relay will read them: OIDs, and the mapped columns with their
// types.
func (c *checker) fitting(ctx context.Context, tables []decode.Table) string {
	texts := make([]string, len(tables))
	for i, t := range tables {
		m := t.Mapping
		var names []string
		for _, part := range []decode.Names{m.ID, m.Aggregate, m.Key, m.Type, m.Payload, m.Timestamp, m.Traceparent, m.Headers} {
			names = append(names, part.Any...)
		}
		var columns string
		err := c.pool.QueryRow(ctx, `SELECT coalesce(string_agg(attname || ' ' || format_type(atttypid, atttypmod), ', ' ORDER BY attnum), '') FROM pg_attribute
			WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped AND attname = ANY ($2)`, t.OID, append(names, c.c.Columns...)).Scan(&columns)
		if err != nil {
			columns = "cannot read its columns: " + source.OneLine(err).Error()
		}
		texts[i] = fmt.Sprintf("%s (OID %d: %s)", t, t.OID, columns)
	}
	return strings.Join(texts, ", ")
}

// readable checks whether the tables can be read. Without that no slot is created; later only
// `events show` needs it, and the replay of a row over source.max_event_bytes.
func (c *checker) readable(ctx context.Context, created bool) bool {
	const name = "rights"
	err := slot.CheckReadable(ctx, c.pool, c.c)
	var stop *event.Stop
	if created && errors.As(err, &stop) {
		if strings.HasPrefix(stop.What, "row level") {
			err = nil // it was for the moment of creation
		} else {
			c.warn(name, fmt.Sprintf("role %q may not read the outbox: `events show` does not find what was delivered, and a row over source.max_event_bytes is not replayed", c.user), stop.Fix)
			return false
		}
	}
	return c.add(name, "this role may do what the relay does", err)
}

// retryTable reports rows of another system: they are not sent. Only an operator knows whether this
// server goes on in the place of that system, and nobody else will send them, or is a copy of it.
func (c *checker) retryTable(ctx context.Context, systemID string) {
	rows, err := c.pool.Query(ctx, `SELECT system_id, count(*) FILTER (WHERE deferred) || ' deferred, ' || count(*) FILTER (WHERE NOT deferred) || ' dead letters', count(*), max(n)
		FROM (SELECT system_id, true AS deferred, n FROM cdc_relay.retry WHERE slot = $1
			UNION ALL SELECT system_id, false, n FROM cdc_relay.dead_letter WHERE slot = $1 AND state = 'open') r
		WHERE system_id <> $2 GROUP BY system_id ORDER BY system_id`, c.c.Slot, systemID)
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
		c.add("deferred events", "", fmt.Errorf("read cdc_relay.retry: %w", err))
	case len(foreign) == 0:
		c.add("deferred events", "all of this system", nil)
	default:
		c.warn("deferred events", "rows of another system are not sent: "+strings.Join(foreign, ", "),
			"list them with `cdc-relay deferred list` and `cdc-relay dead-letters list`; if this database is a copy and the other server still runs, leave them: they are sent there; "+
				"if this server has taken its place (pg_upgrade, restore), this has them sent before what is new of their keys (a relay that leads ends with exit 1 and must be started again): "+
				strings.Join(moves, "; "))
	}
}

// unheld names the other slots of relays in which something waits for nobody.
func (c *checker) unheld(ctx context.Context) {
	const name = "unheld slot"
	list, err := survey.ReadUnheld(ctx, c.pool, c.c.Slot)
	c.warnUnchecked(name, err)
	for _, u := range list {
		c.warn(name, fmt.Sprintf("nobody holds slot %s: %s", u.Name, u.Waits()), u.Fix())
	}
}

// largeRows says what a row may cost in memory.
func (c *checker) largeRows(context.Context) {
	const name = "max_event_bytes"
	if c.c.MaxEventBytes == 0 {
		c.add(name, "not set: a row takes about three times its size of the relay's memory, and PostgreSQL sends rows of up to 1 GB", nil)
		return
	}
	c.add(name, "a row of more than "+source.BytesText(uint64(c.c.MaxEventBytes))+" becomes a dead letter, and is not held in memory", nil)
}
