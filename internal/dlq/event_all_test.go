//go:build testall

package dlq

import (
	"fmt"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
)

// A row of another system says nothing of an event here: nobody sends it.
func TestEventOfACopy(t *testing.T) {
	r := withSlot(t)
	id, _ := r.insert()
	foreign := []int64{r.put(sample{id: "copied", of: Deferred}), r.put(sample{id: "both"}), r.put(sample{id: id, of: Deferred})}
	r.exec(`UPDATE cdc_relay.retry SET system_id = '7'`)
	r.exec(`UPDATE cdc_relay.dead_letter SET system_id = '7'`)
	own := r.put(sample{id: "both"})
	for _, w := range []struct{ id, state, why string }{
		{"copied", EventNotThere, fmt.Sprintf("row %d of it is of another system", foreign[0])},
		{"both", EventDeadLetter, fmt.Sprintf("dead letter %d: open", own)},
		{id, EventNotSeen, fmt.Sprintf("row %d of it is of another system", foreign[2])},
	} {
		if e := r.wantEvent(w.id, nil, w.state, w.why); len(e.Rows) == 0 {
			t.Errorf("%s is %+v, without its row", w.id, e)
		}
	}
}

// The slot's own position tells that it is past a row: at the end of the WAL at once, and otherwise
// once the server has moved catalog_xmin.
func TestEventBehindTheSlot(t *testing.T) {
	r := withSlot(t)
	id, _ := r.insert()
	r.advance(id)
	await.Until(t, "catalog_xmin to pass the row, behind which the WAL goes on", func() bool {
		r.exec(`CHECKPOINT`)
		r.exec(`SELECT pg_replication_slot_advance($1, pg_current_wal_lsn())`, r.slot)
		r.insert()
		return r.event(id, nil).State == EventUnknown
	}, func() any { return r.event(id, nil) })
	later, _ := r.insert()
	r.wantEvent(later, nil, EventNotSeen, "")
}
