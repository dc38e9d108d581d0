package ops

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Slots is the body of GET /api/v1/slots.
type Slots struct {
	Items []SlotItem `json:"items"` // the relay's own first, then those that keep the most WAL
	Total int        `json:"total"` // with admin.slot_metrics: all, the logical slots of the server: items are at most 100
}

// SlotItem is one slot, as /metrics knows it.
type SlotItem struct {
	SlotStatus
	// LagFrom says how lag_seconds is measured: commits is the age of the oldest commit that is not settled, wal the time
	// since WAL was seen that the slot has not confirmed.
	LagFrom string `json:"lag_from"`

	Own                bool   `json:"own"`
	Database           string `json:"database"`
	Plugin             string `json:"plugin"`
	InvalidationReason string `json:"invalidation_reason"` // "" before PostgreSQL 17
}

// fresh is how old what was read of a slot may be: older, it is not told, for nobody knows how it stands.
const fresh = time.Minute

// Known reports whether the server has said how the slot stands within the last minute.
func (out *SlotStatus) Known(now time.Time) bool { return isFresh(out.CheckedAt, now) }

func isFresh(checked, now time.Time) bool { return !checked.IsZero() && now.Sub(checked) <= fresh }

// slotItems are the slots that are known, the relay's own first.
func (s *Snapshot) slotItems(now time.Time) []SlotItem {
	own := s.Slot.item(now)
	own.Own, own.LagFrom, own.LagSeconds = true, "commits", s.lagSeconds(now)
	items := []SlotItem{own}
	for _, other := range s.OtherSlots {
		if !isFresh(other.Checked, now) {
			continue
		}
		item := other.item(now)
		seconds := 0.0
		if !other.BehindSince.IsZero() {
			seconds = max(0, other.Checked.Sub(other.BehindSince).Seconds())
		}
		item.LagSeconds, item.LagFrom = &seconds, "wal"
		items = append(items, item)
	}
	return items
}

// item has only the name of a slot of which nothing is known.
func (s Slot) item(now time.Time) SlotItem {
	item := SlotItem{SlotStatus: SlotStatus{Name: s.Name}, Database: s.Database, Plugin: s.Plugin, InvalidationReason: s.Invalidation}
	if isFresh(s.Checked, now) {
		item.describe(s)
	}
	return item
}

// slots answers GET /api/v1/slots.
func (s *Server) slots(w http.ResponseWriter, _ *http.Request) {
	snapshot := s.cfg.Snapshot()
	items := snapshot.slotItems(time.Now())
	writeJSON(w, http.StatusOK, Slots{Items: items, Total: max(len(items), 1+snapshot.OtherTotal)})
}

var (
	slotLag       = describe("outbox_slot_lag_bytes", "WAL between the slot's confirmed position and the server's.", "slot")
	slotRetained  = describe("outbox_slot_retained_bytes", "WAL that the server keeps for the slot.", "slot")
	slotLagTime   = describe("outbox_slot_lag_seconds", "Of the relay's own slot, the age of the oldest commit that is not settled (while there is no stream, the time since it ended; absent while another relay holds the slot). Of another's, the time since WAL was seen that it has not confirmed.", "slot")
	slotSafe      = describe("outbox_slot_safe_wal_bytes", "WAL that can still be written before the slot may be lost; absent when it is unlimited.", "slot")
	slotOwn       = describe("outbox_slot_own", "1 for the relay's own slot, 0 for the others of the server.", "slot")
	slotActive    = describe("outbox_slot_active", "1 while a process reads the slot.", "slot")
	slotWALStatus = describe("outbox_slot_wal_status", "1 for the slot's present wal_status, 0 for the others.", "slot", "status")
	slotSpilled   = describe("outbox_slot_spilled_bytes_total", "Bytes of transactions that the server's decoding wrote to disk.", "slot")
)

// slotDescs are the metrics of a slot.
var slotDescs = []*prometheus.Desc{slotLag, slotRetained, slotLagTime, slotSafe, slotOwn, slotActive, slotWALStatus, slotSpilled}

// collect sends what is known of the slot.
func (i *SlotItem) collect(out chan<- prometheus.Metric) {
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
