// What the publication sends, by OIDs, as it is remembered with the slot. Names do not show that a
// table or a publication was replaced, and a relay that was stopped saw nothing of it; what is
// remembered shows it at the next start.

package schema

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// Sends is what makes the server send our rows, by OIDs. A publication, a table or a membership
// that was removed and created again has the same name as before, but the rows committed in between
// were never sent. Sends is remembered with the slot, so that this shows across restarts too.
type Sends struct {
	// Publication is pg_publication.oid; 0 means that nothing is remembered
	Publication uint32 `json:"publication,omitempty"`
	// Version is the xmin of the publication's row, which every ALTER PUBLICATION of its options,
	// name or owner changes, and nothing else (not VACUUM FREEZE): it alone shows inserts that were
	// switched off and on again between two checks.
	Version string                 `json:"version,omitempty"`
	Tables  map[string]OutboxTable `json:"tables,omitempty"` // by quoted name
	// Foreign are tables, by OID, that the publication lists by name and whose rows are not events:
	// those that were listed but not configured when the slot was first used, and those that an
	// operator ignores.
	Foreign []uint32 `json:"foreign,omitempty"`
	// Prefixes of messages that the slot has relayed, in ascending order.
	Prefixes []string `json:"prefixes,omitempty"`
}

// Equal reports whether both states are the same text in the table. A list or map that is empty
// here is left out of the text, and is nil when the text is read back: compared as values they
// would differ at every check, and each check would write.
func (s Sends) Equal(other Sends) bool { return bytes.Equal(s.Text(), other.Text()) }

// Text is the state as it is written to the table.
func (s Sends) Text() []byte {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // it has only numbers and texts
	}
	return text
}

// KeepForeign takes over from was which tables of the publication are foreign. If was is of another
// publication, its foreign tables mean nothing here: KeepForeign then only removes from s.Foreign
// the tables that the slot has relayed.
func (s Sends) KeepForeign(was Sends) Sends {
	if was.Publication == s.Publication {
		s.Foreign = was.Foreign
		return s
	}
	relayed := func(oid uint32) bool {
		for _, t := range was.Tables {
			if (t.OID == oid || slices.Contains(t.Former, oid)) && !slices.Contains(was.Foreign, oid) {
				return true
			}
		}
		return false
	}
	s.Foreign = slices.DeleteFunc(slices.Clone(s.Foreign), relayed)
	return s
}

// DroppedPrefixes are the prefixes of messages that were relayed and are no longer configured.
func (s Sends) DroppedPrefixes(c *source.Config) []string {
	return slices.DeleteFunc(slices.Clone(s.Prefixes), func(prefix string) bool { return prefix == c.Messages.Prefix })
}

// OutboxTable is how one outbox table is sent: its OID, the memberships in the publication, and the
// other OIDs under which its rows may come.
type OutboxTable struct {
	OID uint32 `json:"oid"` // 0: it was relayed on another system, and is not here
	// Through are the memberships through which the table is sent, of pg_publication_rel and
	// pg_publication_namespace: its own, a partitioned parent's, its schema's. It is empty if the
	// publication is FOR ALL TABLES, which only the publication itself can end.
	Through []uint32 `json:"through,omitempty"`
	// First is a snapshot, as PostgreSQL's text of it: the rows in it were there before the table
	// was sent, and nobody expects this slot to send them. NoRows means that there were no such
	// rows. "" means that it is not known, until a leader has written it; until then every row
	// counts as the slot's. First says for which rows the retention of another slot of the table
	// waits, and which rows recover leaves out.
	First string `json:"first,omitempty"`
	// Former are the tables that had the name before, and partitions whose rows come under their
	// own names. An operator accepted each of them. Their rows may still wait in the slot, under
	// any name, and are ours. The OIDs are in ascending order.
	Former []uint32 `json:"former,omitempty"`
}

// NoRows is OutboxTable.First of a table all of whose rows are the slot's: a snapshot that sees
// nothing.
const NoRows = "3:3:"

// SetFirst sets OutboxTable.First of the tables that lack it to a snapshot, as PostgreSQL's text.
func (s Sends) SetFirst(first string) {
	first = normalizedSnapshot(first)
	for name, t := range s.Tables {
		if t.First == "" {
			t.First = first
			s.Tables[name] = t
		}
	}
}

