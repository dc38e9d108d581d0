// The publication: how it is created, and the check that it sends what the relay needs and has done
// so without interruption. PostgreSQL does not report what a publication leaves out, so without
// this check rows would be lost silently.

package schema

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// EnsurePublication creates the publication if it is missing. It must come before the slot: a slot
// that decodes a row while its publication is missing fails for ever (PostgreSQL 14 to 17) or drops
// the row (18).
func EnsurePublication(ctx context.Context, pool *pgxpool.Pool, c *source.Config) error {
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	there, err := PublicationExists(ctx, pool, c)
	if err != nil || there {
		return err
	}
	if !c.Create {
		return publicationMissingStop(c)
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		for _, sql := range []string{CreatePublicationSQL(c), MarkPublicationSQL(c)} {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		return nil
	})
	switch source.SQLState(err) {
	case "42710", "23505": // another relay was faster, by much or by little
		return nil
	case "42501":
		return mayNotCreateStop(c, err)
	}
	if err != nil {
		return fmt.Errorf("create publication %q: %w", c.Publication, err)
	}
	return nil
}

// MayCreatePublication returns why EnsurePublication cannot create a publication that does not
// exist; nil means that it can.
func MayCreatePublication(ctx context.Context, q source.Querier, c *source.Config) error {
	var tables []uint32
	for _, t := range c.Tables {
		tables = append(tables, t.OID)
	}
	var may bool
	err := source.Ask(ctx, q, "read who may create a publication", `SELECT has_database_privilege(current_database(), 'CREATE')
		AND NOT EXISTS (SELECT FROM pg_class WHERE oid = ANY ($1::oid[]) AND NOT pg_has_role(relowner, 'USAGE'))`, tables).Scan(&may)
	if err == nil && !may {
		return mayNotCreateStop(c, nil)
	}
	return err
}

// mayNotCreateStop is the Stop for a role that may not create the missing publication.
func mayNotCreateStop(c *source.Config, cause error) error {
	return &event.Stop{
		Code: event.ExitFailure, Reason: "rights", Err: cause,
		What: fmt.Sprintf("publication %q does not exist and this role may not create it", c.Publication),
		Fix:  "run `cdc-relay init --no-slot --url <URL of the tables' owner>`, or: " + CreatePublicationSQL(c),
	}
}

// PublicationExists reports whether the server has a publication of the configured name, whatever
// it publishes.
func PublicationExists(ctx context.Context, q source.Querier, c *source.Config) (there bool, err error) {
	err = source.Ask(ctx, q, "read pg_publication", `SELECT EXISTS (SELECT FROM pg_publication WHERE pubname = $1)`, c.Publication).Scan(&there)
	return there, err
}

// CheckPublication compares the publication with what the relay needs: every table in it, all of
// its rows, under its own name when it is partitioned, with inserts and the mapped columns. It also
// compares the publication with its previous state, was, which is empty if the slot is new, or
// adopted as it is. It returns the current state. PostgreSQL does not report what it does not send,
// so this check runs at the start of every session and while the session lasts.
func CheckPublication(ctx context.Context, q source.Querier, c *source.Config, was Sends) (Sends, error) {
	now := Sends{Tables: map[string]OutboxTable{}}
	if c.Messages.Prefix != "" {
		now.Prefixes = []string{c.Messages.Prefix}
	}
	var inserts, viaRoot, bySchema bool
	err := source.Ask(ctx, q, "read pg_publication", `SELECT oid, xmin::text, pubinsert, pubviaroot, to_regclass('pg_catalog.pg_publication_namespace') IS NOT NULL
		FROM pg_publication WHERE pubname = $1`, c.Publication).Scan(&now.Publication, &now.Version, &inserts, &viaRoot, &bySchema)
	if source.IsNoRows(err) {
		return now, publicationMissingStop(c)
	}
	if err != nil {
		return now, err
	}
	if was.Publication != 0 && was.Publication != now.Publication {
		return now, PublicationStop(c, fmt.Sprintf("was dropped and created again (OID %d, it was %d)", now.Publication, was.Publication),
			RenewSlotHint(c))
	}
	if !inserts && len(c.Tables) > 0 {
		return now, PublicationStop(c, "does not publish inserts",
			fmt.Sprintf("ALTER PUBLICATION %s SET (publish = 'insert')", source.QuoteName(c.Publication))+was.startAgainHint())
	}
	for _, t := range c.Tables {
		p, err := readPublished(ctx, q, c, t, was.oidOf(t), bySchema)
		if err != nil {
			return now, err
		}
		if err := p.checkTable(c, t, was, viaRoot); err != nil {
			return now, droppedMeanwhile(ctx, q, c, err)
		}
		now.Tables[source.QuoteTable(t)] = p.OutboxTable
	}
	now.Foreign = was.Foreign
	if was.Publication == 0 { // the slot's first use: other listed tables belong to others
		if now.Foreign, err = listedOthers(ctx, q, c, now); err != nil {
			return now, err
		}
	}
	if now.Foreign, err = withLeaves(ctx, q, now.Foreign); err != nil {
		return now, err
	}
	// No alteration hides a message.
	if len(c.Tables)+len(was.Tables) > 0 && was.Version != "" && was.Version != now.Version {
		return now, PublicationStop(c, "was altered: in between it may have sent no inserts, or partitions under their own names",
			source.AcceptHint)
	}
	return now, nil
}

