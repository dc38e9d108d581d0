// Package opstest has snapshots of a relay for the tests of metrics and of the admin server.
package opstest

import (
	"time"

	"github.com/cdc-relay/cdc-relay/internal/ops"
)

// Noon is the time now in these snapshots.
var Noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// Busy is a snapshot of a leader that works. Every field that a metric shows has a value that no
// other field has.
func Busy() ops.Snapshot {
	safe, table := int64(1<<30), int64(5000)
	return ops.Snapshot{
		Phase: ops.Streaming, Since: Noon.Add(-time.Hour),
		InFlightEvents: 7, InFlightBytes: 700, OldestUnsettled: Noon.Add(-3 * time.Second), Settled: 0x3109E98, UnreportedConfirmed: 5,
		PausedTotal: 3, WaitingKeys: 12,
		RetryTable: ops.RetryTable{Counted: Noon, Deferred: 40, OldestDeferred: Noon.Add(-90 * time.Second), Dead: 4, OldestDead: Noon.Add(-2 * time.Hour), Bytes: 81920, RefusedTotal: 2},
		Guard:      &ops.Guard{Active: true, Deferred: 30},
		Sink:       ops.Sink{Up: true, Connections: 2, Channels: 32, PendingConfirms: 6, Ignored: 7, Found: 37},
		Slot: ops.Slot{
			Name: "cdc_relay", Checked: Noon, ConfirmedFlush: 0x1000, Restart: 0x800, Current: 0x1800,
			Active: true, WALStatus: "reserved", SafeWALBytes: &safe, SpilledBytes: 99, Database: "shop", Plugin: "pgoutput",
		},
		Unheld:     []ops.UnheldSlot{{Name: "cdc_relay_v1", Deferred: 3}},
		TableBytes: &table, RetentionMode: "delete",
		Retention: &ops.Retention{LastPass: Noon.Add(-time.Minute), Overdue: Noon.Add(-10 * time.Second), HeldBy: "other"},
	}
}

// BusyWithOtherSlots is Busy with two slots of other programs, and a third that was not read
// lately.
func BusyWithOtherSlots() ops.Snapshot {
	s := Busy()
	s.OtherSlots = []ops.Slot{
		{Name: "debezium", Checked: Noon, ConfirmedFlush: 0x1400, Restart: 0x400, Current: 0x1800, WALStatus: "extended", Database: "shop", Plugin: "pgoutput", BehindSince: Noon.Add(-90 * time.Second)},
		{Name: "other_relay", Checked: Noon.Add(-2 * time.Second), ConfirmedFlush: 0x1800, Restart: 0x1800, Current: 0x1800, Active: true, WALStatus: "reserved", SpilledBytes: 7},
		{Name: "unheard_of", Checked: Noon.Add(-2 * time.Minute), BehindSince: Noon.Add(-time.Hour)},
	}
	s.OtherTotal = 123
	return s
}