// normalizedSnapshot is a snapshot in a form that PostgreSQL reads back. The snapshot that a slot
// exports may have an xmin above its xmax, such as "5129:5128:", which pg_snapshot refuses: in it
// everything below xmin is seen, nothing else is, and no transaction ran (found by
// TestFirstStartCountsARowWhoseTransactionWasOpen).
func normalizedSnapshot(snapshot string) string {
	parts := strings.SplitN(snapshot, ":", 3)
	if len(parts) < 3 {
		return snapshot
	}
	xmin, errMin := strconv.ParseUint(parts[0], 10, 64)
	xmax, errMax := strconv.ParseUint(parts[1], 10, 64)
	if errMin != nil || errMax != nil || xmin <= xmax {
		return snapshot
	}
	return parts[0] + ":" + parts[0] + ":"
}

// KnowsFirst reports whether every table has its OutboxTable.First.
func (s Sends) KnowsFirst() bool {
	for _, t := range s.Tables {
		if t.First == "" {
			return false
		}
	}
	return true
}

// uninterrupted reports whether the table was sent all the time between two checks: one membership,
// at least, existed at both.
func (t OutboxTable) uninterrupted(was OutboxTable) bool {
	if len(was.Through) == 0 || len(t.Through) == 0 {
		return len(was.Through) == len(t.Through)
	}
	return slices.ContainsFunc(t.Through, func(oid uint32) bool { return slices.Contains(was.Through, oid) })
}

// oidOf returns the OID by which a table is looked up: the remembered OID, or if none is remembered
// the OID that the catalogue has for the table's name.
func (s Sends) oidOf(t decode.Table) uint32 {
	if was, known := s.Tables[source.QuoteTable(t)]; known {
		return was.OID
	}
	return t.OID
}

// AddRemembered adds to what is sent now what was remembered: the tables that had the names before,
// and the tables and prefixes that the slot has relayed and that are no longer configured. Another
// relay of the slot may have these configured, and a row of theirs that the publication still sends
// must not be skipped unnoticed. A table that is ours now is no longer foreign.
func (s Sends) AddRemembered(was Sends) Sends {
	var ours []uint32
	for name, t := range s.Tables {
		old := was.Tables[name]
		t = t.withFormer(append(slices.Clone(old.Former), old.OID)...)
		switch {
		case old.OID == t.OID:
			t.First = cmp.Or(old.First, t.First)
		case old.OID != 0: // another table with the name: nobody has left its rows to others
			t.First = NoRows
		}
		s.Tables[name] = t
		ours = append(append(ours, t.OID), t.Former...)
	}
	for name, t := range was.Tables {
		if _, configured := s.Tables[name]; !configured {
			s.Tables[name] = t
		}
	}
	s.Foreign = slices.DeleteFunc(slices.Clone(s.Foreign), func(oid uint32) bool { return slices.Contains(ours, oid) })
	s.Prefixes = slices.Concat(s.Prefixes, was.Prefixes)
	slices.Sort(s.Prefixes)
	s.Prefixes = slices.Compact(s.Prefixes)
	return s
}

// withFormer adds former tables, whose rows count as rows of this table.
func (t OutboxTable) withFormer(oids ...uint32) OutboxTable {
	former := slices.DeleteFunc(slices.Concat(t.Former, oids), func(oid uint32) bool { return oid == 0 || oid == t.OID })
	slices.Sort(former)
	t.Former = slices.Compact(former)
	return t
}

// AcceptsFormer reports whether this OID is that of a former table of one of tables, so that its
// rows count as rows of that table.
func (s Sends) AcceptsFormer(tables []decode.Table, oid uint32) bool {
	return slices.ContainsFunc(s.WithKnownOIDs(tables), func(t decode.Table) bool { return slices.Contains(t.Former, oid) })
}

// WithKnownOIDs are the configured tables with every OID by which their rows may come.
func (s Sends) WithKnownOIDs(tables []decode.Table) []decode.Table {
	tables = slices.Clone(tables)
	for i := range tables {
		t := s.Tables[source.QuoteTable(tables[i])]
		tables[i].OID, tables[i].Former = t.OID, t.Former
	}
	return tables
}

// SkipTable declares that the rows of a table are not events, as an operator has accepted.
func (s Sends) SkipTable(oid uint32) Sends {
	s.Foreign = append(slices.Clone(s.Foreign), oid)
	slices.Sort(s.Foreign)
	return s
}

