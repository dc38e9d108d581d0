// The columns of one part of an event: how a row is found by its id, key or aggregate.

package tablerows

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/tableread"
)

// Part are the columns that a part of an event may come from: of a row it is the first that is not
// NULL. Empty: the table has none of them.
type Part []PartColumn

// PartColumn is one of them.
type PartColumn struct {
	Name string
	Kind string // its type in SQL, of a domain the base type
	// values can be compared as those of the type, so that an index is used; else as text
	equals bool
}

// NotOwn is the error for a column whose type is not one of PostgreSQL's own: to compare its values
// would run functions of its owner.
type NotOwn struct {
	Column string
	Table  decode.Table
}

func (e *NotOwn) Error() string {
	return fmt.Sprintf("the type of column %s of %s is not one of PostgreSQL's own", e.Column, e.Table)
}

// FindPart finds the columns with these names that a table has, in their order.
func FindPart(ctx context.Context, pool *pgxpool.Pool, t decode.Table, names []string) (p Part, err error) {
	rows, err := pool.Query(ctx, `SELECT attname::text, 'pg_catalog.' || quote_ident(y.typname), y.typnamespace = 'pg_catalog'::regnamespace,
			EXISTS (SELECT FROM pg_operator o WHERE o.oprname = '=' AND o.oprleft = y.oid AND o.oprright = y.oid) OR y.typname = 'varchar' AS equals
		FROM pg_attribute JOIN pg_type y ON y.oid = `+tableread.BaseTypeSQL("atttypid")+`
		WHERE attrelid = $1 AND attnum > 0 AND attname = ANY ($2::text[]) AND NOT attisdropped
		ORDER BY array_position($2::text[], attname::text)`, t.OID, names)
	if err != nil {
		return nil, fmt.Errorf("read the columns of %s: %w", t, err)
	}
	var c PartColumn
	var own bool
	_, err = pgx.ForEachRow(rows, []any{&c.Name, &c.Kind, &own, &c.equals}, func() error {
		if !own {
			return &NotOwn{c.Name, t}
		}
		p = append(p, c)
		return nil
	})
	return p, err
}

// IsSQL is the condition that the part of a row of alias t is a text.
func (p Part) IsSQL(text string) string {
	value := source.QuoteText(text)
	var any, first []string
	for _, c := range p {
		name := "t." + source.QuoteName(c.Name)
		if c.equals {
			any = append(any, name+"::"+c.Kind+" = "+value+"::text::"+c.Kind)
		} else {
			any = append(any, name+"::text = "+value)
		}
		first = append(first, "CASE WHEN "+name+" IS NOT NULL THEN "+tableread.TextSQL(name, c.Kind == "pg_catalog.bpchar")+" END")
	}
	sql := "(" + strings.Join(any, " OR ") + ")"
	if len(p) > 1 { // one of them may have the text, and another one comes before it
		sql += " AND coalesce(" + strings.Join(first, ", ") + ") = " + value
	}
	return sql
}

// Check returns the server's error for a text that is no value of the columns' types.
func (p Part) Check(ctx context.Context, pool *pgxpool.Pool, text string) error {
	for _, c := range p {
		if !c.equals {
			continue
		}
		var fits bool
		if err := pool.QueryRow(ctx, "SELECT "+source.QuoteText(text)+"::text::"+c.Kind+" IS NOT NULL").Scan(&fits); err != nil {
			return err
		}
	}
	return nil
}
