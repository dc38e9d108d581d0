package ops

import (
	"encoding/json"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

func TestStates(t *testing.T) {
	for _, c := range []struct {
		want   string
		why    string
		rate   float64
		change func(*Snapshot)
	}{
		{StateStreaming, "", 0, func(*Snapshot) {}},
		{StateStreaming, "", 1, func(s *Snapshot) { s.InFlightEvents, s.OldestUnsettled = 0, time.Time{} }},
		{StateIdle, "", 0, func(s *Snapshot) { s.InFlightEvents, s.OldestUnsettled = 0, time.Time{} }},
		{StateStreaming, "", 0, func(s *Snapshot) { s.InFlightEvents, s.WaitingEvents = 0, 1 }},
		{StateCatchingUp, "", 100, func(s *Snapshot) { s.OldestUnsettled = noon.Add(-time.Minute) }},
		{StateHeld, "", 100, func(s *Snapshot) { s.OldestUnsettled, s.HeldTotal = noon.Add(-time.Minute), 1 }},
		{StateBrokerDown, "blocked: memory", 0, func(s *Snapshot) { s.HeldTotal, s.Sink = 1, Sink{Why: "blocked: memory"} }},
		{StateStandby, "held", 0, func(s *Snapshot) { s.Phase, s.Why, s.Sink = Standby, "held", Sink{} }},
		{StateWaiting, "refused", 0, func(s *Snapshot) { s.Phase, s.Why, s.Sink = Waiting, "refused", Sink{} }},
		{StateStopping, "", 0, func(s *Snapshot) { s.Phase = Stopping }},
		{StateStarting, "", 0, func(s *Snapshot) { s.Phase = Starting }},
		{StateStarting, "", 0, func(s *Snapshot) { s.Phase = "" }},
		{StateStopped, "gone", 0, func(s *Snapshot) { s.Phase, s.Why, s.HeldTotal = Stopped, "gone", 3 }},
	} {
		s := busy()
		c.change(&s)
		if got, why := state(&s, c.rate, noon); got != c.want || why != c.why {
			t.Errorf("got %q, %q; want %q, %q", got, why, c.want, c.why)
		}
	}
}

func TestStatusNumbers(t *testing.T) {
	m := NewMetrics("", "", "")
	m.Confirmed(0, []*outbox.Event{{CommitTime: noon}, {CommitTime: noon}}, noon.Add(-2*time.Second))
	s := busy()
	got := m.status(&s, noon)
	if got.Slot.ConfirmedFlushLSN != "0/1000" || got.Slot.CurrentWALLSN != "0/1800" || got.Slot.LagBytes != 0x800 || got.Slot.RetainedBytes != 0x1000 || got.Slot.LagSeconds != 3 {
		t.Errorf("slot is %+v", got.Slot)
	}
	if got.InFlight.Events != 7 || got.InFlight.Bytes != 700 || !got.InFlight.OldestUnsettled.Equal(s.OldestUnsettled) || got.UnreportedConfirmed != 5 {
		t.Errorf("in flight is %+v, unreported %d", got.InFlight, got.UnreportedConfirmed)
	}
	if got.Totals.Published != 2 || got.Rates.PublishedPerSecond != 0.2 || !got.Totals.LastConfirm.Equal(noon.Add(-2*time.Second)) {
		t.Errorf("totals are %+v, rates %+v", got.Totals, got.Rates)
	}
}

// The names are a contract with scripts: this list is only ever added to.
func TestStatusNames(t *testing.T) {
	base := serve(t, func(c *Config) {
		c.Snapshot = func() Snapshot { return Snapshot{Phase: Waiting, Why: "refused", Slot: Slot{Name: "s"}} }
	})
	var body map[string]any
	if code, _ := ask(t, http.MethodGet, base+"/api/v1/status", "", &body); code != 200 {
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
		"broker", "broker.channels", "broker.connections", "broker.kind", "broker.paused", "broker.paused_total", "broker.pending_confirms", "broker.up", "broker.why",
		"held", "held_total", "in_flight", "in_flight.bytes", "in_flight.events", "in_flight.oldest_unsettled", "now",
		"rates", "rates.published_per_second", "role",
		"slot", "slot.active", "slot.checked_at", "slot.confirmed_flush_lsn", "slot.current_wal_lsn", "slot.lag_bytes", "slot.lag_seconds", "slot.name",
		"slot.restart_lsn", "slot.retained_bytes", "slot.safe_wal_bytes", "slot.spilled_bytes", "slot.wal_status",
		"started_at", "state", "totals", "totals.failed", "totals.last_confirm", "totals.published", "unreported_confirmed", "version", "why",
	}
	if !slices.Equal(names, want) {
		t.Errorf("got  %q\nwant %q", names, want)
	}
	if held, ok := body["held"].([]any); !ok || len(held) != 0 {
		t.Errorf("held is %v, want an empty list", body["held"])
	}
	if body["state"] != StateWaiting || body["why"] != "refused" || body["version"] != "v1" {
		t.Errorf("got %v", body)
	}
}

func TestPausedNames(t *testing.T) {
	m := NewMetrics("", "", "")
	for want, paused := range map[string][]Paused{
		"[]": nil,
		`[{"destination":"d","reason":"r","words":"w","since":"2026-11-20T12:00:00Z"}]`: {{"d", "r", "w", noon}},
	} {
		s := Snapshot{Sink: Sink{Paused: paused}}
		content, err := json.Marshal(m.status(&s, noon).Broker.Paused)
		if err != nil || string(content) != want {
			t.Errorf("got %s, %v; want %s", content, err, want)
		}
	}
}

func TestHeldNames(t *testing.T) {
	content, err := json.Marshal(Held{Since: noon})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"id":"","position":"","lane":0,"destination":"","class":"","reason":"","words":"","attempts":0,"since":"2026-11-20T12:00:00Z","next_attempt":null}`
	if string(content) != want {
		t.Errorf("got %s", content)
	}
}
