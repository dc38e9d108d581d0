package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
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

// The command as a user meets it: what it waits for, a run that is killed while it waits, the end,
// and its slot dropped.
func TestTakeover(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	other, runs := r.otherSlot()
	r.refused(2, "takeover", "from-slot")
	r.refused(2, "takeover --from-slot "+other+" --drop", "--yes")
	r.refused(2, "takeover --from-slot nothing", "does not exist")
	r.refused(2, "takeover --from-slot "+r.slot, "choose another source.slot")
	path := filepath.Join(t.TempDir(), "cdc-relay.yaml")
	must(t, os.WriteFile(path, []byte(r.yaml()), 0o600))
	eventually(t, func() string { // it offers nothing when the database does not answer at once
		res, err := runner.RunCommand(await.Context(t), r.binary, "", "__complete", "takeover", "-c", path, "--from-slot", "")
		if must(t, err); !strings.HasPrefix(res.Stdout, other+"\n") {
			return fmt.Sprintf("a shell is offered %q", res.Stdout)
		}
		return ""
	})

	// Killed: with SIGKILL, wherever it is by then.
	soon, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if res, err := runner.RunCommand(soon, r.binary, r.yaml(), "takeover", "--from-slot", other); err == nil && res.Code == 0 {
		t.Errorf("it has not waited: %+v", res)
	}
	r.insert(1) // after the start of our slot, if that is there already
	var next runner.Result
	// the slot may be half made: that ends with the transactions of all databases that are open now
	eventually(t, func() string {
		if next = r.command("takeover", "--from-slot", other, "--wait", "0"); strings.Contains(next.Stderr, "is being created by a run that has ended") {
			return next.Stderr
		}
		return ""
	})
	refusal(t, next, 3, other, "nobody reads it", "start the program")
	if state := r.command("takeover", "--from-slot", other, "--wait", "0", "--json"); state.Code != 3 || !strings.Contains(state.Stdout, `"complete": false`) || !strings.Contains(state.Stdout, `"start_lsn": "`) {
		t.Errorf("exit %d: %s%s", state.Code, state.Stdout, state.Stderr)
	}
	other2 := *r
	other2.slot = other
	other2.refused(3, "run", "test_decoding", "takeover --from-slot "+other)
	r.refused(3, "run", other, "takeover --from-slot "+other)
	r.insert(1)
	runs()
	out := r.ok("takeover", "--from-slot", other, "--wait", "0")
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
	if code := relay.Stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
	r.refused(2, "takeover --from-slot none_of_its_own", "is already used by a relay")
	r.released()
	r.ok("teardown", "--yes")
}
