// Rows that the stream brings and the configuration does not name: which of them are passed over,
// and which stop the relay.

package replication

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// foreign decides about the first row, in this session, of a table that is not configured, or about
// a message of a prefix that was relayed before. nil: it is not ours, and is counted and passed
// over.
//
// A row must not be passed over when somebody meant it to be relayed. During a rolling deployment
// the leader still has the old configuration while the table is in the publication already; after
// its rollback the other way round. The leader cannot know who is right, so it stops before the
// row. Its transaction stays in the slot, for a relay that knows the table.
func (r *reading) foreign(name string, oid uint32, reason string) error {
	if oid == 0 && !slices.Contains(r.sent.Prefixes, name) { // an operator ignores it
		r.skipped(reason)
		return nil
	}
	r.t.line.Wake(true) // what was read need not wait for the catalogue
	err := r.leftOut(name, oid)
	if err != nil { // an operator may have said since that it is ignored: the log has warned
		// Only what our own term's row remembers counts, whatever state it says. A row that is gone, or
		// another leader's, says nothing of it: the Stop stays.
		rec, lookErr := readRecord(r.ctx, r.pool, r.cfg.Slot)
		switch {
		case lookErr != nil:
			err = lookErr
		case rec != nil && rec.Epoch == r.t.epoch:
			r.sent = rec.Sends
			err = r.leftOut(name, oid)
		}
	}
	if err == nil {
		r.skipped(reason)
		return nil
	}
	if r.ctx.Err() != nil {
		return errReadCut
	}
	return err
}

// leftOut is a Stop for what may not be passed over, by what is remembered.
func (r *reading) leftOut(name string, oid uint32) error {
	if oid == 0 {
		if !slices.Contains(r.sent.Prefixes, name) {
			return nil
		}
		return prefixLeftOut(&r.cfg, name)
	}
	scope, err := r.sent.scopeOf(r.ctx, r.pool, &r.cfg, oid, name)
	if err != nil {
		return err
	}
	if scope.left, scope.leftOID = r.sent.leftOut(&r.cfg, name, scope.tree); scope.foreign() {
		return nil
	}
	return scope.stop(&r.cfg, name, oid)
}

// scope is why the publication sends a table, and what the slot has had to do with it.
type scope struct {
	tree    []uint32 // the table and, if it is a partition, those it is part of
	ignored bool     // one of them is foreign: it was there before us, or an operator ignores it
	all     bool     // the publication is FOR ALL TABLES
	schema  bool     // it has the schema of one of them
	listed  string   // the one that it lists by name, as schema.name; "": none, now
	listOID uint32
	left    string // the name under which the slot has relayed one of them; "": it has not
	leftOID uint32
}

// foreign reports whether the rows are nobody's word to us. A table that is in the stream though
// the publication neither lists it nor has its schema was listed when the row was written, so it is
// not foreign.
func (s scope) foreign() bool {
	return s.ignored || s.left == "" && s.listed == "" && (s.all || s.schema)
}

