// The columns of a configured table. A column that PostgreSQL does not send would be missing from
// the messages unnoticed, so the columns are checked in the catalogue; and what a message with a
// schema needs of a column and the stream does not have is read there too.

package schema

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/sent"
)

// tableShape is the columns of a configured table in the catalogue, and those that are not sent
// with its rows. Without a check of the latter an optional column that is not sent would be missing
// from the messages unnoticed.
type tableShape struct {
	oid     uint32          // of the table under the configured name; 0: there is none
	columns []decode.Column // in order, without the generated ones that are not sent
	typmods []int32         // of the columns
	// generated are the generated columns that are not sent: before PostgreSQL 18 none is sent,
	// since then one is sent when the publication says so
	generated []string
	// unlisted are the columns that are not sent because the publication has a column list without
	// them (PostgreSQL 15 and later)
	unlisted []string
}

// readShape reads the columns of a table under its configured name. bySchema is set when the server
// has publications of whole schemas.
func readShape(ctx context.Context, q source.Querier, c *source.Config, t decode.Table, bySchema bool) (tableShape, error) {
	var s tableShape
	type column struct {
		OID             uint32
		Name            string
		TypeOID         uint32
		Typmod          int32
		Schema, Type    string // of its base type
		Generated, Sent bool
	}
	// A column list of PostgreSQL 15 to 17 may name generated columns, which are not sent.
	columns, err := source.List(ctx, q, "read columns of "+t.String(), pgx.RowToStructByPos[column], `SELECT c.oid, coalesce(a.attname, ''), coalesce(a.atttypid, 0), coalesce(a.atttypmod, -1),
			CASE y.typnamespace WHEN 'pg_catalog'::regnamespace THEN '' ELSE coalesce(y.typnamespace::regnamespace::text, '') END, coalesce(y.typname, ''),
			coalesce(a.attgenerated <> '', false),
			coalesce(CASE
				WHEN p.sent IS NULL OR a.attgenerated <> '' AND current_setting('server_version_num')::int < 180000 THEN a.attgenerated = ''
				WHEN p.attnums IS NOT NULL THEN p.attnums @> to_jsonb(a.attnum)
				ELSE a.attgenerated = '' OR a.attgenerated = 's' AND p.stored END, false)
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		LEFT JOIN LATERAL (`+publishedSQL(bySchema)+`) p ON true
		LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
		LEFT JOIN pg_type y ON y.oid = `+sent.BaseTypeSQL("a.atttypid")+`
		WHERE n.nspname = $2 AND c.relname = $3 AND c.relkind IN ('r', 'p') ORDER BY a.attnum`, c.Publication, t.Schema, t.Name)
	if err != nil {
		return s, err
	}
	for _, col := range columns {
		s.oid = col.OID
		name := col.Name
		switch {
		case name == "": // a table without columns
			continue
		case col.Generated && !col.Sent:
			s.generated = append(s.generated, name)
			continue
		case !col.Sent:
			s.unlisted = append(s.unlisted, name)
		}
		of := decode.TypeName{Schema: col.Schema, Name: col.Type}
		s.columns, s.typmods = append(s.columns, decode.NewColumn(name, col.TypeOID, of)), append(s.typmods, col.Typmod)
	}
	return s, nil
}

// checkGenerated refuses a mapping to a column that is computed by the server and not sent. used
// means that a slot is read with the publication.
func (s tableShape) checkGenerated(c *source.Config, t decode.Table, used bool) error {
	missed := t.Misses(s.columns, s.generated, c.Columns)
	if len(missed) == 0 {
		return nil
	}
	adopt := "" // an altered publication is
	if used {
		adopt = source.StartAgainHint
	}
	return &event.Stop{
		Code: event.ExitMapping, Reason: "mapping",
		What: fmt.Sprintf("table %s does not fit the mapping: %s is a generated column, whose values PostgreSQL does not send", t, strings.Join(missed, ", ")),
		Fix: fmt.Sprintf("name another column under outbox: in the configuration, or make it an ordinary one that the application fills (ALTER TABLE ... ALTER COLUMN ... DROP EXPRESSION); from PostgreSQL 18 on a stored one can be sent: ALTER PUBLICATION %s SET (publish_generated_columns = stored)",
			source.QuoteName(c.Publication)) + adopt,
	}
}

