package replication

import (
	"context"
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// published is what the catalogue says of one configured table and its part in the publication.
type published struct {
	sentTable        // of the table under the configured name; when there is none, of the one with the OID we know
	known     uint32 // the OID we know
	knownLeft bool   // a table of that OID exists, under whatever name
	kind      string // pg_class.relkind
	member    bool   // the publication sends it, for whatever reason
	listed    bool   // it is named in the publication by itself
	filter    string // row filter (PostgreSQL 15 and later)
}

// readPublished looks a table up by its configured name and by the OID we know it by. OID 0: there is neither.
// bySchema: the server has publications of whole schemas.
func readPublished(ctx context.Context, q querier, c *Config, t decode.Table, known uint32, bySchema bool) (published, error) {
	schemas := ""
	if bySchema {
		schemas = `|| array(SELECT s.oid FROM pg_publication_namespace s JOIN pg_publication b ON b.oid = s.pnpubid
			WHERE b.pubname = $1 AND s.pnnspid = c.relnamespace ORDER BY 1)`
	}
	p := published{known: known}
	// A view that took the place of a renamed table is no table; to_jsonb because PostgreSQL 14 has no row filters.
	err := q.QueryRow(ctx, `SELECT c.oid, c.relkind::text, EXISTS (SELECT FROM pg_class k WHERE k.oid = $2),
			p.pubname IS NOT NULL, coalesce(to_jsonb(p)->>'rowfilter', ''),
			EXISTS (SELECT FROM pg_publication_rel r JOIN pg_publication b ON b.oid = r.prpubid WHERE b.pubname = $1 AND r.prrelid = c.oid),
			array(SELECT r.oid FROM pg_publication_rel r JOIN pg_publication b ON b.oid = r.prpubid WHERE b.pubname = $1
				AND (r.prrelid = c.oid OR r.prrelid IN (SELECT a.relid::oid FROM pg_partition_ancestors(c.oid) a(relid))) ORDER BY 1) `+schemas+`
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
			LEFT JOIN pg_publication_tables p ON p.pubname = $1 AND p.schemaname = n.nspname AND p.tablename = c.relname
		WHERE c.oid = $2 OR n.nspname = $3 AND c.relname = $4 AND c.relkind IN ('r', 'p')
		ORDER BY n.nspname = $3 AND c.relname = $4 DESC LIMIT 1`, c.Publication, known, t.Schema, t.Name).
		Scan(&p.OID, &p.kind, &p.knownLeft, &p.member, &p.filter, &p.listed, &p.Through)
	if err != nil && !isNoRows(err) {
		return p, fmt.Errorf("read pg_publication_tables: %w", err)
	}
	if len(p.Through) == 0 {
		p.Through = nil // as it comes back from the table
	}
	return p, nil
}

func (p published) check(c *Config, t decode.Table, was sends, viaRoot bool) error {
	old, remembered := was.Tables[quoteTable(t)]
	// What was hidden from a slot in use is lost, and the operator says so by adopting the slot.
	accept := ""
	if remembered {
		accept = "; then find and re-send what is missing" + adoptHint(c)
	}
	// A new table of the old name is sent without a gap when the publication has it through ALL TABLES or its schema; one
	// that was listed by itself was listed some time after its first rows.
	if p.OID == 0 || p.OID != p.known && (!p.member || p.listed) {
		return p.gone(c, t)
	}
	if p.kind == "p" && !viaRoot {
		return publicationStop(c, fmt.Sprintf("sends the partitions of %s.%s under their own names", t.Schema, t.Name),
			fmt.Sprintf("ALTER PUBLICATION %s SET (publish_via_partition_root = true)", quoteName(c.Publication)))
	}
	if !p.member {
		return publicationStop(c, fmt.Sprintf("does not contain table %s.%s", t.Schema, t.Name),
			fmt.Sprintf("ALTER PUBLICATION %s ADD TABLE %s%s", quoteName(c.Publication), quoteTable(t), accept))
	}
	if p.filter != "" { // not SET TABLE: it would take the publication's other tables out
		return publicationStop(c, fmt.Sprintf("hides rows of table %s.%s: it has the row filter %s", t.Schema, t.Name, p.filter),
			fmt.Sprintf("ALTER PUBLICATION %[1]s DROP TABLE %[2]s; ALTER PUBLICATION %[1]s ADD TABLE %[2]s%[3]s",
				quoteName(c.Publication), quoteTable(t), accept))
	}
	if remembered && !p.uninterrupted(old) {
		return publicationStop(c, fmt.Sprintf("had table %s.%s taken out and put back", t.Schema, t.Name),
			"find and re-send what is missing"+adoptHint(c))
	}
	return nil
}

func (p published) gone(c *Config, t decode.Table) *outbox.Stop {
	what := fmt.Sprintf("table %s.%s (OID %d) is gone", t.Schema, t.Name, p.known)
	switch {
	case p.OID != 0 && p.knownLeft:
		what = fmt.Sprintf("table %s.%s (OID %d) was renamed and another one (OID %d) took its name", t.Schema, t.Name, p.known, p.OID)
	case p.OID != 0:
		what = fmt.Sprintf("table %s.%s (OID %d) was dropped and created anew (OID %d)", t.Schema, t.Name, p.known, p.OID)
	}
	mend := fmt.Sprintf("ALTER PUBLICATION %s ADD TABLE %s; then find and re-send what is missing", quoteName(c.Publication), quoteTable(t))
	if p.listed {
		mend = "find and re-send what is missing"
	}
	return &outbox.Stop{
		Code: outbox.ExitOperator, Reason: "table",
		What: what + ": rows of a new table of that name are not sent before it is in the publication",
		Mend: mend + adoptHint(c),
	}
}
