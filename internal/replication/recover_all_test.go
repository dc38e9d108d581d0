//go:build testall

package replication

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
)

// An event that waits and has the id of a row of the gap, as that of a second table that counts
// alike, does not stand for it.
func TestRecoverAnotherEventOfTheSameID(t *testing.T) {
	b := lost(t)
	b.exec(`DELETE FROM outbox`)
	b.exec(`UPDATE cdc_relay.retry SET id = 'gap', payload = '{"another": true}'`)
	b.insert("gap")
	report, err := b.recover(anyOrder)
	await.Must(t, err)
	if report.Recovered != 1 || report.Held != 0 {
		t.Errorf("%+v", report)
	}
	b.wantWaiting("gap", "gap")
}

// A row that is not in the gap is not copied: its transaction is settled, by its id.
func TestRecoverOnlyTheGap(t *testing.T) {
	b := shared(t)
	r := b.settledRun("settled")
	// the second raise notes what the first one has seen
	await.Until(t, "the transaction to be noted as settled", func() bool {
		b.exec(`SELECT pg_logical_emit_message(true, 'other', '')`)
		b.exec(`SELECT pg_switch_wal()`)
		return b.text(`SELECT (settled_xid > (SELECT xmin::text::xid8 FROM outbox))::text FROM cdc_relay.progress`) == "true"
	})
	r.endClean()
	b.exec(`DELETE FROM cdc_relay.retry`)
	b.insert("gap")
	b.dropSlot()
	report, err := b.recover(anyOrder)
	await.Must(t, err)
	b.wantWaiting("gap")
	if report.FromXID == nil || report.Recovered != 1 {
		t.Errorf("%+v", report)
	}
}