// checkListed refuses a column list without a mapped column, even if another column for the same
// part is listed: an application that fills the hidden column would send events without it. accept
// is added to the fix.
func (s tableShape) checkListed(c *source.Config, t decode.Table, accept string) error {
	missed := t.Reads(s.unlisted, c.Columns)
	if len(missed) == 0 {
		return nil
	}
	return PublicationStop(c, fmt.Sprintf("hides columns of table %s: its column list is without %s", t, strings.Join(missed, ", ")),
		source.ReaddTableSQL(c, t)+accept)
}

// checkTypes makes, at the start, the check that the stream makes at the table's first row: a table
// whose rows would all become dead letters is refused.
func (s tableShape) checkTypes(ctx context.Context, q source.Querier, c *source.Config, t decode.Table) error {
	if err := t.Check(s.columns, c.Columns); err != nil || t.Fits == nil {
		return err
	}
	whole := event.Shape{Schema: t.Schema, Table: t.Name}
	for i, col := range s.columns {
		whole.Columns = append(whole.Columns, col.Shape(s.typmods[i]))
	}
	if err := CompleteShape(ctx, q, c.Types, &whole, s.oid); err != nil {
		return err
	}
	return t.CheckShapes(whole.Columns)
}

// TableColumns are the columns of a table that come with its rows, in order, and their type
// modifiers, as a Relation frame has them. If there is no publication yet, they are those that a
// new one would send.
func TableColumns(ctx context.Context, q source.Querier, c *source.Config, t decode.Table) (columns []decode.Column, typmods []int32, err error) {
	bySchema, err := hasSchemaPublications(ctx, q)
	if err != nil {
		return nil, nil, err
	}
	s, err := readShape(ctx, q, c, t, bySchema)
	if err != nil {
		return nil, nil, err
	}
	for i, col := range s.columns {
		if !slices.Contains(s.unlisted, col.Name) {
			columns, typmods = append(columns, col), append(typmods, s.typmods[i])
		}
	}
	return columns, typmods, nil
}

// FindTables looks the configured tables up in the catalogue, checks their mappings and returns
// them with their OIDs. firstStart says whether a table that is not there is a wrong configuration
// (exit 4) or a loss (exit 3).
func FindTables(ctx context.Context, pool *pgxpool.Pool, c *source.Config, firstStart bool) ([]decode.Table, error) {
	bySchema, err := hasSchemaPublications(ctx, pool)
	if err != nil {
		return nil, err
	}
	found := make([]decode.Table, len(c.Tables))
	for i, t := range c.Tables {
		s, err := readShape(ctx, pool, c, t, bySchema)
		if err != nil {
			return nil, err
		}
		if s.oid == 0 {
			return nil, tableMissingStop(c, t, firstStart)
		}
		if err := s.checkGenerated(c, t, !firstStart); err != nil {
			return nil, err
		}
		if err := s.checkTypes(ctx, pool, c, t); err != nil {
			return nil, err
		}
		t.OID, t.Unused = s.oid, t.Defaults(s.columns)
		found[i] = t
	}
	return found, nil
}

// tableMissingStop is the Stop for a configured table that does not exist.
func tableMissingStop(c *source.Config, t decode.Table, firstStart bool) *event.Stop {
	stop := &event.Stop{
		Code: event.ExitOperator, Reason: "table",
		What: fmt.Sprintf("table %s.%s does not exist", t.Schema, t.Name),
		Fix:  "restore it, or name the table that replaced it in source.tables" + source.StartAgainHint,
	}
	if firstStart {
		stop.Code, stop.Fix = event.ExitMapping, "create it (`cdc-relay init --outbox-table` does), or correct source.tables"
		if c.Messages.Prefix != "" {
			stop.Fix += " (`tables: []` relays messages alone)"
		}
	}
	return stop
}