// droppedMeanwhile returns the finding that the publication is gone, if it was dropped after
// CheckPublication had read it, else found. The publication's tables went with it, and found would
// advise to add them again. Both findings are exit 3, so no event is passed over either way.
func droppedMeanwhile(ctx context.Context, q source.Querier, c *source.Config, found error) error {
	exists, err := PublicationExists(ctx, q, c)
	if err == nil && !exists {
		return publicationMissingStop(c)
	}
	return found
}

// listedOthers are the tables that the publication lists by name and that are not configured, by
// OID, in ascending order. A partition of a configured table is not among them: rows under its own
// name are rows of that table, from before publish_via_partition_root was set.
func listedOthers(ctx context.Context, q source.Querier, c *source.Config, ours Sends) ([]uint32, error) {
	var known []uint32
	for _, t := range ours.Tables {
		known = append(known, t.OID)
	}
	var listed []uint32
	err := source.Ask(ctx, q, "read pg_publication_rel", `SELECT array(SELECT r.prrelid FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid
		WHERE p.pubname = $1 AND r.prrelid <> ALL (coalesce($2::oid[], '{}')) AND NOT `+isPartitionSQL("r.prrelid", "$2::oid[]")+` ORDER BY 1)`, c.Publication, known).Scan(&listed)
	return listed, err
}

// isPartitionSQL is the SQL condition that a table is a partition of one of some tables.
func isPartitionSQL(table, tables string) string {
	return `EXISTS (SELECT FROM pg_partition_ancestors(` + table + `) a(relid) WHERE a.relid = ANY (` + tables + `))`
}

// withLeaves adds the partitions of foreign tables. Their rows may come under the partitions' OIDs,
// even if the partitions are detached or dropped by then.
func withLeaves(ctx context.Context, q source.Querier, foreign []uint32) ([]uint32, error) {
	if len(foreign) == 0 {
		return nil, nil
	}
	var leaves []uint32
	err := source.Ask(ctx, q, "read pg_inherits", `WITH RECURSIVE tree AS (SELECT inhrelid FROM pg_inherits WHERE inhparent = ANY ($1::oid[])
			UNION SELECT i.inhrelid FROM tree JOIN pg_inherits i ON i.inhparent = tree.inhrelid)
		SELECT array(SELECT c.oid FROM tree JOIN pg_class c ON c.oid = inhrelid WHERE c.relispartition)`, foreign).Scan(&leaves)
	if err != nil {
		return nil, err
	}
	all := slices.Concat(foreign, leaves)
	slices.Sort(all)
	return slices.Compact(all), nil
}

