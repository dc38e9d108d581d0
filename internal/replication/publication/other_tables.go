// Finds what the publication sends in addition to the configured tables, for the log and for check.

package publication

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// others is what is not configured but may be sent.
type others struct {
	Foreign []string // listed tables whose rows are skipped, as schema.name
	// the Stop at the first row, or message, of each of the others
	Stops []*event.Stop
}

// ReadOthers reads the listed tables, and those that the slot has relayed and still gets.
func (s State) ReadOthers(ctx context.Context, q source.Querier, c *source.Config) (b others, err error) {
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	rows, err := q.Query(ctx, `SELECT r.prrelid, n.nspname || '.' || c.relname FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid
		JOIN pg_class c ON c.oid = r.prrelid JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE p.pubname = $1 AND r.prrelid <> ALL ($2::oid[]) AND NOT `+partOf("r.prrelid", "$2::oid[]")+` ORDER BY 2`, c.Publication, s.configured(c))
	if err != nil {
		return b, fmt.Errorf("read pg_publication_rel: %w", err)
	}
	var oid uint32
	var name string
	_, err = pgx.ForEachRow(rows, []any{&oid, &name}, func() error {
		if slices.Contains(s.Foreign, oid) {
			b.Foreign = append(b.Foreign, name)
			return nil
		}
		of := scope{listed: name, listOID: oid}
		of.Left, of.LeftOID = s.LeftOut(c, name, []uint32{oid})
		b.Stops = append(b.Stops, of.Stop(c, name, oid))
		return nil
	})
	if err != nil {
		return b, fmt.Errorf("read pg_publication_rel: %w", err)
	}
	if err := s.unlisted(ctx, q, c, &b); err != nil {
		return b, err
	}
	for _, prefix := range s.DroppedPrefixes(c) {
		b.Stops = append(b.Stops, PrefixLeftOut(c, prefix))
	}
	return b, nil
}

// unlisted adds the tables that the slot has relayed, that are no longer configured, and that
// the publication has with all tables or their schema.
func (s State) unlisted(ctx context.Context, q source.Querier, c *source.Config, b *others) error {
	configured := c.QuotedTables()
	for quoted, t := range s.Tables {
		if slices.Contains(configured, quoted) {
			continue
		}
		var there bool
		if err := q.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_class WHERE oid = $1)`, t.OID).Scan(&there); err != nil {
			return fmt.Errorf("read pg_class: %w", err)
		}
		of, err := s.ScopeOf(ctx, q, c, t.OID, unquoted(quoted))
		if err != nil {
			return err
		}
		if there && !of.ignored && of.listed == "" && (of.all || of.schema) {
			of.Left, of.LeftOID = unquoted(quoted), t.OID
			b.Stops = append(b.Stops, of.Stop(c, of.Left, t.OID))
		}
	}
	return nil
}

// configured are the OIDs of the configured tables, as they are remembered.
func (s State) configured(c *source.Config) []uint32 {
	oids := []uint32{}
	for _, table := range c.QuotedTables() {
		if t, known := s.Tables[table]; known {
			oids = append(append(oids, t.OID), t.Former...)
		}
	}
	return oids
}

// LogForeign logs once, when a slot is first used, whose rows are skipped.
func (s State) LogForeign(ctx context.Context, q source.Querier, c *source.Config) {
	b, err := s.ReadOthers(ctx, q, c)
	if err == nil && len(b.Foreign) > 0 {
		c.Log.Info("the publication lists other tables too: their rows are not relayed",
			zap.String("tables", strings.Join(b.Foreign, ", ")), zap.String("publication", c.Publication), zap.String("slot", c.Slot))
	}
}
