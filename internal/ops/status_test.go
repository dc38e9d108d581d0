package ops_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/ops"
	"github.com/cdc-relay/cdc-relay/internal/ops/opstest"
)

func TestStates(t *testing.T) {
	tested := map[string]bool{}
	defer func() {
		for _, state := range ops.States {
			if !tested[state] {
				t.Errorf("no case has the state %q", state)
			}
		}
	}()
	for _, c := range []struct {
		want   string
		why    string
		rate   float64
		change func(*ops.Snapshot)
	}{
		{ops.StateStreaming, "", 0, func(*ops.Snapshot) {}},
		{ops.StateStreaming, "", 1, func(s *ops.Snapshot) { s.InFlightEvents, s.OldestUnsettled = 0, time.Time{} }},
		{ops.StateIdle, "", 0, func(s *ops.Snapshot) { s.InFlightEvents, s.OldestUnsettled = 0, time.Time{} }},
		{ops.StateStreaming, "", 0, func(s *ops.Snapshot) { s.InFlightEvents, s.WaitingEvents = 0, 1 }},
		{ops.StateCatchingUp, "", 100, func(s *ops.Snapshot) { s.OldestUnsettled = opstest.Noon.Add(-time.Minute) }},
		{ops.StateCatchingUp, "waiting for standby a, b", 0, func(s *ops.Snapshot) {
			s.OldestUnsettled, s.WaitingForStandby = opstest.Noon.Add(-time.Minute), []string{"a", "b"}
		}},
		{ops.StateStreaming, "", 100, func(s *ops.Snapshot) { s.RetryTable.Dead, s.WaitingKeys = 3, 3 }},
		{ops.StateDeferring, "", 100, func(s *ops.Snapshot) { s.OldestUnsettled, s.RetryTable.Deferred = opstest.Noon.Add(-time.Minute), 1 }},
		{ops.StateDeferring, "", 100, func(s *ops.Snapshot) { s.RetryTable.Queued = 1 }},
		{ops.StatePaused, `exchange "x": 404`, 100, func(s *ops.Snapshot) {
			s.Paused, s.PausedTotal = []ops.Paused{{Destination: `exchange "x"`, Error: "404"}}, 1
		}},
		{ops.StatePaused, "2 of them", 100, func(s *ops.Snapshot) { s.Paused, s.PausedTotal = []ops.Paused{{}}, 2 }},
		{ops.StateDeferring, "the database refuses the row of an event that is to be deferred: disk full", 100, func(s *ops.Snapshot) {
			s.PausedTotal, s.RetryTable = 1, ops.RetryTable{Queued: 1, RefusedTotal: 1, Refused: []ops.RefusedRow{{Error: "disk full"}}}
		}},
		{ops.StateDeferring, "the database refuses the rows of 7 events that are to be deferred", 100, func(s *ops.Snapshot) { s.RetryTable = ops.RetryTable{Queued: 9, RefusedTotal: 7} }},
		{ops.StateBrokerDown, "blocked: memory", 0, func(s *ops.Snapshot) { s.PausedTotal, s.Sink = 1, ops.Sink{Why: "blocked: memory"} }},
		{ops.StateStandby, "held", 0, func(s *ops.Snapshot) { s.Phase, s.Why, s.Sink = ops.Standby, "held", ops.Sink{} }},
		{ops.StateWaiting, "refused", 0, func(s *ops.Snapshot) { s.Phase, s.Why, s.Sink = ops.Waiting, "refused", ops.Sink{} }},
		{ops.StateStopping, "", 0, func(s *ops.Snapshot) { s.Phase = ops.Stopping }},
		{ops.StateStarting, "", 0, func(s *ops.Snapshot) { s.Phase = ops.Starting }},
		{ops.StateStarting, "", 0, func(s *ops.Snapshot) { s.Phase = "" }},
		{ops.StateStopped, "gone", 0, func(s *ops.Snapshot) { s.Phase, s.Why, s.PausedTotal = ops.Stopped, "gone", 3 }},
	} {
		s := opstest.Busy()
		s.PausedTotal, s.WaitingKeys, s.RetryTable = 0, 0, ops.RetryTable{Counted: opstest.Noon}
		c.change(&s)
		tested[c.want] = true
		if got := s.Status(ops.RatesStatus{PublishedPerSecond: c.rate}, ops.TotalsStatus{}, opstest.Noon); got.State != c.want || got.Why != c.why {
			t.Errorf("got %q, %q; want %q, %q", got.State, got.Why, c.want, c.why)
		}
	}
}