// publishedTable is one configured table and its membership in the publication, from the catalogue.
type publishedTable struct {
	// OutboxTable is the table with the configured name, or if there is none the table with the
	// known OID
	OutboxTable
	known     uint32 // the OID that is remembered; 0: no OID is
	knownLeft bool   // a table of that OID exists, under whatever name
	kind      string // pg_class.relkind
	isSent    bool   // the publication sends it, for whatever reason
	listed    bool   // the publication names it
	filter    string // row filter (PostgreSQL 15 and later); "": none
	shape     tableShape
	// heirs are tables that inherit from it and are not configured. Temporary ones are left out:
	// their rows are in no stream, and in no query but those of the session that made the table.
	heirs  []string
	unsent []string // partitions and heirs whose rows are not in the WAL, and why
}

// readPublished looks a table up by its configured name and by its known OID. If there is neither,
// the OID of the answer is 0. bySchema is set when the server has publications of whole schemas.
func readPublished(ctx context.Context, q source.Querier, c *source.Config, t decode.Table, known uint32, bySchema bool) (publishedTable, error) {
	schemas := ""
	if bySchema {
		schemas = `|| array(SELECT s.oid FROM pg_publication_namespace s JOIN pg_publication b ON b.oid = s.pnpubid
			WHERE b.pubname = $1 AND s.pnnspid = c.relnamespace ORDER BY 1)`
	}
	p := publishedTable{known: known}
	names, oids := make([]string, len(c.Tables)), make([]uint32, len(c.Tables))
	for i, configured := range c.Tables {
		names[i], oids[i] = configured.String(), configured.OID
	}
	// A view that replaced a renamed table does not count.
	err := source.Ask(ctx, q, "read how the publication sends "+t.String(), `SELECT c.oid, c.relkind::text, EXISTS (SELECT FROM pg_class k WHERE k.oid = $2),
			p.sent IS NOT NULL, coalesce(p.filter, ''),
			EXISTS (SELECT FROM pg_publication_rel r JOIN pg_publication b ON b.oid = r.prpubid WHERE b.pubname = $1 AND r.prrelid = c.oid),
			array(SELECT r.oid FROM pg_publication_rel r JOIN pg_publication b ON b.oid = r.prpubid WHERE b.pubname = $1
				AND (r.prrelid = c.oid OR r.prrelid IN (SELECT a.relid::oid FROM pg_partition_ancestors(c.oid) a(relid))) ORDER BY 1) `+schemas+`,
			array(WITH RECURSIVE heir AS (
				SELECT inhrelid FROM pg_inherits WHERE inhparent = c.oid AND c.relkind = 'r'
				UNION SELECT i.inhrelid FROM pg_inherits i JOIN heir ON i.inhparent = heir.inhrelid)
				SELECT hn.nspname || '.' || h.relname FROM heir JOIN pg_class h ON h.oid = heir.inhrelid JOIN pg_namespace hn ON hn.oid = h.relnamespace
				WHERE h.relkind <> 'f' AND h.relpersistence = 'p' AND h.oid <> ALL ($5::oid[]) AND hn.nspname || '.' || h.relname <> ALL ($6::text[]) ORDER BY 1),
			array(WITH RECURSIVE below AS (SELECT inhrelid FROM pg_inherits WHERE inhparent = c.oid
				UNION SELECT i.inhrelid FROM pg_inherits i JOIN below ON i.inhparent = below.inhrelid)
				SELECT hn.nspname || '.' || h.relname || CASE h.relkind WHEN 'f' THEN ' (a foreign table)' ELSE ' (UNLOGGED)' END
				FROM below JOIN pg_class h ON h.oid = below.inhrelid JOIN pg_namespace hn ON hn.oid = h.relnamespace
				WHERE h.relkind = 'f' OR h.relkind = 'r' AND h.relpersistence = 'u' ORDER BY 1)
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
			LEFT JOIN LATERAL (`+publishedSQL(bySchema)+`) p ON true
		WHERE c.oid = $2 OR n.nspname = $3 AND c.relname = $4 AND c.relkind IN ('r', 'p')
		ORDER BY n.nspname = $3 AND c.relname = $4 DESC LIMIT 1`, c.Publication, known, t.Schema, t.Name, oids, names).
		Scan(&p.OID, &p.kind, &p.knownLeft, &p.isSent, &p.filter, &p.listed, &p.Through, &p.heirs, &p.unsent)
	if err != nil && !source.IsNoRows(err) {
		return p, err
	}
	if len(p.Through) == 0 {
		p.Through = nil // as it comes back from the table
	}
	p.shape, err = readShape(ctx, q, c, t, bySchema)
	return p, err
}