// SkipMessages declares that messages of a prefix are not events, as an operator has accepted.
func (s Sends) SkipMessages(prefix string) Sends {
	s.Prefixes = slices.DeleteFunc(slices.Clone(s.Prefixes), func(p string) bool { return p == prefix })
	return s
}

// AdoptTables declares that the rows of tables with these OIDs are rows of a remembered table, as
// an operator has accepted.
func (s Sends) AdoptTables(of decode.Table, oids ...uint32) Sends {
	if s.Tables = maps.Clone(s.Tables); s.Tables == nil { // the slot has relayed messages alone
		s.Tables = map[string]OutboxTable{}
	}
	name := source.QuoteTable(of)
	s.Tables[name] = s.Tables[name].withFormer(oids...)
	return s
}

// tableScope is why the publication sends a table that is not configured, and whether the slot has
// relayed it before. From it the relay decides whether a row of the table may be skipped.
type tableScope struct {
	// Tree has the OIDs of the table and, if it is a partition, of the tables that it is part of
	Tree []uint32
	// ignored is set if one of Tree is foreign: it was there before us, or an operator ignores it
	ignored     bool
	allTables   bool          // the publication is FOR ALL TABLES
	bySchema    bool          // the publication has the schema of one of Tree
	listed      string        // the one of Tree that the publication lists (schema.name); "": none
	listOID     uint32        // OID of listed
	Root        *decode.Table // the configured table of which it is a partition now; nil: none
	LeftOutName string        // name under which the slot has relayed one of Tree; "": it has not
	LeftOutOID  uint32        // OID of that table
}

// MaySkip reports whether the rows may be skipped: nobody meant them to be relayed. A table that is
// in the stream although the publication neither lists it nor has its schema was listed when the
// row was written, so its rows may not.
func (s tableScope) MaySkip() bool {
	return s.ignored || s.Root == nil && s.LeftOutName == "" && s.listed == "" && (s.allTables || s.bySchema)
}

// FindScope reads the scope of a table from the catalogue. The table may have been dropped since
// its row was written. A table that is remembered as foreign by its own OID needs no query.
func (s Sends) FindScope(ctx context.Context, q source.Querier, c *source.Config, oid uint32, name string) (tableScope, error) {
	if slices.Contains(s.Foreign, oid) {
		return tableScope{ignored: true}, nil
	}
	var of tableScope
	err := source.Ask(ctx, q, fmt.Sprintf("read how the publication sends table %d", oid), `WITH tree AS (SELECT $2::oid AS oid UNION SELECT a.relid::oid FROM pg_partition_ancestors($2::oid::regclass) a(relid) WHERE a.relid IS NOT NULL),
			listed AS (SELECT c.oid, n.nspname || '.' || c.relname AS name FROM pg_publication_rel r JOIN pg_class c ON c.oid = r.prrelid
				JOIN pg_namespace n ON n.oid = c.relnamespace
				WHERE r.prpubid = (SELECT oid FROM pg_publication WHERE pubname = $1) AND r.prrelid IN (SELECT oid FROM tree) ORDER BY c.oid LIMIT 1)
		SELECT array(SELECT oid FROM tree), p.puballtables, coalesce((SELECT name FROM listed), ''), coalesce((SELECT oid FROM listed), 0)
		FROM pg_publication p WHERE p.pubname = $1`, c.Publication, oid).Scan(&of.Tree, &of.allTables, &of.listed, &of.listOID)
	switch {
	case source.IsNoRows(err): // as the check of the publication reports, too
		return of, publicationMissingStop(c)
	case err != nil:
		return of, err
	}
	of.ignored = slices.ContainsFunc(of.Tree, func(oid uint32) bool { return slices.Contains(s.Foreign, oid) })
	for _, t := range s.WithKnownOIDs(c.Tables) {
		if slices.Contains(of.Tree, t.OID) {
			of.Root = &t
		}
	}
	of.bySchema, err = sentBySchema(ctx, q, c, of.Tree, name)
	return of, err
}

