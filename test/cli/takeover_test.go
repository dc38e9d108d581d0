package cli

import (
	"encoding/json"
	"strings"
	"testing"
)

// otherSlot is a slot of another plugin, and what its program does when it runs: it takes
// everything, and confirms it.
func (r *rig) otherSlot() (name string, runs func()) {
	r.t.Helper()
	name = r.slot + "_other"
	r.exec(`SELECT pg_create_logical_replication_slot($1, 'test_decoding')`, name)
	return name, func() {
		r.t.Helper()
		r.exec(`SELECT count(*) FROM pg_logical_slot_get_changes($1, NULL, NULL)`, name)
	}
}

// The command as a user meets it: what is missing, the end, and the other slot dropped.
// internal/replication has more: TestTakeoverIsRefused, TestTakeoverAfterACrashAtEachStep.
func TestTakeover(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	other, runs := r.otherSlot()
	r.refused(2, "takeover", "from-slot")
	r.refused(2, "takeover --from-slot "+other+" --drop", "--yes")
	r.refused(2, "takeover --from-slot nothing", "does not exist")

	// it waits for the transactions of all databases that are open now
	eventually(t, func() string {
		next := r.command("takeover", "--from-slot", other, "--json")
		if strings.Contains(next.Stderr, "older than the publication") {
			return next.Stderr
		}
		refusal(t, next, 3, other, "nobody reads it", "start the program")
		if !strings.Contains(next.Stdout, `"complete": false`) || !strings.Contains(next.Stdout, `"start_lsn": "`) {
			t.Errorf("exit %d: %s%s", next.Code, next.Stdout, next.Stderr)
		}
		return ""
	})
	other2 := *r
	other2.slot = other
	other2.refused(3, "run", "test_decoding", "takeover --from-slot "+other)
	r.refused(3, "run", other, "takeover --from-slot "+other)
	r.insert(1)
	runs()
	out := r.ok("takeover", "--from-slot", other)
	if !strings.Contains(out, "complete: slot "+r.slot+" continues from") {
		t.Errorf("it says %q", out)
	}
	var done struct {
		Complete  bool
		Dropped   bool   `json:"from_slot_dropped"`
		Confirmed string `json:"from_slot_confirmed_flush_lsn"`
	}
	must(t, json.Unmarshal([]byte(r.ok("takeover", "--from-slot", other, "--drop", "--yes", "--json")), &done))
	if !done.Complete || !done.Dropped || done.Confirmed == "" {
		t.Errorf("%+v", done)
	}
	if n := ask[int](r, `SELECT count(*) FROM pg_replication_slots WHERE slot_name = '`+other+`'`); n != 0 {
		t.Error("the other slot is there still")
	}
	r.ok("takeover", "--from-slot", other, "--drop", "--yes") // there is nothing left to do

	relay := r.start()
	r.insert(3)
	eventually(t, func() string { return wantLines(relay, 3) })
	ended(t, relay)
	r.released()
	r.ok("teardown", "--yes")
}
