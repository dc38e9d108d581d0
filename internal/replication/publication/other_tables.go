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

// ReadOthers reads what is not configured but may be sent: the names of listed tables whose rows
// are skipped, and the Stop at the first row, or message, of each listed table, and of each table
// and prefix that the slot has relayed and still gets.
func (s State) ReadOthers(ctx context.Context, q source.Querier, c *source.Config) (foreign []string, stops []*event.Stop, err error) {
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	rows, err := q.Query(ctx, `SELECT r.prrelid, `+source.StoredSQL("n.nspname || '.' || c.relname")+` FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid
		JOIN pg_class c ON c.oid = r.prrelid JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE p.pubname = $1 AND r.prrelid <> ALL ($2::oid[]) AND NOT `+isPartitionSQL("r.prrelid", "$2::oid[]")+` ORDER BY 2`, c.Publication, s.configured(c))
	if err != nil {
		return nil, nil, fmt.Errorf("read pg_publication_rel: %w", err)
	}
	type table struct {
		OID  uint32
		Name []byte
	}
	tables, err := pgx.CollectRows(rows, pgx.RowToStructByPos[table])
	if err != nil {
		return nil, nil, fmt.Errorf("read pg_publication_rel: %w", err)
	}
	encoding, err := source.EncodingOf(ctx, q)
	if err != nil {
		return nil, nil, err
	}
	for _, t := range tables {
		name, err := encoding.Message(string(t.Name))
		if err != nil {
			return nil, nil, err
		}
		if slices.Contains(s.Foreign, t.OID) {
			foreign = append(foreign, name)
			continue
		}
		of := scope{listed: name, listOID: t.OID}
		of.Left, of.LeftOID = s.LeftOut(c, name, []uint32{t.OID})
		stops = append(stops, of.Stop(c, name, t.OID))
	}
	unlisted, err := s.unlisted(ctx, q, c)
	stops = append(stops, unlisted...)
	for _, prefix := range s.DroppedPrefixes(c) {
		stops = append(stops, PrefixLeftOut(c, prefix))
	}
	return foreign, stops, err
}

// unlisted are the Stops for the tables that the slot has relayed, that are no longer configured,
// and that the publication has with all tables or their schema.
func (s State) unlisted(ctx context.Context, q source.Querier, c *source.Config) (stops []*event.Stop, err error) {
	configured := c.QuotedTables()
	for quoted, t := range s.Tables {
		if slices.Contains(configured, quoted) {
			continue
		}
		var there bool
		if err := q.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_class WHERE oid = $1)`, t.OID).Scan(&there); err != nil {
			return nil, fmt.Errorf("read pg_class: %w", err)
		}
		of, err := s.FindScope(ctx, q, c, t.OID, unquoted(quoted))
		if err != nil {
			return nil, err
		}
		if there && !of.ignored && of.listed == "" && (of.all || of.schema) {
			of.Left, of.LeftOID = unquoted(quoted), t.OID
			stops = append(stops, of.Stop(c, of.Left, t.OID))
		}
	}
	return stops, nil
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
	foreign, _, err := s.ReadOthers(ctx, q, c)
	if err == nil && len(foreign) > 0 {
		c.Log.Info("the publication lists other tables too: their rows are not relayed",
			zap.String("tables", strings.Join(foreign, ", ")), zap.String("publication", c.Publication), zap.String("slot", c.Slot))
	}
}
