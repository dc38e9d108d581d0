package ops

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// leading is a leader's status at noon, with changes.
func leading(change func(*Status)) *Status {
	s := &Status{
		State: StateStreaming, Role: RoleLeader, Version: "v1", StartedAt: noon.Add(-time.Minute), Now: noon, Leader: &Relay{Name: "a pid 1"},
		Broker: BrokerStatus{Up: true}, Slot: SlotStatus{CheckedAt: noon, LagBytes: 5, RetainedBytes: 70, SafeWALBytes: new(int64(30)), LagSeconds: new(0.5)},
		Deferred: DeferredStatus{CountedAt: noon, Events: 4}, DeadLetters: DeadLettersStatus{Open: 3}, InFlight: InFlightStatus{Events: 2},
		Rates: RatesStatus{PublishedPerSecond: 9, LatencyP50Seconds: new(0.1), LatencyP99Seconds: new(0.2)},
	}
	change(s)
	return s
}

// Each change from one status to the next is a sentence, and what stays is none.
func TestMarks(t *testing.T) {
	same := func(*Status) {}
	down := func(s *Status) {
		s.State, s.Broker = StateBrokerDown, BrokerStatus{Why: "dial: refused", DownSince: new(noon.Add(-90 * time.Second))}
	}
	standby := func(s *Status) {
		s.State, s.Role, s.Why, s.Leader = StateStandby, RoleStandby, "slot is active for b pid 2", &Relay{Name: "b pid 2"}
	}
	waiting := func(s *Status) { s.State, s.Role, s.Why, s.Leader = StateWaiting, RoleNone, "dial: refused", nil }
	stopped := func(s *Status) {
		s.State, s.Role, s.Why, s.Finding = StateStopped, RoleNone, "slot lost; cdc-relay accept 7d04", "7d04"
	}
	paused := func(names ...string) func(*Status) {
		return func(s *Status) {
			for _, name := range names {
				s.Broker.Paused = append(s.Broker.Paused, Paused{Destination: name, Reason: "unroutable", Error: "312 NO_ROUTE"})
			}
		}
	}
	more := func(change func(*Status)) func(*Status) {
		return func(s *Status) { change(s); s.Broker.PausedTotal = len(s.Broker.Paused) + 1 }
	}
	for _, c := range []struct {
		name    string
		was, is func(*Status)
		want    string
	}{
		{"nothing", same, same, ""},
		{"the broker goes", same, down, "broker bad The broker is down: dial: refused"},
		{"it stays away", down, down, ""},
		{"the broker comes", down, same, "broker ok The broker is up again after 1m30s."},
		{"the broker comes at first", func(s *Status) { s.Broker.Up = false }, same, "broker ok The broker is up."},
		{"a connection to it is replaced", same, func(s *Status) { s.Totals.BrokerReconnects = 1 }, "reconnect info A lost connection to the broker was replaced."},
		{"a session is started", same, func(s *Status) { s.Totals.StreamReconnects = 1 }, "reconnect info The replication session was started again."},
		{"PostgreSQL goes", same, waiting, "postgres bad Waiting for PostgreSQL: dial: refused"},
		{"PostgreSQL comes, with a session", waiting, func(s *Status) { s.Totals.StreamReconnects = 1 }, "leader ok This relay leads."},
		{"it leads no more", paused("x"), standby, "leader info This relay stands by: slot is active for b pid 2"},
		{"another one leads", standby, func(s *Status) { standby(s); s.Leader = &Relay{Name: "c pid 3"} }, "leader info This relay stands by: slot is active for b pid 2"},
		{"it leads", standby, same, "leader ok This relay leads."},
		{"it stops", same, func(s *Status) { s.State = StateStopping }, "leader info The relay is stopping."},
		{"a finding", same, stopped, "finding bad Relaying has stopped: slot lost; cdc-relay accept 7d04"},
		{"a decision", stopped, func(s *Status) { s.State, s.Role = StateStarting, RoleNone }, "finding ok An operator has decided: relaying begins again."},
		{"pauses", paused("a", "b"), paused("b", "c"), "destination bad c is paused (unroutable): 312 NO_ROUTE; destination ok a is no longer paused."},
		{"more than are named", paused("a"), more(paused("a")), "destination bad More than 1 destinations are paused: the newest are not named."},
		{"one of those that are named ends", more(paused("a")), paused("b"), "destination ok a is no longer paused."},
	} {
		var got []string
		for _, m := range marksOf(leading(c.was), leading(c.is)) {
			got = append(got, m.Kind+" "+m.Level+" "+m.Text)
			if !m.At.Equal(noon) {
				t.Errorf("%s: it is of %s", c.name, m.At)
			}
		}
		if text := strings.Join(got, "; "); text != c.want {
			t.Errorf("%s: %q, want %q", c.name, text, c.want)
		}
	}
	first := marksOf(nil, leading(func(s *Status) { s.Totals.BrokerReconnects = 3 }))
	if len(first) != 2 || first[0].Text != "The relay started, version v1." || !first[0].At.Equal(noon.Add(-time.Minute)) || first[1].Kind != "leader" {
		t.Errorf("the first look says %+v", first)
	}
}

