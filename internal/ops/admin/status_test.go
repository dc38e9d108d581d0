package admin

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/ops"
	"github.com/cdc-relay/cdc-relay/internal/ops/opstest"
)

// The names are a contract with scripts: this list is only ever added to.
func TestStatusNames(t *testing.T) {
	base := serve(t, func(c *Config) {
		c.Snapshot = func() ops.Snapshot {
			return ops.Snapshot{Phase: ops.Waiting, Why: "refused", Slot: ops.Slot{Name: "s"}, Guard: &ops.Guard{}}
		}
	})
	var body map[string]any
	if code, _ := ask(t, http.MethodGet, base+"/api/v1/status", asAnn, &body); code != 200 {
		t.Fatalf("status answers %d", code)
	}
	var names []string
	for name, value := range body {
		names = append(names, name)
		if section, ok := value.(map[string]any); ok {
			for inner := range section {
				names = append(names, name+"."+inner)
			}
		}
	}
	slices.Sort(names)
	want := []string{
		"broker", "broker.channels", "broker.connections", "broker.kind", "broker.paused", "broker.paused_total", "broker.pending_confirms", "broker.up", "broker.was_up", "broker.why",
		"dead_letters", "dead_letters.counted_at", "dead_letters.oldest", "dead_letters.open",
		"in_flight", "in_flight.bytes", "in_flight.events", "in_flight.oldest_unsettled", "in_flight.settled_lsn", "now",
		"guard", "guard.active", "guard.full", "guard.deferred", "guard.left_bytes",
		"deferred", "deferred.counted_at", "deferred.events", "deferred.feeding", "deferred.waiting_keys", "deferred.oldest", "deferred.queued", "deferred.refused", "deferred.refused_total", "deferred.table_bytes",
		"retention", "retention.behind_seconds", "retention.deleted", "retention.error", "retention.held_by", "retention.last_pass", "retention.mode",
		"rates", "rates.deferred_per_second", "rates.published_per_second", "rates.retries_per_second", "role",
		"slot", "slot.active", "slot.checked_at", "slot.confirmed_flush_lsn", "slot.current_wal_lsn", "slot.lag_bytes", "slot.lag_seconds", "slot.name",
		"slot.restart_lsn", "slot.retained_bytes", "slot.safe_wal_bytes", "slot.spilled_bytes", "slot.wal_status",
		"started_at", "state", "totals", "totals.dead", "totals.failed", "totals.last_confirm", "totals.deferred", "totals.published", "totals.retries",
		"unheld_slots", "unreported_confirmed", "unsent_rows", "version", "waiting_for_standby", "wal_held_by", "why",
	}
	slices.Sort(want)
	if !slices.Equal(names, want) {
		t.Errorf("got  %q\nwant %q", names, want)
	}
	if body["state"] != ops.StateWaiting || body["why"] != "refused" || body["version"] != "v1" {
		t.Errorf("got %v", body)
	}
}

func TestSlotsOfTheAPI(t *testing.T) {
	snapshot := opstest.BusyWithOtherSlots()
	now := time.Now()
	snapshot.OldestUnsettled, snapshot.Slot.Checked = now.Add(-time.Hour), now
	for i := range snapshot.OtherSlots[:2] {
		o := &snapshot.OtherSlots[i]
		since := o.Checked.Sub(o.BehindSince)
		o.Checked = now
		if !o.BehindSince.IsZero() {
			o.BehindSince = now.Add(-since)
		}
	}
	base := serve(t, func(c *Config) { c.Snapshot = func() ops.Snapshot { return snapshot } })
	var got ops.Slots
	if code, _ := ask(t, http.MethodGet, base+"/api/v1/slots", asAnn, &got); code != http.StatusOK {
		t.Fatalf("it answers %d", code)
	}
	var said []string
	for _, i := range got.Items {
		lag := "?"
		if i.LagSeconds != nil {
			lag = fmt.Sprint(int(*i.LagSeconds) / 10 * 10)
		}
		said = append(said, fmt.Sprintf("%s own=%t %s %s lag=%d/%s by %s retained=%d active=%t %s %s", i.Name, i.Own, i.Database, i.Plugin, i.LagBytes, lag, i.LagFrom, i.RetainedBytes, i.Active, i.WALStatus, i.ConfirmedFlushLSN))
	}
	want := []string{
		"cdc_relay own=true shop pgoutput lag=2048/3600 by commits retained=4096 active=true reserved 0/1000",
		"debezium own=false shop pgoutput lag=1024/90 by wal retained=5120 active=false extended 0/1400",
		"other_relay own=false   lag=0/0 by wal retained=0 active=true reserved 0/1800",
	}
	if !slices.Equal(said, want) || got.Total != 124 {
		t.Errorf("of %d slots it shows\n%s\nwant\n%s", got.Total, strings.Join(said, "\n"), strings.Join(want, "\n"))
	}
	snapshot.Phase, snapshot.OtherSlots, snapshot.OtherTotal = ops.Standby, nil, 0
	got = ops.Slots{}
	if ask(t, http.MethodGet, base+"/api/v1/slots", asAnn, &got); len(got.Items) != 1 || got.Items[0].LagSeconds != nil || got.Total != 1 {
		t.Errorf("on a standby it shows %+v", got)
	}
	var status ops.Status
	if ask(t, http.MethodGet, base+"/api/v1/status", asAnn, &status); status.State != ops.StateStandby || status.Slot.LagSeconds != nil {
		t.Errorf("on a standby the status is %s, lag %v", status.State, status.Slot.LagSeconds)
	}
}