// CompleteShape completes the columns of shape with properties that the stream does not have: NOT
// NULL, defaults, labels of enums, digits of domains. It reads them from the catalogue, by the OIDs
// of the table and of the types. The slot may have rows from before a type was dropped. Of such a
// type CompleteShape takes what is remembered, or else what the stream says of it. It waits for
// source.AnswerTimeout at most.
func CompleteShape(ctx context.Context, q source.Querier, remembered *source.Types, shape *event.Shape, oid uint32) error {
	names, types, typmods := make([]string, len(shape.Columns)), make([]uint32, len(shape.Columns)), make([]int32, len(shape.Columns))
	for i, c := range shape.Columns {
		names[i], types[i], typmods[i] = c.Name, c.TypeOID, c.Typmod
	}
	type column struct {
		N       int
		NotNull bool
		Default *string
		TypeOID uint32
		Typmod  int32
		Labels  []string
		Citext  bool
		Type    string
	}
	columns, err := source.List(ctx, q, "read the shape of table "+shape.Schema+"."+shape.Table, pgx.RowToStructByPos[column], `SELECT f.n - 1, coalesce(a.attnotnull OR t.typtype = 'd' AND t.typnotnull, false), pg_get_expr(d.adbin, d.adrelid),
			coalesce(b.oid, 0), coalesce(b.typmod, -1),
			CASE WHEN b.typtype = 'e' THEN array(SELECT e.enumlabel::text FROM pg_enum e WHERE e.enumtypid = b.oid ORDER BY e.enumsortorder) END,
			coalesce(b.typname = 'citext', false), coalesce(CASE WHEN b.typtype <> 'e' THEN format_type(b.oid, NULL) END, '')
		FROM unnest($2::text[], $3::oid[], $4::int4[]) WITH ORDINALITY f(name, type, typmod, n)
		LEFT JOIN LATERAL (
			WITH RECURSIVE down AS (
				SELECT y.oid, y.typname, y.typtype, y.typbasetype, f.typmod AS typmod, y.typtypmod, 0 AS depth FROM pg_type y WHERE y.oid = f.type
				UNION ALL SELECT y.oid, y.typname, y.typtype, y.typbasetype, down.typtypmod, y.typtypmod, down.depth + 1
					FROM down JOIN pg_type y ON y.oid = down.typbasetype WHERE down.typtype = 'd')
			SELECT oid, typname, typtype, typmod FROM down ORDER BY depth DESC LIMIT 1) b ON true
		LEFT JOIN pg_attribute a ON a.attrelid = $1 AND a.attname = f.name AND a.attnum > 0 AND NOT a.attisdropped
		LEFT JOIN pg_type t ON t.oid = a.atttypid
		LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum`, oid, names, types, typmods)
	if err != nil {
		return err
	}
	known := pgtype.NewMap()
	for _, now := range columns {
		c := &shape.Columns[now.N]
		own := c.TypeOID
		if c.NotNull, c.Default = now.NotNull, now.Default; now.TypeOID == 0 {
			if !remembered.Recall(c) {
				completeDropped(c)
			}
			continue
		}
		c.TypeOID, c.Typmod, c.Labels, c.Type = now.TypeOID, now.Typmod, now.Labels, ""
		if now.Citext { // to Debezium a text, whose default it does not read
			c.TypeOID, c.Typmod, c.Default = pgtype.TextOID, -1, nil
		}
		// a dead letter would have its OID without the number
		if _, ok := known.TypeForOID(c.TypeOID); !ok && c.TypeOID != pgtype.TimetzOID {
			c.Type = now.Type
		}
		remembered.Remember(own, c)
	}
	return nil
}

// ownForms are extensions' types that Debezium does not send as text.
var ownForms = []string{"hstore", "ltree", "geometry", "geography", "vector", "halfvec", "sparsevec"}

// completeDropped completes a column whose type was dropped and is not remembered, from what the
// stream says of the type. A domain over a type without digits becomes its base type. Other types
// become text, because enums and citext are sent as text. Arrays, and types for which Debezium has
// a form of its own, keep their name, and are refused as types that exist are. Domains over numbers
// and times are refused too, because their digits are not known.
func completeDropped(c *event.ColumnShape) {
	name := c.Type[strings.LastIndexByte(c.Type, '.')+1:]
	switch c.Base {
	case pgtype.NumericOID, pgtype.TimeOID, pgtype.TimestampOID, pgtype.TimestamptzOID:
		c.Type += ", in a domain that was dropped with its digits,"
	case 0:
		if !strings.HasSuffix(name, "[]") && !slices.Contains(ownForms, name) {
			c.TypeOID, c.Typmod, c.Type = pgtype.TextOID, -1, ""
		}
	default:
		c.TypeOID, c.Typmod = c.Base, -1
		if _, ok := pgtype.NewMap().TypeForOID(c.Base); ok {
			c.Type = ""
		}
	}
}