// checkTable returns a Stop if the publication does not send all rows and columns of the table, or
// has not done so since was.
func (p publishedTable) checkTable(c *source.Config, t decode.Table, was Sends, viaRoot bool) error {
	old, remembered := was.Tables[source.QuoteTable(t)]
	accept := ""
	if remembered {
		accept = was.startAgainHint()
	}
	if p.OID == 0 || p.OID != p.known {
		return p.goneStop(c, t)
	}
	if p.kind == "p" && !viaRoot {
		return PublicationStop(c, fmt.Sprintf("sends the partitions of %s.%s under their own names", t.Schema, t.Name),
			fmt.Sprintf("ALTER PUBLICATION %s SET (publish_via_partition_root = true)", source.QuoteName(c.Publication))+was.startAgainHint())
	}
	if !p.isSent {
		return PublicationStop(c, fmt.Sprintf("does not contain table %s.%s", t.Schema, t.Name),
			fmt.Sprintf("ALTER PUBLICATION %s ADD TABLE ONLY %s%s", source.QuoteName(c.Publication), source.QuoteTable(t), accept))
	}
	if p.filter != "" {
		return PublicationStop(c, fmt.Sprintf("hides rows of table %s.%s: it has the row filter %s", t.Schema, t.Name, p.filter),
			source.ReaddTableSQL(c, t)+accept)
	}
	if err := p.shape.checkListed(c, t, accept); err != nil {
		return err
	}
	if err := p.shape.checkGenerated(c, t, was.Publication != 0); err != nil {
		return err
	}
	if len(p.heirs) > 0 {
		return p.heirsStop(c, t)
	}
	if len(p.unsent) > 0 {
		return p.unloggedStop(c, t)
	}
	if remembered && !p.uninterrupted(old) {
		return PublicationStop(c, fmt.Sprintf("had table %s.%s taken out and put back", t.Schema, t.Name),
			source.AcceptHint)
	}
	return nil
}

// heirsStop is the Stop for tables that inherit from ours: a SELECT from our table includes their
// rows, but the rows are sent under the heir's own name and would be skipped.
func (p publishedTable) heirsStop(c *source.Config, t decode.Table) *event.Stop {
	heirs := strings.Join(p.heirs, ", ")
	return &event.Stop{
		Code: event.ExitOperator, Reason: "table",
		What: fmt.Sprintf("table %s has tables that inherit from it (%s), whose rows are sent under their own names and would be skipped", t, heirs),
		Fix: fmt.Sprintf("add them to source.tables and to the publication (ALTER PUBLICATION %s ADD TABLE ...), or end the inheritance: ALTER TABLE ... NO INHERIT %s; a partitioned table does not have this problem",
			source.QuoteName(c.Publication), source.QuoteTable(t)),
	}
}

// unloggedStop is the Stop for unlogged or foreign partitions and heirs. PostgreSQL refuses to
// publish such a table itself, but accepts a table that has it as a partition or heir. Its rows are
// not in the stream.
func (p publishedTable) unloggedStop(c *source.Config, t decode.Table) *event.Stop {
	return &event.Stop{
		Code: event.ExitOperator, Reason: "table",
		What: fmt.Sprintf("table %s has partitions or heirs whose rows are not in the WAL and would never be sent: %s", t, strings.Join(p.unsent, ", ")),
		Fix:  "ALTER TABLE ... SET LOGGED, DETACH PARTITION or NO INHERIT; then find and re-send what is in them, and start the relay again",
	}
}