// The mode of retention is the configuration's, whoever leads.
func TestStatusOfRetention(t *testing.T) {
	s := opstest.Busy()
	s.Phase, s.Retention = ops.Standby, nil
	if got := s.Status(ops.RatesStatus{}, ops.TotalsStatus{}, opstest.Noon).Retention; got.Mode != "delete" || got.LastPass != nil {
		t.Errorf("a relay that stands by says %+v", got)
	}
}

func TestStatusNumbers(t *testing.T) {
	s := opstest.Busy()
	rates, totals := ops.RatesStatus{PublishedPerSecond: 0.2}, ops.TotalsStatus{Published: 2}
	got := s.Status(rates, totals, opstest.Noon)
	if got.Slot.ConfirmedFlushLSN != "0/1000" || got.Slot.CurrentWALLSN != "0/1800" || got.Slot.LagBytes != 0x800 || got.Slot.RetainedBytes != 0x1000 || got.Slot.LagSeconds == nil || *got.Slot.LagSeconds != 3 {
		t.Errorf("slot is %+v", got.Slot)
	}
	if got.InFlight.Events != 7 || got.InFlight.Bytes != 700 || !got.InFlight.OldestUnsettled.Equal(s.OldestUnsettled) || got.UnreportedConfirmed != 5 {
		t.Errorf("in flight is %+v, unreported %d", got.InFlight, got.UnreportedConfirmed)
	}
	if p := got.Deferred; !p.CountedAt.Equal(opstest.Noon) || p.Events != 40 || !p.Oldest.Equal(s.RetryTable.OldestDeferred) || p.WaitingKeys != 12 || p.RefusedTotal != 2 {
		t.Errorf("deferred is %+v", p)
	}
	if d := got.DeadLetters; !d.CountedAt.Equal(opstest.Noon) || d.Open != 4 || !d.Oldest.Equal(s.RetryTable.OldestDead) {
		t.Errorf("dead letters are %+v", d)
	}
	if got.Totals != totals || got.Rates != rates {
		t.Errorf("totals are %+v, rates %+v", got.Totals, got.Rates)
	}
}

func TestPausedNames(t *testing.T) {
	for want, paused := range map[string][]ops.Paused{
		"[]": nil,
		`[{"destination":"d","reason":"r","error":"w","since":"2026-11-20T12:00:00Z","next_probe":null,"events":null,"or_more":false,"oldest":null}]`: {{Destination: "d", Reason: "r", Error: "w", Since: opstest.Noon}},
	} {
		s := ops.Snapshot{Paused: paused}
		content, err := json.Marshal(s.Status(ops.RatesStatus{}, ops.TotalsStatus{}, opstest.Noon).Broker.Paused)
		if err != nil || string(content) != want {
			t.Errorf("got %s, %v; want %s", content, err, want)
		}
	}
}

func TestRefusedNames(t *testing.T) {
	for want, refused := range map[string][]ops.RefusedRow{
		"[]": nil,
		`[{"id":"e","position":"p","error":"no","since":"2026-11-20T12:00:00Z","behind":2}]`: {{"e", "p", "no", opstest.Noon, 2}},
	} {
		s := ops.Snapshot{RetryTable: ops.RetryTable{Refused: refused}}
		content, err := json.Marshal(s.Status(ops.RatesStatus{}, ops.TotalsStatus{}, opstest.Noon).Deferred.Refused)
		if err != nil || string(content) != want {
			t.Errorf("got %s, %v; want %s", content, err, want)
		}
	}
}

// Of its own slot the relay shows the name alone while the reading is old: what the server said of
// it then may have changed.
func TestOldReadingOfTheOwnSlot(t *testing.T) {
	s := opstest.Busy()
	s.Slot.Invalidation, s.Slot.Failover = "wal_removed", true
	for _, c := range []struct {
		age  time.Duration
		want bool
	}{{time.Minute, true}, {time.Minute + time.Second, false}} {
		own := s.Slots(opstest.Noon.Add(c.age))[0]
		if own.Name != "cdc_relay" || own.Failover != c.want || (own.InvalidationReason != "") != c.want || (own.Database != "") != c.want || (own.Plugin != "") != c.want {
			t.Errorf("%s old: %+v", c.age, own)
		}
	}
}
