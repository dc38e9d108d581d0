// Finds out why the publication sends a table that is not configured, and decides about its rows.

package publication

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// scope is why the publication sends a table, and whether the slot has relayed it before.
type scope struct {
	Tree    []uint32 // the table and, if it is a partition, those it is part of
	ignored bool     // one of them is foreign: it was there before us, or an operator ignores it
	all     bool     // the publication is FOR ALL TABLES
	schema  bool     // it has the schema of one of them
	listed  string   // the one that it lists by name, as schema.name; "": none, now
	listOID uint32
	Root    *decode.Table // the configured table of which it is a partition now; nil: none
	Left    string        // the name under which the slot has relayed one of them; "": it has not
	LeftOID uint32
}

// Foreign reports whether the rows may be skipped: nobody meant them to be relayed. A table that is
// in the stream although the publication neither lists it nor has its schema was listed when the
// row was written, so it is not foreign.
func (s scope) Foreign() bool {
	return s.ignored || s.Root == nil && s.Left == "" && s.listed == "" && (s.all || s.schema)
}

// FindScope reads the scope of a table from the catalogue. The table may have been dropped since
// its row was written. A table that is remembered as foreign by its own OID needs no query.
func (s State) FindScope(ctx context.Context, q source.Querier, c *source.Config, oid uint32, name string) (scope, error) {
	if slices.Contains(s.Foreign, oid) {
		return scope{ignored: true}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	var of scope
	var listed []byte
	err := q.QueryRow(ctx, `WITH tree AS (SELECT $2::oid AS oid UNION SELECT a.relid::oid FROM pg_partition_ancestors($2::oid::regclass) a(relid) WHERE a.relid IS NOT NULL),
			listed AS (SELECT c.oid, `+source.StoredSQL("n.nspname || '.' || c.relname")+` AS name FROM pg_publication_rel r JOIN pg_class c ON c.oid = r.prrelid
				JOIN pg_namespace n ON n.oid = c.relnamespace
				WHERE r.prpubid = (SELECT oid FROM pg_publication WHERE pubname = $1) AND r.prrelid IN (SELECT oid FROM tree) ORDER BY c.oid LIMIT 1)
		SELECT array(SELECT oid FROM tree), p.puballtables, (SELECT name FROM listed), coalesce((SELECT oid FROM listed), 0)
		FROM pg_publication p WHERE p.pubname = $1`, c.Publication, oid).Scan(&of.Tree, &of.all, &listed, &of.listOID)
	if source.IsNoRows(err) { // as the check of the publication reports, too
		return of, Missing(c)
	}
	if err != nil {
		return of, fmt.Errorf("read how the publication sends table %d: %w", oid, err)
	}
	encoding, err := source.EncodingOf(ctx, q)
	if err != nil {
		return of, err
	}
	if of.listed, err = encoding.Message(string(listed)); err != nil {
		return of, err
	}
	of.ignored = slices.ContainsFunc(of.Tree, func(oid uint32) bool { return slices.Contains(s.Foreign, oid) })
	for _, t := range s.Ours(c.Tables) {
		if slices.Contains(of.Tree, t.OID) {
			of.Root = &t
		}
	}
	of.schema, err = sentBySchema(ctx, q, c, of.Tree, name)
	return of, err
}

// sentBySchema reports whether the publication has the schema of one of the tables, or of one of
// this name (PostgreSQL 15 and later).
func sentBySchema(ctx context.Context, q source.Querier, c *source.Config, tables []uint32, name string) (yes bool, err error) {
	if yes, err = HasSchemas(ctx, q, c); err != nil || !yes {
		return false, err
	}
	err = q.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_publication_namespace s JOIN pg_publication p ON p.oid = s.pnpubid
		JOIN pg_namespace n ON n.oid = s.pnnspid WHERE p.pubname = $1
		AND (n.oid IN (SELECT relnamespace FROM pg_class WHERE oid = ANY ($2::oid[])) OR starts_with($3, n.nspname || '.')))`, c.Publication, tables, name).Scan(&yes)
	return yes, err
}

// HasSchemas reports whether the publication has a schema: FOR TABLES IN SCHEMA, of PostgreSQL 15
// and later.
func HasSchemas(ctx context.Context, q source.Querier, c *source.Config) (yes bool, err error) {
	if yes, err = knowsSchemas(ctx, q); err != nil || !yes {
		return false, err
	}
	err = q.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_publication_namespace s JOIN pg_publication p ON p.oid = s.pnpubid WHERE p.pubname = $1)`,
		c.Publication).Scan(&yes)
	return yes, err
}