// goneStop is the Stop for a table that no longer has the remembered OID.
func (p publishedTable) goneStop(c *source.Config, t decode.Table) *event.Stop {
	what := fmt.Sprintf("table %s.%s (OID %d) is gone", t.Schema, t.Name, p.known)
	switch {
	case p.OID != 0 && p.knownLeft:
		what = fmt.Sprintf("table %s.%s (OID %d) was renamed and another one (OID %d) took its name", t.Schema, t.Name, p.known, p.OID)
	case p.OID != 0:
		what = fmt.Sprintf("table %s.%s (OID %d) was dropped and created again (OID %d)", t.Schema, t.Name, p.known, p.OID)
	}
	fix := source.AcceptHint
	switch {
	case p.isSent && !p.listed: // with all tables or its schema
		return &event.Stop{
			Code: event.ExitOperator, Reason: "table_replaced", What: what + "; the publication sends the rows of both",
			Fix: "if the rows of the new one are events too, nothing is missing: " + source.AcceptCommand,
		}
	case p.listed:
		what += ": rows of the new one are not sent before it is in the publication"
	default:
		what += ": rows of a new table of that name are not sent before it is in the publication"
		fix = fmt.Sprintf("ALTER PUBLICATION %s ADD TABLE ONLY %s", source.QuoteName(c.Publication), source.QuoteTable(t)) + source.StartAgainHint
	}
	return &event.Stop{Code: event.ExitOperator, Reason: "table", What: what, Fix: fix}
}

// PublicationFacts is a text of how the publication sends the configured tables, for the ID of a
// finding: the text changes only when something changes that CheckPublication looks at. s is what
// is remembered.
func (s Sends) PublicationFacts(ctx context.Context, q source.Querier, c *source.Config) (string, error) {
	var pub string
	var bySchema bool
	err := source.Ask(ctx, q, "read pg_publication", `SELECT coalesce((SELECT concat_ws(' ', oid, xmin, pubinsert, pubviaroot, puballtables) FROM pg_publication WHERE pubname = $1), 'none'),
		to_regclass('pg_catalog.pg_publication_namespace') IS NOT NULL`, c.Publication).Scan(&pub, &bySchema)
	if err != nil {
		return "", err
	}
	facts := []any{pub}
	for _, t := range c.Tables {
		// only a remembered OID is the same for every process
		p, err := readPublished(ctx, q, c, t, s.Tables[source.QuoteTable(t)].OID, bySchema)
		if err != nil {
			return "", err
		}
		facts = append(facts, t.String(), p.OID, p.knownLeft, p.kind, p.isSent, p.listed, p.Through, p.filter, p.heirs, p.unsent, p.shape.generated, p.shape.unlisted)
	}
	return fmt.Sprint(facts...), nil
}

// PublicationStop is the finding (exit 3) about the configured publication: its text is the
// publication's name and then what, and fix says how to continue.
func PublicationStop(c *source.Config, what, fix string) *event.Stop {
	return &event.Stop{
		Code: event.ExitOperator, Reason: "publication",
		What: fmt.Sprintf("publication %q %s", c.Publication, what),
		Fix:  fix,
	}
}

// publicationMissingStop is the finding (exit 3) for a publication that does not exist. It needs a
// new slot: the old one decodes with the catalogue of the time of each row, in which the
// publication is missing, and fails there for ever (PostgreSQL 14 to 17).
func publicationMissingStop(c *source.Config) *event.Stop {
	if c.Create {
		return PublicationStop(c, "does not exist", RenewSlotHint(c))
	}
	return PublicationStop(c, "does not exist", CreatePublicationSQL(c)+source.StartAgainHint)
}

// RenewSlotHint is the fix for a slot whose publication was missing for a time.
func RenewSlotHint(c *source.Config) string {
	return source.ShowSlotHint(c.Slot) + "; then cdc-relay recover, which makes a new slot and sends what is still in the outbox table; or go on without it: " +
		source.AcceptCommand + source.NewSlotFlag + source.NewSlotHint(c)
}

// CreatePublicationSQL publishes inserts only, so that housekeeping of the outbox table costs a
// decode and no traffic, and sends a partitioned table under its own name. Messages are sent
// whatever the publication has; without tables it is empty. ONLY leaves out heirs, because anybody
// may have a temporary heir, which PostgreSQL refuses to publish; partitions are sent all the same.
func CreatePublicationSQL(c *source.Config) string {
	tables := ""
	if len(c.Tables) > 0 {
		tables = "FOR TABLE ONLY " + strings.Join(c.QuotedTables(), ", ONLY ") + " "
	}
	return fmt.Sprintf("CREATE PUBLICATION %s %sWITH (publish = 'insert', publish_via_partition_root = true)", source.QuoteName(c.Publication), tables)
}

