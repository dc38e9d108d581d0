// What the publication sends next to the configured tables: for the log, and for check.

package replication

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// others is what is not configured and may come all the same.
type others struct {
	foreign []string       // listed tables whose rows are passed over, as schema.name
	stops   []*outbox.Stop // what the relay will end with at the first row, or message, of each of the others
}

// lookAtOthers asks for the listed tables, and for those that the slot has relayed and still gets.
func (s sends) lookAtOthers(ctx context.Context, q querier, c *Config) (b others, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	rows, err := q.Query(ctx, `SELECT r.prrelid, n.nspname || '.' || c.relname FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid
		JOIN pg_class c ON c.oid = r.prrelid JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE p.pubname = $1 AND r.prrelid <> ALL ($2::oid[]) ORDER BY 2`, c.Publication, s.configured(c))
	if err != nil {
		return b, fmt.Errorf("read pg_publication_rel: %w", err)
	}
	var oid uint32
	var name string
	_, err = pgx.ForEachRow(rows, []any{&oid, &name}, func() error {
		if slices.Contains(s.Foreign, oid) {
			b.foreign = append(b.foreign, name)
			return nil
		}
		of := scope{listed: name, listOID: oid}
		of.left, of.leftOID = s.leftOut(c, name, []uint32{oid})
		b.stops = append(b.stops, of.stop(c, name, oid))
		return nil
	})
	if err != nil {
		return b, fmt.Errorf("read pg_publication_rel: %w", err)
	}
	if err := s.unlisted(ctx, q, c, &b); err != nil {
		return b, err
	}
	for _, prefix := range s.droppedPrefixes(c) {
		b.stops = append(b.stops, prefixLeftOut(c, prefix))
	}
	return b, nil
}

// unlisted adds the tables that the slot has relayed, that are no longer configured, and that
// the publication has with all tables or their schema.
func (s sends) unlisted(ctx context.Context, q querier, c *Config, b *others) error {
	configured := c.quotedTables()
	for quoted, t := range s.Tables {
		if slices.Contains(configured, quoted) {
			continue
		}
		var there bool
		if err := q.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_class WHERE oid = $1)`, t.OID).Scan(&there); err != nil {
			return fmt.Errorf("read pg_class: %w", err)
		}
		of, err := s.scopeOf(ctx, q, c, t.OID, unquoted(quoted))
		if err != nil {
			return err
		}
		if there && !of.ignored && of.listed == "" && (of.all || of.schema) {
			of.left, of.leftOID = unquoted(quoted), t.OID
			b.stops = append(b.stops, of.stop(c, of.left, t.OID))
		}
	}
	return nil
}

// configured are the OIDs of the configured tables, as they are remembered.
func (s sends) configured(c *Config) []uint32 {
	oids := []uint32{}
	for _, table := range c.quotedTables() {
		if t, known := s.Tables[table]; known {
			oids = append(append(oids, t.OID), t.Former...)
		}
	}
	return oids
}

// sayForeign says once, when a slot is first used, whose rows are passed over.
func (s sends) sayForeign(ctx context.Context, q querier, c *Config) {
	b, err := s.lookAtOthers(ctx, q, c)
	if err == nil && len(b.foreign) > 0 {
		c.Log.Info("the publication lists other tables too: their rows are not relayed",
			zap.String("tables", strings.Join(b.foreign, ", ")), zap.String("publication", c.Publication), zap.String("slot", c.Slot))
	}
}