// LeftOut is the remembered table that is no longer configured and goes by this name or one of
// these OIDs.
func (s State) LeftOut(c *source.Config, name string, tree []uint32) (table string, oid uint32) {
	configured := c.QuotedTables()
	for quoted, t := range s.Tables {
		if slices.Contains(configured, quoted) {
			continue
		}
		mine := func(oid uint32) bool { return oid == t.OID || slices.Contains(t.Former, oid) }
		if unquoted(quoted) == name || slices.ContainsFunc(tree, mine) {
			return unquoted(quoted), t.OID
		}
	}
	return "", 0
}

// unquoted is a name of source.QuoteTable as the stream has it.
func unquoted(table string) string {
	schema, name, _ := strings.Cut(strings.Trim(table, `"`), `"."`)
	return strings.ReplaceAll(schema, `""`, `"`) + "." + strings.ReplaceAll(name, `""`, `"`)
}

// Stop names the table and both ways to go on.
func (s scope) Stop(c *source.Config, name string, oid uint32) *event.Stop {
	var what, partition string
	ignore := oid
	switch {
	case s.Left != "":
		what = fmt.Sprintf("slot %q has relayed table %s, which is no longer in source.tables, and publication %q still sends its rows",
			c.Slot, s.Left, c.Publication)
		if name != s.Left {
			what += " (as " + name + ")"
		}
		if slices.Contains(s.Tree, s.LeftOID) {
			ignore = s.LeftOID
		}
	case s.Root != nil:
		return rowsStop(event.Rows{Name: name, OID: oid},
			fmt.Sprintf("rows of table %s (OID %d), a partition of %s, wait in slot %q under the partition's own name: the publication did not have publish_via_partition_root when they were committed",
				name, oid, s.Root, c.Slot),
			"have the relay send them: "+EventsCommand(name, oid))
	case s.listed != "":
		name, ignore = s.listed, s.listOID
		what = fmt.Sprintf("publication %q lists table %s, which is not in source.tables", c.Publication, name)
	default:
		what = fmt.Sprintf("publication %q sent rows of table %s (OID %d) when they were committed; it is not in source.tables, and no longer in the publication",
			c.Publication, name, oid)
		of := ""
		for _, t := range c.Tables {
			if len(c.Tables) > 1 {
				of = " --of " + source.ShellText(t.String())
			}
			partition += fmt.Sprintf("; if it was a partition of %s: %s", t, EventsCommand(name, oid)+of)
		}
	}
	return rowsStop(event.Rows{Name: name, OID: ignore},
		what+": the relay stops before its first row, which stays in the slot",
		fmt.Sprintf("if its rows are events: add %s to source.tables (and to the publication, if it was removed from it) and start the relay again (a standby with that configuration becomes the leader by itself)%s; if they are not: %s",
			name, partition, SkipCommand(name, ignore)))
}

// PrefixLeftOut is the Stop for messages that the slot has relayed and whose prefix is no longer
// configured; it names both ways to go on.
func PrefixLeftOut(c *source.Config, prefix string) *event.Stop {
	return rowsStop(event.Rows{Name: prefix},
		fmt.Sprintf("slot %q has relayed messages with the prefix %q, which is no longer source.message_prefix: the relay stops before the next one, which stays in the slot",
			c.Slot, prefix),
		fmt.Sprintf("if they are events: set source.message_prefix: %s and start the relay again (a standby with that configuration becomes the leader by itself); if they are not: %s --skip-messages %s",
			prefix, source.AcceptCommand, source.ShellText(prefix)))
}

// LeftOutHere is the Stop for a table that the slot has relayed on another server, and that has
// rows on this one; it names both ways to go on.
func LeftOutHere(c *source.Config, name string, oid uint32) *event.Stop {
	return rowsStop(event.Rows{Name: name, OID: oid},
		fmt.Sprintf("slot %q has relayed table %s on another server, and it is not in source.tables: the rows that it has here would be left out", c.Slot, name),
		fmt.Sprintf("if its rows are events: add %s to source.tables, and start the relay again; if they are not: %s", name, SkipCommand(name, oid)))
}

// rowsStop has its own reason: nothing is missing, and what was read is delivered before the slot
// is released.
func rowsStop(of event.Rows, what, fix string) *event.Stop {
	return &event.Stop{Code: event.ExitOperator, Reason: NotConfigured, What: what, Fix: fix, Rows: &of}
}

// NotConfigured is the reason of a Stop for rows that are not configured.
const NotConfigured = "not_configured"

// SkipCommand declares that the rows of a table are not events.
func SkipCommand(name string, oid uint32) string {
	return source.AcceptCommand + " --skip-rows " + source.ShellText(fmt.Sprintf("%s@%d", name, oid))
}

// EventsCommand declares that the rows of a table that had the name of a configured one, or was a
// partition of it, are events.
func EventsCommand(name string, oid uint32) string {
	return source.AcceptCommand + " --events " + source.ShellText(fmt.Sprintf("%s@%d", name, oid))
}