// sentBySchema reports whether the publication has the schema of one of the tables, or of one of
// this name (PostgreSQL 15 and later).
func sentBySchema(ctx context.Context, q source.Querier, c *source.Config, tables []uint32, name string) (yes bool, err error) {
	if yes, err = PublishesSchemas(ctx, q, c); err != nil || !yes {
		return false, err
	}
	err = source.Ask(ctx, q, "read pg_publication_namespace", `SELECT EXISTS (SELECT FROM pg_publication_namespace s JOIN pg_publication p ON p.oid = s.pnpubid
		JOIN pg_namespace n ON n.oid = s.pnnspid WHERE p.pubname = $1
		AND (n.oid IN (SELECT relnamespace FROM pg_class WHERE oid = ANY ($2::oid[])) OR starts_with($3, n.nspname || '.')))`, c.Publication, tables, name).Scan(&yes)
	return yes, err
}

// PublishesSchemas reports whether the publication has a schema: FOR TABLES IN SCHEMA, of
// PostgreSQL 15 and later.
func PublishesSchemas(ctx context.Context, q source.Querier, c *source.Config) (yes bool, err error) {
	if yes, err = hasSchemaPublications(ctx, q); err != nil || !yes {
		return false, err
	}
	err = source.Ask(ctx, q, "read pg_publication_namespace", `SELECT EXISTS (SELECT FROM pg_publication_namespace s JOIN pg_publication p ON p.oid = s.pnpubid WHERE p.pubname = $1)`,
		c.Publication).Scan(&yes)
	return yes, err
}

// LeftOut is the remembered table that is no longer configured and has this name or one of these
// OIDs; "" means that there is none.
func (s Sends) LeftOut(c *source.Config, name string, tree []uint32) (table string, oid uint32) {
	configured := c.QuotedTables()
	for quoted, t := range s.Tables {
		if slices.Contains(configured, quoted) {
			continue
		}
		mine := func(oid uint32) bool { return oid == t.OID || slices.Contains(t.Former, oid) }
		if unquoteTable(quoted) == name || slices.ContainsFunc(tree, mine) {
			return unquoteTable(quoted), t.OID
		}
	}
	return "", 0
}

// unquoteTable turns a name that source.QuoteTable has written into the form that the stream has.
func unquoteTable(table string) string {
	schema, name, _ := strings.Cut(strings.Trim(table, `"`), `"."`)
	return strings.ReplaceAll(schema, `""`, `"`) + "." + strings.ReplaceAll(name, `""`, `"`)
}

