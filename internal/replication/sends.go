package replication

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/decode"
)

// sends is what makes the server send our rows, by OIDs: a publication, a table or a membership that was removed and
// made anew looks as before by name, but the rows committed in between were never sent, whoever looked when. It is
// remembered with the slot, so that this shows across restarts too.
type sends struct {
	Publication uint32               `json:"publication,omitempty"` // pg_publication.oid; 0: nothing is remembered
	Tables      map[string]sentTable `json:"tables,omitempty"`      // by quoted name
}

type sentTable struct {
	OID uint32 `json:"oid"`
	// Through are the memberships that the table is sent through, of pg_publication_rel and pg_publication_namespace:
	// its own, a partitioned parent's, its schema's. None: FOR ALL TABLES, which only the publication itself can end.
	Through []uint32 `json:"through,omitempty"`
}

// uninterrupted reports whether the table was sent all the time between two looks: through one membership that was there
// at both.
func (t sentTable) uninterrupted(was sentTable) bool {
	if len(was.Through) == 0 || len(t.Through) == 0 {
		return len(was.Through) == len(t.Through)
	}
	return slices.ContainsFunc(t.Through, func(oid uint32) bool { return slices.Contains(was.Through, oid) })
}

// oid is by which a table is looked up: what is remembered, else what the catalogue said of its name.
func (s sends) oid(t decode.Table) uint32 {
	if was, known := s.Tables[quoteTable(t)]; known {
		return was.OID
	}
	return t.OID
}

// checkSends compares the publication with what the relay needs and with what is remembered of it, and remembers what is
// new without harm: a table configured since, or created anew while the publication had it without its being listed.
// What is remembered of tables that are not configured (any more) is left: another relay of the slot may have them.
func checkSends(ctx context.Context, q querier, c *Config, rec *record) error {
	was := rec.sends()
	now, err := checkPublication(ctx, q, c, was)
	if err != nil || rec == nil {
		return err
	}
	next := sends{Publication: now.Publication, Tables: maps.Clone(was.Tables)}
	if next.Tables == nil {
		next.Tables = map[string]sentTable{}
	}
	maps.Copy(next.Tables, now.Tables)
	if reflect.DeepEqual(was, next) {
		return nil
	}
	// Against what was read: another relay of the slot that was faster is not overwritten, the next check looks again.
	tag, err := q.Exec(ctx, `UPDATE cdc_relay.slots SET sends = $2 WHERE slot = $1 AND sends = $3 AND state = 'ready'`, c.Slot, next, was)
	if err != nil {
		return fmt.Errorf("write cdc_relay.slots: %w", err)
	}
	for name := range now.Tables {
		if _, known := was.Tables[name]; !known && tag.RowsAffected() > 0 {
			c.Log.Info("table added: its rows are events from now on", zap.String("table", name), zap.String("slot", c.Slot))
		}
	}
	return nil
}

// sends is what is remembered of a slot that may be used; nothing of one that is still to be created or adopted.
func (r *record) sends() sends {
	if r == nil || r.State != stateReady {
		return sends{}
	}
	return r.Sends
}