// scopeOf asks the catalogue for the scope of a table, which may have been dropped since its row
// was written. One that is remembered as foreign by its own OID is not asked about.
func (s sends) scopeOf(ctx context.Context, q querier, c *Config, oid uint32, name string) (scope, error) {
	if slices.Contains(s.Foreign, oid) || slices.Contains(s.None, oid) {
		return scope{ignored: true}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	var of scope
	err := q.QueryRow(ctx, `WITH tree AS (SELECT $2::oid AS oid UNION SELECT a.relid::oid FROM pg_partition_ancestors($2::oid::regclass) a(relid) WHERE a.relid IS NOT NULL),
			listed AS (SELECT c.oid, n.nspname || '.' || c.relname AS name FROM pg_publication_rel r JOIN pg_class c ON c.oid = r.prrelid
				JOIN pg_namespace n ON n.oid = c.relnamespace
				WHERE r.prpubid = (SELECT oid FROM pg_publication WHERE pubname = $1) AND r.prrelid IN (SELECT oid FROM tree) ORDER BY c.oid LIMIT 1)
		SELECT array(SELECT oid FROM tree), p.puballtables, coalesce((SELECT name FROM listed), ''), coalesce((SELECT oid FROM listed), 0)
		FROM pg_publication p WHERE p.pubname = $1`, c.Publication, oid).Scan(&of.tree, &of.all, &of.listed, &of.listOID)
	if isNoRows(err) { // the check of the publication says so
		return of, publicationMissing(c)
	}
	if err != nil {
		return of, fmt.Errorf("read how the publication sends table %d: %w", oid, err)
	}
	of.ignored = slices.ContainsFunc(of.tree, func(oid uint32) bool { return slices.Contains(s.Foreign, oid) })
	of.schema, err = sentBySchema(ctx, q, c, of.tree, name)
	return of, err
}

// sentBySchema reports whether the publication has the schema of one of the tables, or of one of
// this name (PostgreSQL 15 and later).
func sentBySchema(ctx context.Context, q querier, c *Config, tables []uint32, name string) (yes bool, err error) {
	if err := q.QueryRow(ctx, `SELECT to_regclass('pg_catalog.pg_publication_namespace') IS NOT NULL`).Scan(&yes); err != nil || !yes {
		return false, err
	}
	err = q.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_publication_namespace s JOIN pg_publication p ON p.oid = s.pnpubid
		JOIN pg_namespace n ON n.oid = s.pnnspid WHERE p.pubname = $1
		AND (n.oid IN (SELECT relnamespace FROM pg_class WHERE oid = ANY ($2::oid[])) OR starts_with($3, n.nspname || '.')))`, c.Publication, tables, name).Scan(&yes)
	return yes, err
}

// leftOut is the remembered table that is not configured any more and goes by this name or one of
// these OIDs.
func (s sends) leftOut(c *Config, name string, tree []uint32) (table string, oid uint32) {
	configured := c.quotedTables()
	for quoted, t := range s.Tables {
		if slices.Contains(configured, quoted) {
			continue
		}
		mine := func(oid uint32) bool { return oid == t.OID || slices.Contains(t.Also, oid) }
		if unquoted(quoted) == name || slices.ContainsFunc(tree, mine) {
			return unquoted(quoted), t.OID
		}
	}
	return "", 0
}

// unquoted is a name of quoteTable as the stream has it.
func unquoted(table string) string {
	schema, name, _ := strings.Cut(strings.Trim(table, `"`), `"."`)
	return strings.ReplaceAll(schema, `""`, `"`) + "." + strings.ReplaceAll(name, `""`, `"`)
}

// listedBeside are the tables that the publication lists by name and that are not configured, by
// OID, in ascending order.
func listedBeside(ctx context.Context, q querier, c *Config, ours sends) ([]uint32, error) {
	var known []uint32
	for _, t := range ours.Tables {
		known = append(known, t.OID)
	}
	var beside []uint32
	err := q.QueryRow(ctx, `SELECT array(SELECT r.prrelid FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid
		WHERE p.pubname = $1 AND r.prrelid <> ALL (coalesce($2::oid[], '{}')) ORDER BY 1)`, c.Publication, known).Scan(&beside)
	if err != nil {
		return nil, fmt.Errorf("read pg_publication_rel: %w", err)
	}
	return beside, nil
}

