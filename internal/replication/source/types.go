// What the catalogue has said of types.

package source

import (
	"slices"
	"sync"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// Types remembers types that are not PostgreSQL's own, by OID. What of them a shape has never
// changes, but for the labels of an enum. It is safe for concurrent use, and nil remembers nothing.
type Types struct {
	mu    sync.Mutex
	known map[uint32]event.ColumnShape
}

// maxTypes bounds them: a schema that is made again and again has new ones each time.
const maxTypes = 1000

// Remember notes what the type with that OID is in the shape of one of its columns.
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

// Recall completes the column from what is known of its type.
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
