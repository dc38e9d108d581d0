package operate

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/ops"
	"github.com/cdc-relay/cdc-relay/internal/ops/opstest"
)

// A program reads one shape, whoever answered, and what only the relay knows is null without it.
func TestOneShapeOfStatus(t *testing.T) {
	busy := opstest.Busy()
	relay := busy.Status(ops.RatesStatus{}, ops.TotalsStatus{}, opstest.Noon)
	relay.Log = []string{}
	silent := errors.New("connection refused")
	database := &databaseStatus{State: ops.StateStopped, Now: opstest.Noon, SlotExists: true, Slot: relay.Slot, Deferred: &deferredCount{Events: 7, OrMore: true}, LastLeader: "r"}
	database.setCause(silent)
	shapes := map[string]map[string]any{}
	for name, seen := range map[string]*snapshot{
		ops.AnsweredByRelay:    {status: &relay},
		ops.AnsweredByDatabase: {noAnswer: silent, database: database},
		ops.AnsweredByNobody:   {noAnswer: silent, databaseErr: silent},
	} {
		content, err := json.Marshal(seen.json())
		var shape map[string]any
		if err != nil || json.Unmarshal(content, &shape) != nil {
			t.Fatalf("%s: %v, %s", name, err, content)
		}
		if shape["answered_by"] != name {
			t.Errorf("%s says that %v answered", name, shape["answered_by"])
		}
		if said := shape["relay_error"] != ""; said == (name == ops.AnsweredByRelay) {
			t.Errorf("%s: relay_error is %q", name, shape["relay_error"])
		}
		for _, ours := range []string{"version", "broker", "in_flight", "rates", "totals", "retention", "started_at", "unreported_confirmed", "log"} {
			if known := shape[ours] != nil; known != (name == ops.AnsweredByRelay) {
				t.Errorf("%s: %s is %v", name, ours, shape[ours])
			}
		}
		delete(shape, "finding") // only where there is one
		delete(shape, "guard")   // only where one is configured
		shapes[name] = shape
	}
	want := slices.Sorted(maps.Keys(shapes[ops.AnsweredByRelay]))
	for name, shape := range shapes {
		if got := slices.Sorted(maps.Keys(shape)); !slices.Equal(got, want) {
			t.Errorf("%s has the members\n%v, want\n%v", name, got, want)
		}
	}
	known := shapes[ops.AnsweredByDatabase]
	if known["deferred"].(map[string]any)["events"] != 7.0 || known["database"].(map[string]any)["deferred_or_more"] != true || known["dead_letters"] != nil {
		t.Errorf("the database knows %v, %v, %v", known["deferred"], known["database"], known["dead_letters"])
	}
	if gone := (&databaseStatus{}).json(); gone.Slot != nil {
		t.Errorf("a slot that is not there is %+v", gone.Slot)
	}
}

// A slot that is about to be lost is said first, in words.
func TestSlotInDanger(t *testing.T) {
	for _, safe := range []int64{0, -5 << 20} {
		s := ops.Status{State: ops.StateStreaming, Now: noon, Slot: ops.SlotStatus{Name: "s", CheckedAt: noon, WALStatus: "unreserved", SafeWALBytes: &safe}, Broker: ops.BrokerStatus{Up: true}}
		got := strings.Split(text(t, &s, false), "\n")
		if !strings.HasPrefix(got[1], "danger     the slot is lost at the next checkpoint") {
			t.Errorf("its second line is %q", got[1])
		}
		all := strings.Join(got, "\n") + (&databaseStatus{SlotExists: true, SafeWALBytes: &safe}).slotText()
		if strings.Count(all, ", lost at the next checkpoint") != 2 || strings.Contains(all, "-5") {
			t.Errorf("it says %s", all)
		}
	}
}

// The text and the line of --watch begin with what is urgent, and say how soon and what to do.
func TestDangerComesFirst(t *testing.T) {
	for _, c := range []struct {
		name       string
		change     func(*ops.Status)
		line, text string
	}{
		{"a limit that is far", func(s *ops.Status) { s.Slot.RetainedBytes = 1 << 20 }, "idle | leader | lag", "lost after 56.4 MiB more\n"},
		{"a limit that is near", func(s *ops.Status) { s.Slot.RetainedBytes = 500 << 20 }, "DANGER: the slot is lost after 56.4 MiB more | idle", "danger     the slot is lost after 56.4 MiB more; raise the limit"},
		{"a limit that comes soon", func(s *ops.Status) { s.Slot.SafeWALSeconds = new(180.0) }, "DANGER: the slot is lost after 56.4 MiB more, at this rate in about 3m0s | idle", "in about 3m0s; raise the limit if the disk has room: ALTER SYSTEM SET max_slot_wal_keep_size"},
		{"a limit that comes later", func(s *ops.Status) { s.Slot.SafeWALSeconds = new(7200.0) }, "idle", "lost after 56.4 MiB more, at this rate in about 2h0m\n"},
		{"no limit", func(s *ops.Status) { s.Slot.SafeWALBytes = nil }, "idle", "WAL extended, no limit but the disk\n"},
		{"a slot that is lost", func(s *ops.Status) { s.Slot.WALStatus = "lost" }, "DANGER: the slot is lost | idle", "danger     the slot is lost: its WAL is removed"},
		{"dead letters", func(s *ops.Status) { s.DeadLetters.Open = 2 }, "2 dead letters open | idle", "open: cdc-relay dead-letters list"},
		{"a broker that is down", func(s *ops.Status) {
			s.State, s.Why, s.Broker = ops.StateBrokerDown, "refused", ops.BrokerStatus{Why: "refused", DownSince: ago(time.Minute)}
		}, "broker down: refused | leader | broker down for 1m0s, since 2026-11-20T11:59:00Z | lag", "broker     down for 1m0s, since 2026-11-20T11:59:00Z\n"},
	} {
		safe := int64(59140000)
		s := ops.Status{State: ops.StateIdle, Role: ops.RoleLeader, Now: noon, Slot: ops.SlotStatus{Name: "s", CheckedAt: noon, WALStatus: "extended", SafeWALBytes: &safe}, Broker: ops.BrokerStatus{Up: true}}
		c.change(&s)
		if got := (&snapshot{status: &s}).line(); !strings.HasPrefix(got, c.line) {
			t.Errorf("%s: the line is %q, want %q", c.name, got, c.line)
		}
		if got := text(t, &s, false); !strings.Contains(got, c.text) {
			t.Errorf("%s: it says %q, want %q", c.name, got, c.text)
		}
	}
	lost := &snapshot{database: &databaseStatus{State: ops.StateStopped, SlotExists: true, Slot: ops.SlotStatus{WALStatus: "lost"}}}
	if got := lost.line(); !strings.HasPrefix(got, "DANGER: the slot is lost | stopped") {
		t.Errorf("without a relay the line is %q", got)
	}
}
