//go:build testall

package replication

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/event"
)

// Below the flush limit, but above what this process reported.
func TestSlotMovedByHandWhileTheStreamIsCut(t *testing.T) {
	b := shared(t)
	p := b.through()
	r := b.settledRun("a")
	b.current().Hold()
	b.insert("skipped")
	r.waitSeen("skipped")
	p.Cut()
	b.waitFree()
	b.exec(`UPDATE cdc_relay.progress SET max_flush_lsn = pg_current_wal_insert_lsn()`)
	b.exec(`SELECT pg_replication_slot_advance($1, (SELECT max_flush_lsn FROM cdc_relay.progress))`, b.cfg.Slot)
	await.Must(t, p.Restore())
	b.wantStop(r.wait(), event.ExitOperator, "slot_moved")
}

// A relay that runs makes no slot in its place: what was committed meanwhile would not be in it.
func TestSlotDroppedWhileTheStreamIsCut(t *testing.T) {
	b := shared(t)
	p := b.through()
	r := b.settledRun("a")
	p.Cut()
	b.dropSlot()
	b.insert("lost")
	await.Must(t, p.Restore())
	b.wantStop(r.wait(), event.ExitOperator, "slot_lost", b.cfg.Slot)
	b.wantText("0", `SELECT count(*)::text FROM pg_replication_slots WHERE slot_name = $1`, b.cfg.Slot)
}