// MadeByRelay is the comment on a publication that the relay created and may drop. It belongs to
// the publication itself: one that somebody created later under the same name does not have it, and
// every slot that uses the publication sees it.
const MadeByRelay = "Made by cdc-relay, whose teardown drops it."

// MarkPublicationSQL is the statement that sets MadeByRelay as the publication's comment.
func MarkPublicationSQL(c *source.Config) string {
	return fmt.Sprintf("COMMENT ON PUBLICATION %s IS %s", source.QuoteName(c.Publication), source.QuoteText(MadeByRelay))
}

// startAgainHint is the end of a fix for a publication of a slot in use: after the fix, what the
// publication hid until then may be missing, which is the next finding. It is "" for a new slot,
// which has lost nothing.
func (s Sends) startAgainHint() string {
	if s.Publication == 0 {
		return ""
	}
	return source.StartAgainHint
}

// publishedSQL is a subquery for LATERAL with a row if publication $1 sends c, a row of pg_class.
// The row has the row filter, the attribute numbers of the column list, and whether stored
// generated columns are sent where there is no column list. bySchema is set when the server has
// publications of whole schemas, which came with row filters and column lists.
//
// pg_publication_tables has the same answers, but opens every table of the publication for them: it
// would wait for whoever has locked any of these (VACUUM FULL, ALTER TABLE), and the relay with it.
// No table is locked here, except c when it has a row filter. The rules are those of
// pg_get_publication_tables:
//
//   - FOR ALL TABLES has what is publishable; with publish_via_partition_root no partitions, else
//     no partitioned tables.
//   - Otherwise, with publish_via_partition_root, a table must be listed or in a listed schema
//     itself, and no table that it is a partition of may be. Else one of them is enough, and
//     partitioned tables do not count.
//   - Row filter and column list are those of the table's own membership, and do not apply when the
//     publication also has all tables or the table's schema.
func publishedSQL(bySchema bool) string {
	filter, inSchema := "''", func(string) string { return "false" }
	if bySchema {
		filter, inSchema = "coalesce(pg_get_expr(r.prqual, r.prrelid), '')", func(class string) string {
			return "EXISTS (SELECT FROM pg_publication_namespace s WHERE s.pnpubid = b.oid AND s.pnnspid = " + class + ".relnamespace)"
		}
	}
	return `SELECT true AS sent, ` + filter + ` AS filter, nullif(to_jsonb(r)->'prattrs', 'null') AS attnums,
			coalesce(to_jsonb(b)->>'pubgencols' = 's', false) AS stored
		FROM pg_publication b
		CROSS JOIN LATERAL (SELECT coalesce(bool_or(k.oid = c.oid), false) AS itself, coalesce(bool_or(k.oid <> c.oid), false) AS above FROM pg_class k
			WHERE k.oid IN (SELECT c.oid UNION SELECT a.relid::oid FROM pg_partition_ancestors(c.oid) a(relid))
				AND (EXISTS (SELECT FROM pg_publication_rel l WHERE l.prpubid = b.oid AND l.prrelid = k.oid)
					OR pg_relation_is_publishable(k.oid) AND ` + inSchema("k") + `)) named
		LEFT JOIN pg_publication_rel r ON r.prpubid = b.oid AND r.prrelid = c.oid AND NOT b.puballtables AND NOT ` + inSchema("c") + `
		WHERE b.pubname = $1 AND CASE
			WHEN b.puballtables THEN pg_relation_is_publishable(c.oid) AND CASE WHEN b.pubviaroot THEN NOT c.relispartition ELSE c.relkind = 'r' END
			WHEN b.pubviaroot THEN named.itself AND NOT named.above
			ELSE (named.itself OR named.above) AND c.relkind <> 'p' END`
}

// hasSchemaPublications reports whether the server has publications of whole schemas: PostgreSQL 15
// and later.
func hasSchemaPublications(ctx context.Context, q source.Querier) (yes bool, err error) {
	err = source.Ask(ctx, q, "look for pg_publication_namespace", `SELECT to_regclass('pg_catalog.pg_publication_namespace') IS NOT NULL`).Scan(&yes)
	return yes, err
}
