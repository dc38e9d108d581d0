//go:build nightly

package cli

import (
	"fmt"
	"maps"
)

func init() {
	maps.Copy(thawedStories, map[string]func(r *rig){
		"recover, after somebody has accepted the loss":       (*rig).thawedAfterAccept,
		"backfill, while the next one copies":                 (*rig).thawedBackfill,
		"recover, before it changed anything, beside a relay": (*rig).thawedBesideARelay,
		"takeover, before it reads":                           func(r *rig) { r.thawedTakeover("ACCESS EXCLUSIVE") },
	})
}

// Its copy has ended, and a relay was started from a new slot.
func (r *rig) thawedAfterAccept() {
	r.losesItsSlot()
	cmd, out := r.frozenRecover("recover", "--unordered")
	r.sessionsEnd()
	r.ok("accept", findingID(r.t, r.refused(3, "run")), "--new-slot", "--reason", "a test")
	relay := r.start()
	r.place("a", 3)
	wantSent(r.t, relay, "a", 3)
	if err := r.thaws(cmd); err == nil {
		r.t.Errorf("it ends with 0, and has copied nothing: %s", out)
	}
	relay.Stop(r.t)
}

func (r *rig) thawedBackfill() {
	r.place("a", 1)
	r.place("a", 2)
	other := *r
	other.slot += "_other"
	other.ok("init", "--no-backfill") // makes the schema
	r.thawedBesideTheNext("init", "--backfill", "--unordered")
	other.ok("teardown", "--yes")
}

// Somebody else has recovered the slot meanwhile.
func (r *rig) thawedBesideARelay() {
	r.losesItsSlot()
	cmd, out, relay := r.overtaken()
	_ = r.thaws(cmd)
	r.place("a", 3)
	eventually(r.t, func() string {
		if got, _ := sentOf(r.t, relay, "a"); len(got) < 2 && relay.Running() {
			return fmt.Sprint(got)
		}
		return ""
	})
	if !relay.Running() {
		r.t.Errorf("the relay was ended by a recover that had nothing to recover: %s; %s", out, relay.Log())
	}
	relay.Stop(r.t)
	r.released()
	if said := ask[string](r, `SELECT state FROM cdc_relay.slots`); said != "ready" {
		r.t.Errorf("the slot is in order, and its record is in state %s: %s", said, r.command("run").Stderr)
	}
}