// decodedHistory is a history as programs read it.
type decodedHistory struct {
	Points map[string][]*float64
	Marks  []Mark
}

func decodeHistory(t *testing.T, h *History) (d decodedHistory) {
	t.Helper()
	body, err := json.Marshal(h)
	if err == nil {
		err = json.Unmarshal(body, &d)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// A point is taken each ten seconds, the last hour is kept, and what was not known is null.
func TestPoints(t *testing.T) {
	var h History
	if d := decodeHistory(t, &h); len(d.Points["at"]) != 0 || d.Marks == nil || len(d.Points) != len(series)+1 {
		t.Errorf("an empty one is %+v", d)
	}
	at := noon
	look := func(change func(*Status)) *Point {
		s := leading(change)
		s.Now = at
		point, _ := h.Look(s)
		return point
	}
	for i := range 3700 {
		at = noon.Add(time.Duration(i) * time.Second)
		if point := look(func(s *Status) { s.Slot.CheckedAt = at }); (point != nil) != (i%10 == 0) {
			t.Fatalf("after %d s there is %v", i, point)
		}
	}
	d := decodeHistory(t, &h)
	for name, want := range map[string]float64{
		"published_per_second": 9, "latency_p50_seconds": 0.1, "latency_p99_seconds": 0.2, "lag_bytes": 5, "lag_seconds": 0.5, "deferred": 4, "dead_letters": 3, "in_flight": 2,
		"retained_bytes": 70, "limit_bytes": 100,
	} {
		if column := d.Points[name]; len(column) != maxPoints || column[0] == nil || *column[0] != want || *column[maxPoints-1] != want {
			t.Errorf("%s has %d values, the last is not %v", name, len(column), want)
		}
	}
	times := d.Points["at"]
	if *times[0] != float64(noon.Add(100*time.Second).Unix()) || *times[maxPoints-1] != float64(noon.Add(3690*time.Second).Unix()) {
		t.Errorf("it reaches from %v to %v", *times[0], *times[maxPoints-1])
	}

	at = at.Add(10 * time.Second)
	unknown := look(func(s *Status) {
		s.Slot, s.Deferred, s.Rates = SlotStatus{CheckedAt: at.Add(-time.Hour)}, DeferredStatus{}, RatesStatus{}
	})
	body, err := json.Marshal(unknown)
	if want := fmt.Sprintf(`{"at":%d,"dead_letters":null,"deferred":null,"in_flight":2,"lag_bytes":null,"lag_seconds":null,"latency_p50_seconds":null,"latency_p99_seconds":null,"limit_bytes":null,"published_per_second":0,"retained_bytes":null}`,
		at.Truncate(PointEvery).Unix()); err != nil || string(body) != want {
		t.Errorf("it is %s, want %s", body, want)
	}
	if last := decodeHistory(t, &h).Points["lag_bytes"]; last[maxPoints-1] != nil || last[0] == nil {
		t.Errorf("what was not known is %v", last[maxPoints-1])
	}
	// A clock that is set back a little is waited for; after more the times begin again, and rise.
	at = at.Add(-30 * time.Second)
	if point := look(func(*Status) {}); point != nil {
		t.Errorf("30 s back there is %v", point)
	}
	at = at.Add(-time.Hour)
	if point := look(func(*Status) {}); point == nil || len(decodeHistory(t, &h).Points["at"]) != 1 {
		t.Errorf("an hour back there is %v", point)
	}
}

// Whatever happens, the timeline has 200 sentences, each of 500 bytes and whole characters.
func TestMarksAreBounded(t *testing.T) {
	var h History
	for i := range 500 {
		h.Look(leading(func(s *Status) {
			if i%2 == 0 {
				s.Broker = BrokerStatus{Why: strings.Repeat("é", 400) + fmt.Sprint(i)}
			}
		}))
	}
	marks := decodeHistory(t, &h).Marks
	if len(marks) != maxMarks || cap(h.marks) > 4*maxMarks {
		t.Fatalf("there are %d, in %d places", len(marks), cap(h.marks))
	}
	for _, m := range marks {
		if len(m.Text) > maxMark+len(" …") || !utf8.ValidString(m.Text) {
			t.Errorf("%d bytes: %q", len(m.Text), m.Text)
		}
	}
	if marks[len(marks)-1].Text != "The broker is up." {
		t.Errorf("the newest is %q", marks[len(marks)-1].Text)
	}
}

// What flaps pushes nothing else out of the timeline.
func TestFlappingKeepsOtherMarks(t *testing.T) {
	var h History
	h.Look(leading(func(*Status) {}))
	for i := range 1000 {
		h.Look(leading(func(s *Status) { s.Broker.Up = i%2 == 1 }))
	}
	marks := decodeHistory(t, &h).Marks
	if len(marks) != maxMarks || marks[0].Kind != "start" || marks[1].Kind != "leader" || marks[maxMarks-1].Text != "The broker is up." {
		t.Errorf("of %d marks the first are %+v, the last %+v", len(marks), marks[:2], marks[len(marks)-1])
	}
}

// A redact takes what names an event's destination, and the broker's words; so does another leader,
// which carries out redacts that this relay is not told of.
func TestHistoryForgets(t *testing.T) {
	paused := func(s *Status) {
		s.Broker.Paused = []Paused{{Destination: "secret-key", Reason: "rejected", Error: "secret words"}}
	}
	for name, forget := range map[string]func(*History){
		"redact":         (*History).Forget,
		"another leader": func(h *History) { h.Look(leading(func(s *Status) { s.Role, s.State = RoleStandby, StateStandby })) },
	} {
		var h History
		h.Look(leading(paused))
		h.Look(leading(func(*Status) {}))
		if marks := fmt.Sprint(h.marks); !strings.Contains(marks, "secret-key is paused (rejected): secret words") || !strings.Contains(marks, "secret-key is no longer") {
			t.Fatalf("the marks are %s", marks)
		}
		forget(&h)
		if marks := fmt.Sprint(h.marks); strings.Contains(marks, "secret") || !strings.Contains(marks, "A destination is paused.") || !strings.Contains(marks, "A destination is no longer paused.") ||
			!strings.Contains(marks, "This relay leads.") {
			t.Errorf("%s leaves %s", name, marks)
		}
	}
}

// Each slot has a forecast of its own, which is forgotten with it.
func TestForecastsOfAllSlots(t *testing.T) {
	var c Courses
	left := func(at time.Duration, safe map[string]int64) map[string]float64 {
		var slots []Slot
		for _, name := range []string{"a", "b"} {
			if bytes, is := safe[name]; is {
				slots = append(slots, Slot{Name: name, Checked: noon.Add(at), SafeWALBytes: &bytes})
			}
		}
		c.SeeSlots(slots)
		out := map[string]float64{}
		for _, s := range slots {
			if out[s.Name] = math.NaN(); s.LeftSeconds != nil {
				out[s.Name] = *s.LeftSeconds
			}
		}
		return out
	}
	left(0, map[string]int64{"a": 1000, "b": 1000})
	if got := left(100*time.Second, map[string]int64{"a": 500, "b": 1000}); got["a"] != 100 || !math.IsNaN(got["b"]) {
		t.Errorf("after 100 s: %v", got)
	}
	left(110*time.Second, map[string]int64{"b": 1000})
	if got := left(140*time.Second, map[string]int64{"a": 400, "b": 900}); !math.IsNaN(got["a"]) || math.IsNaN(got["b"]) {
		t.Errorf("after a was gone: %v", got)
	}
}

// What a slot needs is said, to be copied to a shell or psql.
func TestFixOfASlot(t *testing.T) {
	soon, late := new(3600.0), new(100*3600.0)
	for want, s := range map[string]SlotItem{
		"cdc-relay recover":                        {Own: true, SlotStatus: SlotStatus{Name: "o", WALStatus: "lost"}},
		"SELECT pg_drop_replication_slot('it''s')": {SlotStatus: SlotStatus{Name: "it's", WALStatus: "lost"}},
		"start the program that reads it, or, if nobody needs it: SELECT pg_drop_replication_slot('x')": {SlotStatus: SlotStatus{Name: "x", SafeWALSeconds: soon}},
	} {
		if got := s.fix(); got != want {
			t.Errorf("%+v: %q, want %q", s, got, want)
		}
	}
	for _, s := range []SlotItem{
		{SlotStatus: SlotStatus{Name: "x", SafeWALSeconds: late}}, {SlotStatus: SlotStatus{Name: "x"}}, {SlotStatus: SlotStatus{Name: "x", Active: true, SafeWALSeconds: soon}}, {Own: true, SlotStatus: SlotStatus{SafeWALSeconds: soon}},
	} {
		if got := s.fix(); got != "" {
			t.Errorf("%+v: %q", s, got)
		}
	}
}

// A destination is named as `deferred retry` takes it.
func TestRetryName(t *testing.T) {
	for title, want := range map[string]string{
		`exchange "x"`: "x", `exchange "x", routing key "a b"`: "x/a b", `topic "t"`: "t", `exchange "q\"x"`: `q"x`,
		"the default exchange": "", `topic "t" and more`: "", `exchange "x", routing key "{key}.a"`: "",
	} {
		if got := (&Paused{Destination: title}).RetryName(); got != want {
			t.Errorf("%s is %q, want %q", title, got, want)
		}
	}
}
