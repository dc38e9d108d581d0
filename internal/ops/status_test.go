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
		{StateStreaming, "", 100, func(s *Snapshot) { s.Siding.Dead, s.HeldKeys = 3, 3 }},
		{StateParking, "", 100, func(s *Snapshot) { s.OldestUnsettled, s.Siding.Parked = noon.Add(-time.Minute), 1 }},
		{StateParking, "", 100, func(s *Snapshot) { s.Siding.Queued = 1 }},
		{StatePaused, `exchange "x": 404`, 100, func(s *Snapshot) { s.Paused, s.PausedTotal = []Paused{{Destination: `exchange "x"`, Words: "404"}}, 1 }},
		{StatePaused, "2 of them", 100, func(s *Snapshot) { s.Paused, s.PausedTotal = []Paused{{}}, 2 }},
		{StateParking, "the database refuses the row of an event that is to be parked: disk full", 100, func(s *Snapshot) {
			s.PausedTotal, s.Siding = 1, Siding{Queued: 1, RefusedTotal: 1, Refused: []RefusedRow{{Error: "disk full"}}}
		}},
		{StateParking, "the database refuses the rows of 7 events that are to be parked", 100, func(s *Snapshot) { s.Siding = Siding{Queued: 9, RefusedTotal: 7} }},
		{StateBrokerDown, "blocked: memory", 0, func(s *Snapshot) { s.PausedTotal, s.Sink = 1, Sink{Why: "blocked: memory"} }},
		{StateStandby, "held", 0, func(s *Snapshot) { s.Phase, s.Why, s.Sink = Standby, "held", Sink{} }},
		{StateWaiting, "refused", 0, func(s *Snapshot) { s.Phase, s.Why, s.Sink = Waiting, "refused", Sink{} }},
		{StateStopping, "", 0, func(s *Snapshot) { s.Phase = Stopping }},
		{StateStarting, "", 0, func(s *Snapshot) { s.Phase = Starting }},
		{StateStarting, "", 0, func(s *Snapshot) { s.Phase = "" }},
		{StateStopped, "gone", 0, func(s *Snapshot) { s.Phase, s.Why, s.PausedTotal = Stopped, "gone", 3 }},
	} {
		s := busy()
		s.PausedTotal, s.HeldKeys, s.Siding = 0, 0, Siding{Counted: noon}
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
	if got.Slot.ConfirmedFlushLSN != "0/1000" || got.Slot.CurrentWALLSN != "0/1800" || got.Slot.LagBytes != 0x800 || got.Slot.RetainedBytes != 0x1000 || got.Slot.LagSeconds == nil || *got.Slot.LagSeconds != 3 {
		t.Errorf("slot is %+v", got.Slot)
	}
	if got.InFlight.Events != 7 || got.InFlight.Bytes != 700 || !got.InFlight.OldestUnsettled.Equal(s.OldestUnsettled) || got.UnreportedConfirmed != 5 {
		t.Errorf("in flight is %+v, unreported %d", got.InFlight, got.UnreportedConfirmed)
	}
	if p := got.Parked; !p.CountedAt.Equal(noon) || p.Events != 40 || !p.Oldest.Equal(s.Siding.OldestParked) || p.HeldKeys != 12 || p.RefusedTotal != 2 {
		t.Errorf("parked is %+v", p)
	}
	if d := got.DeadLetters; !d.CountedAt.Equal(noon) || d.Open != 4 || !d.Oldest.Equal(s.Siding.OldestDead) {
		t.Errorf("dead letters are %+v", d)
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
		"dead_letters", "dead_letters.counted_at", "dead_letters.oldest", "dead_letters.open",
		"in_flight", "in_flight.bytes", "in_flight.events", "in_flight.oldest_unsettled", "now",
		"parked", "parked.counted_at", "parked.events", "parked.feeding", "parked.held_keys", "parked.oldest", "parked.queued", "parked.refused", "parked.refused_total",
		"rates", "rates.parked_per_second", "rates.published_per_second", "rates.retries_per_second", "role",
		"slot", "slot.active", "slot.checked_at", "slot.confirmed_flush_lsn", "slot.current_wal_lsn", "slot.lag_bytes", "slot.lag_seconds", "slot.name",
		"slot.restart_lsn", "slot.retained_bytes", "slot.safe_wal_bytes", "slot.spilled_bytes", "slot.wal_status",
		"started_at", "state", "totals", "totals.dead", "totals.failed", "totals.last_confirm", "totals.parked", "totals.published", "totals.retries",
		"unreported_confirmed", "version", "why",
	}
	if !slices.Equal(names, want) {
		t.Errorf("got  %q\nwant %q", names, want)
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
		s := Snapshot{Paused: paused}
		content, err := json.Marshal(m.status(&s, noon).Broker.Paused)
		if err != nil || string(content) != want {
			t.Errorf("got %s, %v; want %s", content, err, want)
		}
	}
}

func TestRefusedNames(t *testing.T) {
	m := NewMetrics("", "", "")
	for want, refused := range map[string][]RefusedRow{
		"[]": nil,
		`[{"id":"e","position":"p","error":"no","since":"2026-11-20T12:00:00Z","behind":2}]`: {{"e", "p", "no", noon, 2}},
	} {
		s := Snapshot{Siding: Siding{Refused: refused}}
		content, err := json.Marshal(m.status(&s, noon).Parked.Refused)
		if err != nil || string(content) != want {
			t.Errorf("got %s, %v; want %s", content, err, want)
		}
	}
}
