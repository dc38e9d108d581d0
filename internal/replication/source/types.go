// The types that the catalogue has described. The slot may send a row after a type in it was
// dropped: the catalogue no longer has the type then, and without this memory the row's event would
// get another shape than the events before it.

package source

import (
	"slices"
	"sync"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// Types remembers, by OID, types that are not PostgreSQL's own. Of what a shape has of a type only
// the labels of an enum ever change. Types is safe for concurrent use, and a nil one remembers
// nothing.
type Types struct {
	mu    sync.Mutex
	known map[uint32]event.ColumnShape
}

// maxTypes bounds how many types are remembered: a schema that is dropped and made again and again
// has new ones each time. When the limit is reached, all are forgotten.
const maxTypes = 1000

// Remember notes, after the catalogue has described the type with this OID, what a column of the
// type has in a shape. Types that a shape shows as they are need not be remembered.
func (t *Types) Remember(oid uint32, c *event.ColumnShape) {
	if t == nil || oid == c.TypeOID && c.Labels == nil && c.Type == "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known == nil || len(t.known) >= maxTypes {
		t.known = map[uint32]event.ColumnShape{}
	}
	t.known[oid] = event.ColumnShape{TypeOID: c.TypeOID, Typmod: c.Typmod, Labels: slices.Clone(c.Labels), Type: c.Type}
}

// Recall completes a column whose type was dropped from what is remembered of the type. It reports
// whether the type is remembered.
func (t *Types) Recall(c *event.ColumnShape) bool {
	if t == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	known, ok := t.known[c.TypeOID]
	if ok {
		c.TypeOID, c.Typmod, c.Labels, c.Type = known.TypeOID, known.Typmod, known.Labels, known.Type
	}
	return ok
}
