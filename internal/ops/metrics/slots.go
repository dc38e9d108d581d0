// The metrics of each logical slot.

package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cdc-relay/cdc-relay/internal/ops"
)

var (
	slotLag       = describe("outbox_slot_lag_bytes", "WAL between the slot's confirmed position and the server's.", "slot")
	slotRetained  = describe("outbox_slot_retained_bytes", "WAL that the server keeps for the slot.", "slot")
	slotLagTime   = describe("outbox_slot_lag_seconds", "Of the relay's own slot, the age of the oldest commit that is not settled (while there is no stream, the time since it ended; absent while another relay leads). Of another's, the time since WAL was seen that it has not confirmed.", "slot")
	slotSafe      = describe("outbox_slot_safe_wal_bytes", "WAL that can still be written before the slot may be lost; absent when it is unlimited.", "slot")
	slotOwn       = describe("outbox_slot_own", "1 for the relay's own slot, 0 for the others of the server.", "slot")
	slotActive    = describe("outbox_slot_active", "1 while a process reads the slot.", "slot")
	slotWALStatus = describe("outbox_slot_wal_status", "1 for the slot's present wal_status, 0 for the others.", "slot", "status")
	slotSpilled   = describe("outbox_slot_spilled_bytes_total", "Bytes of transactions that the server's decoding wrote to disk.", "slot")
	slotWaiting   = describe("outbox_slot_waiting_for_standby", "1 while a standby of synchronized_standby_slots holds back delivery from the relay's own slot; only of a failover slot.", "slot")
)

// slotSynced is of the relay's own slot, on each of the other hosts.
var slotSynced = describe("outbox_slot_synced", "1 when this other host of source.url has the relay's failover slot, synced and ready for a promotion; 0 also when it does not answer. Only the leader reports it.", "host")

// slotDescs are the metrics of a slot.
var slotDescs = []*prometheus.Desc{slotLag, slotRetained, slotLagTime, slotSafe, slotOwn, slotActive, slotWALStatus, slotSpilled, slotWaiting, slotSynced}

// collectSlot sends what is known of a slot.
func collectSlot(i *ops.SlotItem, out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, more ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, append([]string{i.Name}, more...)...)
	}
	gauge(slotOwn, zeroOne(i.Own))
	if i.LagSeconds != nil {
		gauge(slotLagTime, *i.LagSeconds)
	}
	if i.CheckedAt.IsZero() {
		return
	}
	if i.Own && i.Failover {
		gauge(slotWaiting, zeroOne(i.WaitingForStandby))
	}
	gauge(slotLag, float64(i.LagBytes))
	gauge(slotRetained, float64(i.RetainedBytes))
	if i.SafeWALBytes != nil {
		gauge(slotSafe, float64(*i.SafeWALBytes))
	}
	gauge(slotActive, zeroOne(i.Active))
	for _, status := range []string{"reserved", "extended", "unreserved", "lost"} {
		gauge(slotWALStatus, zeroOne(i.WALStatus == status), status)
	}
	out <- prometheus.MustNewConstMetric(slotSpilled, prometheus.CounterValue, float64(i.SpilledBytes), i.Name)
}