// withLeaves adds the partitions of foreign tables, by whose OIDs their rows may come, also when
// they are detached or dropped by then.
func withLeaves(ctx context.Context, q querier, foreign []uint32) ([]uint32, error) {
	if len(foreign) == 0 {
		return nil, nil
	}
	var leaves []uint32
	err := q.QueryRow(ctx, `WITH RECURSIVE tree AS (SELECT inhrelid FROM pg_inherits WHERE inhparent = ANY ($1::oid[])
			UNION SELECT i.inhrelid FROM tree JOIN pg_inherits i ON i.inhparent = tree.inhrelid)
		SELECT array(SELECT c.oid FROM tree JOIN pg_class c ON c.oid = inhrelid WHERE c.relispartition)`, foreign).Scan(&leaves)
	if err != nil {
		return nil, fmt.Errorf("read pg_inherits: %w", err)
	}
	all := slices.Concat(foreign, leaves)
	slices.Sort(all)
	return slices.Compact(all), nil
}

// stop names the table and both ways to go on.
func (s scope) stop(c *Config, name string, oid uint32) *outbox.Stop {
	var what string
	ignore := oid
	switch {
	case s.left != "":
		what = fmt.Sprintf("slot %q has relayed table %s, which is not in source.tables any more, and publication %q still sends its rows",
			c.Slot, s.left, c.Publication)
		if name != s.left {
			what += " (as " + name + ")"
		}
		if slices.Contains(s.tree, s.leftOID) {
			ignore = s.leftOID
		}
	case s.listed != "":
		name, ignore = s.listed, s.listOID
		what = fmt.Sprintf("publication %q lists table %s, which is not in source.tables", c.Publication, name)
	default:
		what = fmt.Sprintf("publication %q sent rows of table %s (OID %d) when they were committed; it is not in source.tables, and not in the publication any more",
			c.Publication, name, oid)
	}
	return leftOutStop(what+": the relay stops before its first row, which stays in the slot",
		fmt.Sprintf("if its rows are events: add %s to source.tables (and to the publication, if it is there no more) and start the relay again (one that stands by with it takes over by itself); if they are not: %s",
			name, ignoreTableSQL(c, name, ignore)))
}

func prefixLeftOut(c *Config, prefix string) *outbox.Stop {
	return leftOutStop(fmt.Sprintf("slot %q has relayed messages with the prefix %q, which is not source.message_prefix any more: the relay stops before the next one, which stays in the slot",
		c.Slot, prefix),
		fmt.Sprintf("if they are events: state source.message_prefix: %s and start the relay again (one that stands by with it takes over by itself); if they are not any more: %s",
			prefix, ignorePrefixSQL(c, prefix)))
}

// leftOutStop has a reason of its own: nothing is missing, and what was read is delivered before
// the slot is let go.
func leftOutStop(what, mend string) *outbox.Stop {
	return &outbox.Stop{Code: outbox.ExitOperator, Reason: notConfigured, What: what, Mend: mend}
}

const notConfigured = "not_configured"

// ignoreTableSQL is an operator's word that the rows of a table are not events: in what is
// remembered of the slot, and in the audit, in one statement.
func ignoreTableSQL(c *Config, name string, oid uint32) string {
	return ignoreSQL(c, fmt.Sprintf("jsonb_set(sends, '{foreign}', coalesce(sends->'foreign', '[]') || '%d')", oid),
		"ignore_table", fmt.Sprintf("rows of table %s (OID %d) are not relayed", name, oid))
}

// ignorePrefixSQL is the same for messages.
func ignorePrefixSQL(c *Config, prefix string) string {
	return ignoreSQL(c, fmt.Sprintf("jsonb_set(sends, '{prefixes}', (sends->'prefixes') - %s)", quoteText(prefix)),
		"ignore_prefix", "messages with prefix "+prefix+" are not relayed")
}

func ignoreSQL(c *Config, sends, action, result string) string {
	return fmt.Sprintf("WITH ignored AS (UPDATE cdc_relay.slots SET sends = %s WHERE slot = %s RETURNING slot, system_id) "+
		"INSERT INTO cdc_relay.audit (slot, system_id, who, action, n, why, result) SELECT slot, system_id, session_user, %s, 0, 'not an outbox', %s FROM ignored",
		sends, quoteText(c.Slot), quoteText(action), quoteText(result))
}