// NotConfiguredStop is the Stop before a row of the table: it names the table and both ways to go
// on.
func (s tableScope) NotConfiguredStop(c *source.Config, name string, oid uint32) *event.Stop {
	var what, partition string
	ignore := oid
	switch {
	case s.LeftOutName != "":
		what = fmt.Sprintf("slot %q has relayed table %s, which is no longer in source.tables, and publication %q still sends its rows",
			c.Slot, s.LeftOutName, c.Publication)
		if name != s.LeftOutName {
			what += " (as " + name + ")"
		}
		if slices.Contains(s.Tree, s.LeftOutOID) {
			ignore = s.LeftOutOID
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

// PrefixStop is the Stop for messages that the slot has relayed and whose prefix is no longer
// configured; it names both ways to go on.
func PrefixStop(c *source.Config, prefix string) *event.Stop {
	return rowsStop(event.Rows{Name: prefix},
		fmt.Sprintf("slot %q has relayed messages with the prefix %q, which is no longer source.message_prefix: the relay stops before the next one, which stays in the slot",
			c.Slot, prefix),
		fmt.Sprintf("if they are events: set source.message_prefix: %s and start the relay again (a standby with that configuration becomes the leader by itself); if they are not: %s --skip-messages %s",
			prefix, source.AcceptCommand, source.ShellText(prefix)))
}

// LeftOutStop is the Stop for a table that the slot has relayed on another server, and that has
// rows on this one; it names both ways to go on.
func LeftOutStop(c *source.Config, name string, oid uint32) *event.Stop {
	return rowsStop(event.Rows{Name: name, OID: oid},
		fmt.Sprintf("slot %q has relayed table %s on another server, and it is not in source.tables: the rows that it has here would be left out", c.Slot, name),
		fmt.Sprintf("if its rows are events: add %s to source.tables, and start the relay again; if they are not: %s", name, SkipCommand(name, oid)))
}

// rowsStop is a Stop with reason NotConfigured: nothing is missing, and what was read is delivered
// before the slot is released.
func rowsStop(of event.Rows, what, fix string) *event.Stop {
	return &event.Stop{Code: event.ExitOperator, Reason: NotConfigured, What: what, Fix: fix, Rows: &of}
}

// NotConfigured is the reason of a Stop for rows that are not configured.
const NotConfigured = "not_configured"

// SkipCommand is the command that declares that the rows of a table are not events.
func SkipCommand(name string, oid uint32) string {
	return source.AcceptCommand + " --skip-rows " + source.ShellText(fmt.Sprintf("%s@%d", name, oid))
}

// EventsCommand is the command that declares that the rows of a table are events: the table had the
// name of a configured one, or was a partition of it.
func EventsCommand(name string, oid uint32) string {
	return source.AcceptCommand + " --events " + source.ShellText(fmt.Sprintf("%s@%d", name, oid))
}

// ReadOthers reads what is not configured but may be sent. foreign are the names of listed tables
// whose rows are skipped. stops are the Stops at the first row, or message, of each other listed
// table, and of each table and prefix that the slot has relayed and still gets.
func (s Sends) ReadOthers(ctx context.Context, q source.Querier, c *source.Config) (foreign []string, stops []*event.Stop, err error) {
	type table struct {
		OID  uint32
		Name string
	}
	tables, err := source.List(ctx, q, "read pg_publication_rel", pgx.RowToStructByPos[table], `SELECT r.prrelid, n.nspname || '.' || c.relname FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid
		JOIN pg_class c ON c.oid = r.prrelid JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE p.pubname = $1 AND r.prrelid <> ALL ($2::oid[]) AND NOT `+isPartitionSQL("r.prrelid", "$2::oid[]")+` ORDER BY 2`, c.Publication, s.configuredOIDs(c))
	if err != nil {
		return nil, nil, err
	}
	for _, t := range tables {
		name := t.Name
		if slices.Contains(s.Foreign, t.OID) {
			foreign = append(foreign, name)
			continue
		}
		of := tableScope{listed: name, listOID: t.OID}
		of.LeftOutName, of.LeftOutOID = s.LeftOut(c, name, []uint32{t.OID})
		stops = append(stops, of.NotConfiguredStop(c, name, t.OID))
	}
	unlisted, err := s.relayedStops(ctx, q, c)
	stops = append(stops, unlisted...)
	for _, prefix := range s.DroppedPrefixes(c) {
		stops = append(stops, PrefixStop(c, prefix))
	}
	return foreign, stops, err
}

// relayedStops are the Stops for tables that the slot has relayed, that are no longer configured,
// and that the publication sends without listing them: because it has all tables, or their schema.
func (s Sends) relayedStops(ctx context.Context, q source.Querier, c *source.Config) (stops []*event.Stop, err error) {
	configured := c.QuotedTables()
	for quoted, t := range s.Tables {
		if slices.Contains(configured, quoted) {
			continue
		}
		var there bool
		if err := source.Ask(ctx, q, "read pg_class", `SELECT EXISTS (SELECT FROM pg_class WHERE oid = $1)`, t.OID).Scan(&there); err != nil {
			return nil, err
		}
		of, err := s.FindScope(ctx, q, c, t.OID, unquoteTable(quoted))
		if err != nil {
			return nil, err
		}
		if there && !of.ignored && of.listed == "" && (of.allTables || of.bySchema) {
			of.LeftOutName, of.LeftOutOID = unquoteTable(quoted), t.OID
			stops = append(stops, of.NotConfiguredStop(c, of.LeftOutName, t.OID))
		}
	}
	return stops, nil
}

// configuredOIDs are the remembered OIDs of the configured tables, former ones too.
func (s Sends) configuredOIDs(c *source.Config) []uint32 {
	oids := []uint32{}
	for _, table := range c.QuotedTables() {
		if t, known := s.Tables[table]; known {
			oids = append(append(oids, t.OID), t.Former...)
		}
	}
	return oids
}

// LogForeign logs, when a slot is first used, the listed tables whose rows are skipped.
func (s Sends) LogForeign(ctx context.Context, q source.Querier, c *source.Config) {
	foreign, _, err := s.ReadOthers(ctx, q, c)
	if err == nil && len(foreign) > 0 {
		c.Log.Info("the publication lists other tables too: their rows are not relayed",
			zap.String("tables", strings.Join(foreign, ", ")), zap.String("publication", c.Publication), zap.String("slot", c.Slot))
	}
}
