// Checks one configured table and its membership in the publication.

package publication

import (
	"context"
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// published is one configured table and its membership in the publication, from the catalogue.
type published struct {
	// of the table with the configured name; if there is none, of the table with the known OID
	Table
	known     uint32 // the OID that is remembered
	knownLeft bool   // a table of that OID exists, under whatever name
	kind      string // pg_class.relkind
	member    bool   // the publication sends it, for whatever reason
	listed    bool   // it is named in the publication by itself
	filter    string // row filter (PostgreSQL 15 and later)
	shape     shape
	// tables that inherit from it and are not configured. Rows of a temporary one are in no stream
	// and in nobody's query but its session's
	heirs  []string
	unsent []string // partitions and heirs whose rows are not in the WAL, and why
}

// readPublished looks a table up by its configured name and by its known OID. OID 0: there is
// neither. bySchema is set when the server has publications of whole schemas.
func readPublished(ctx context.Context, q source.Querier, c *source.Config, t decode.Table, known uint32, bySchema bool) (published, error) {
	schemas := ""
	if bySchema {
		schemas = `|| array(SELECT s.oid FROM pg_publication_namespace s JOIN pg_publication b ON b.oid = s.pnpubid
			WHERE b.pubname = $1 AND s.pnnspid = c.relnamespace ORDER BY 1)`
	}
	p := published{known: known}
	names, oids := make([]string, len(c.Tables)), make([]uint32, len(c.Tables))
	for i, configured := range c.Tables {
		names[i], oids[i] = configured.String(), configured.OID
	}
	// A view that replaced a renamed table does not count.
	err := q.QueryRow(ctx, `SELECT c.oid, c.relkind::text, EXISTS (SELECT FROM pg_class k WHERE k.oid = $2),
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
			LEFT JOIN LATERAL (`+sentSQL(bySchema)+`) p ON true
		WHERE c.oid = $2 OR n.nspname = $3 AND c.relname = $4 AND c.relkind IN ('r', 'p')
		ORDER BY n.nspname = $3 AND c.relname = $4 DESC LIMIT 1`, c.Publication, known, t.Schema, t.Name, oids, names).
		Scan(&p.OID, &p.kind, &p.knownLeft, &p.member, &p.filter, &p.listed, &p.Through, &p.heirs, &p.unsent)
	if err != nil && !source.IsNoRows(err) {
		return p, fmt.Errorf("read how the publication sends %s: %w", t, err)
	}
	if len(p.Through) == 0 {
		p.Through = nil // as it comes back from the table
	}
	p.shape, err = readShape(ctx, q, c, t, bySchema)
	return p, err
}

func (p published) check(c *source.Config, t decode.Table, was State, viaRoot bool) error {
	old, remembered := was.Tables[source.QuoteTable(t)]
	accept := ""
	if remembered {
		accept = was.again()
	}
	if p.OID == 0 || p.OID != p.known {
		return p.gone(c, t)
	}
	if p.kind == "p" && !viaRoot {
		return Stop(c, fmt.Sprintf("sends the partitions of %s.%s under their own names", t.Schema, t.Name),
			fmt.Sprintf("ALTER PUBLICATION %s SET (publish_via_partition_root = true)", source.QuoteName(c.Publication))+was.again())
	}
	if !p.member {
		return Stop(c, fmt.Sprintf("does not contain table %s.%s", t.Schema, t.Name),
			fmt.Sprintf("ALTER PUBLICATION %s ADD TABLE ONLY %s%s", source.QuoteName(c.Publication), source.QuoteTable(t), accept))
	}
	if p.filter != "" {
		return Stop(c, fmt.Sprintf("hides rows of table %s.%s: it has the row filter %s", t.Schema, t.Name, p.filter),
			source.ReaddTableSQL(c, t)+accept)
	}
	if err := p.shape.checkListed(c, t, accept); err != nil {
		return err
	}
	if err := p.shape.checkGenerated(c, t, was.Publication != 0); err != nil {
		return err
	}
	if len(p.heirs) > 0 {
		return p.inherited(c, t)
	}
	if len(p.unsent) > 0 {
		return p.hidden(c, t)
	}
	if remembered && !p.uninterrupted(old) {
		return Stop(c, fmt.Sprintf("had table %s.%s taken out and put back", t.Schema, t.Name),
			source.AcceptHint)
	}
	return nil
}

// inherited is the Stop for tables that inherit from ours: a SELECT from our table includes their
// rows, but they are sent under their own table's name and would be skipped.
func (p published) inherited(c *source.Config, t decode.Table) *event.Stop {
	heirs := strings.Join(p.heirs, ", ")
	return &event.Stop{
		Code: event.ExitOperator, Reason: "table",
		What: fmt.Sprintf("table %s has tables that inherit from it (%s), whose rows are sent under their own names and would be skipped", t, heirs),
		Fix: fmt.Sprintf("add them to source.tables and to the publication (ALTER PUBLICATION %s ADD TABLE ...), or end the inheritance: ALTER TABLE ... NO INHERIT %s; a partitioned table does not have this problem",
			source.QuoteName(c.Publication), source.QuoteTable(t)),
	}
}

// hidden is the Stop for unlogged or foreign partitions and heirs: PostgreSQL refuses to publish
// such a table, but not one that has it below it. Its rows are not in the stream.
func (p published) hidden(c *source.Config, t decode.Table) *event.Stop {
	return &event.Stop{
		Code: event.ExitOperator, Reason: "table",
		What: fmt.Sprintf("table %s has partitions or heirs whose rows are not in the WAL and would never be sent: %s", t, strings.Join(p.unsent, ", ")),
		Fix:  "ALTER TABLE ... SET LOGGED, DETACH PARTITION or NO INHERIT; then find and re-send what is in them, and start the relay again",
	}
}

func (p published) gone(c *source.Config, t decode.Table) *event.Stop {
	what := fmt.Sprintf("table %s.%s (OID %d) is gone", t.Schema, t.Name, p.known)
	switch {
	case p.OID != 0 && p.knownLeft:
		what = fmt.Sprintf("table %s.%s (OID %d) was renamed and another one (OID %d) took its name", t.Schema, t.Name, p.known, p.OID)
	case p.OID != 0:
		what = fmt.Sprintf("table %s.%s (OID %d) was dropped and created again (OID %d)", t.Schema, t.Name, p.known, p.OID)
	}
	fix := source.AcceptHint
	switch {
	case p.member && !p.listed: // with all tables or its schema
		return &event.Stop{
			Code: event.ExitOperator, Reason: "table_replaced", What: what + "; the publication sends the rows of both",
			Fix: "if the rows of the new one are events too, nothing is missing: " + source.AcceptCommand,
		}
	case p.listed:
		what += ": rows of the new one are not sent before it is in the publication"
	default:
		what += ": rows of a new table of that name are not sent before it is in the publication"
		fix = fmt.Sprintf("ALTER PUBLICATION %s ADD TABLE ONLY %s", source.QuoteName(c.Publication), source.QuoteTable(t)) + source.AgainHint
	}
	return &event.Stop{Code: event.ExitOperator, Reason: "table", What: what, Fix: fix}
}

// Facts describes how the publication sends the configured tables: two texts are the same while
// nothing has changed that Check looks at. s is what is remembered.
func (s State) Facts(ctx context.Context, q source.Querier, c *source.Config) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	var pub string
	var bySchema bool
	err := q.QueryRow(ctx, `SELECT coalesce((SELECT concat_ws(' ', oid, xmin, pubinsert, pubviaroot, puballtables) FROM pg_publication WHERE pubname = $1), 'none'),
		to_regclass('pg_catalog.pg_publication_namespace') IS NOT NULL`, c.Publication).Scan(&pub, &bySchema)
	if err != nil {
		return "", fmt.Errorf("read pg_publication: %w", err)
	}
	facts := []any{pub}
	for _, t := range c.Tables {
		// only a remembered OID is the same for every process
		p, err := readPublished(ctx, q, c, t, s.Tables[source.QuoteTable(t)].OID, bySchema)
		if err != nil {
			return "", err
		}
		facts = append(facts, t.String(), p.OID, p.knownLeft, p.kind, p.member, p.listed, p.Through, p.filter, p.heirs, p.unsent, p.shape.generated, p.shape.unlisted)
	}
	return fmt.Sprint(facts...), nil
}
