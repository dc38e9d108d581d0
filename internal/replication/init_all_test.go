//go:build testall

package replication

import (
	"errors"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/publication"
	"github.com/cdc-relay/cdc-relay/internal/replication/replicationtest"
	"github.com/cdc-relay/cdc-relay/internal/replication/setup"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/replication/survey"
)

// Each right that a statement of the retry table needs is asked for at the start: without it the
// first refused event would find that it cannot be deferred.
func TestRoleThatMayNotDefer(t *testing.T) {
	b, role, owner := asRole(t, "REPLICATION")
	b.init(setup.InitOptions{URL: owner, Role: role})
	for _, on := range []string{"DELETE ON cdc_relay.retry", "INSERT ON cdc_relay.dead_letter", "INSERT ON cdc_relay.audit", "USAGE ON SEQUENCE cdc_relay.row_number"} {
		b.exec(`REVOKE ` + on + ` FROM ` + role)
		replicationtest.WantStop(t, b.run().wait(), event.ExitFailure, "schema")
		b.exec(`GRANT ` + on + ` TO ` + role)
	}
	b.goesOn("a")
}

// A role that may change the schema brings it up itself, as a standby too: before it leads, so that
// the leader of the previous version continues next to it.
func TestStandbyUpgrades(t *testing.T) {
	b := shared(t)
	leader := b.settledRun("a")
	b.downgrade()
	epoch := b.text(`SELECT epoch::text FROM cdc_relay.slots`)
	standby := b.another().run()
	standby.waitPhase(survey.Standby)
	if got := b.text(`SELECT max(version)::text || ' ' || (to_regclass('cdc_relay.retry') IS NOT NULL) FROM cdc_relay.migration`); got != "3 true" {
		t.Errorf("version and table are %s, want 3 true", got)
	}
	if got := b.text(`SELECT epoch::text FROM cdc_relay.slots`); got != epoch {
		t.Errorf("the epoch is %s, want %s", got, epoch)
	}
	b.insert("b")
	leader.waitSeen("b")
	leader.endClean()
	standby.waitPhase(survey.Streaming)
	b.insert("c")
	standby.waitSeen("c")
	standby.endClean()
}

func TestRoleThatMayNotReplicate(t *testing.T) {
	b, role, owner := asRole(t, "")
	b.exec(`ALTER ROLE ` + role + ` REPLICATION`)
	b.init(setup.InitOptions{URL: owner, Role: role})
	b.exec(`ALTER ROLE ` + role + ` NOREPLICATION`)
	stop := replicationtest.WantStop(t, b.run().wait(), event.ExitFailure, "rights")
	if !strings.Contains(stop.Fix, "REPLICATION") {
		t.Errorf("the fix is not named: %s", stop.Fix)
	}
}

// A right on the outbox is missing at the first start: that is said, and nothing is left half made
// that a next start would take for a slot made by hand.
func TestRoleThatMayNotReadTheOutbox(t *testing.T) {
	b, role, owner := asRole(t, "REPLICATION")
	b.exec(publication.CreateSQL(&b.cfg))
	ddl := b.cfg
	ddl.URL = owner
	pool, err := source.ConnectPool(&ddl)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if err := setup.CreateObjects(await.Context(t), pool, &ddl, setup.InitOptions{Role: role}); err != nil {
		t.Fatal(err)
	}
	b.exec(`REVOKE SELECT ON outbox FROM ` + role)
	b.insert("before")
	nothingLeft := func() {
		t.Helper()
		b.waitNoWalsender()
		if got, rows := b.count(), b.text(`SELECT count(*)::text FROM cdc_relay.slots`); got != "0 slots, 1 publications, 1 schemas" || rows != "0" {
			t.Errorf("%s, %s rows about slots", got, rows)
		}
	}
	for range 2 {
		stop := replicationtest.WantStop(t, b.run().wait(), event.ExitFailure, "rights")
		if !strings.Contains(stop.What, "public.outbox") || !strings.Contains(stop.Fix, `GRANT SELECT ON "public"."outbox" TO "`+role+`"`) {
			t.Errorf("table and fix are not named: %s; %s", stop.What, stop.Fix)
		}
		nothingLeft()
	}
	b.wantFinding("rights", "may not read table public.outbox", "GRANT SELECT")
	b.exec(`GRANT SELECT ON outbox TO ` + role)
	b.exec(`ALTER TABLE outbox ENABLE ROW LEVEL SECURITY`)
	b.exec(`CREATE POLICY everything ON outbox USING (true)`)
	replicationtest.WantStop(t, b.run().wait(), event.ExitFailure, "rights")
	nothingLeft()
	b.wantFinding("rights", "row level security", "BYPASSRLS")
	b.exec(`ALTER ROLE ` + role + ` BYPASSRLS`)
	replicationtest.WantStop(t, b.run().wait(), event.ExitUsage, "backfill")
	nothingLeft()

	// The right is taken away between the question and the count: the slot that was made by then
	// does not stay.
	tx, _ := b.openInsert("open")
	r := b.run()
	b.waitCreating()
	b.exec(`REVOKE SELECT ON outbox FROM ` + role)
	if err := tx.Commit(await.Context(t)); err != nil {
		t.Fatal(err)
	}
	replicationtest.WantStop(t, r.wait(), event.ExitFailure, "rights")
	nothingLeft()
}

// A standby is not the one to make again what was torn down.
func TestTeardownUnderAStandby(t *testing.T) {
	b := shared(t)
	first := b.settledRun("a")
	second := b.another().run()
	second.waitPhase(survey.Standby)
	b.exec(`TRUNCATE outbox`)
	b.exec(`DELETE FROM cdc_relay.slots`)
	b.exec(`DELETE FROM cdc_relay.progress`)
	var stop *event.Stop
	// it may have noticed
	if err := first.end(); err != nil && !(errors.As(err, &stop) && stop.Reason == "fenced") {
		t.Fatal(err)
	}
	replicationtest.WantStop(t, second.wait(), event.ExitOperator, "slot_lost")
}

// A publication that somebody else made may have other readers.
func TestTeardownKeepsAPublicationThatNoRelayMade(t *testing.T) {
	b := shared(t)
	b.exec(publication.CreateSQL(&b.cfg))
	b.goesOn("a")
	b.waitNoWalsender()
	if err := setup.Teardown(await.Context(t), b.cfg, false); err != nil {
		t.Fatal(err)
	}
	if got := b.count(); got != "0 slots, 1 publications, 0 schemas" {
		t.Error(got)
	}
	if b.logs.FilterMessageSnippet("publication kept: it was not created by a relay").Len() != 1 {
		t.Error("it is not said that the publication was kept")
	}
}

func TestTeardownKeepsWhatOthersNeed(t *testing.T) {
	b := shared(t)
	b.settledRun("a").endClean()
	other := b.another()
	other.cfg.Slot += "_other"
	other.cfg.NoBackfill = true
	other.settledRun("b").endClean()
	b.waitNoWalsender()
	if err := setup.Teardown(await.Context(t), b.cfg, false); err != nil {
		t.Fatal(err)
	}
	other.goesOn("c")
	other.waitNoWalsender()
	if err := setup.Teardown(await.Context(t), other.cfg, false); err != nil {
		t.Fatal(err)
	}
	if got := b.count(); got != "0 slots, 0 publications, 0 schemas" {
		t.Error(got)
	}
}

// Names of slots are the whole cluster's, and one that no relay has used is somebody else's.
func TestTeardownLeavesForeignSlots(t *testing.T) {
	t.Parallel()
	teardown := func(b *bench) error { return setup.Teardown(await.Context(b.t), b.cfg, false) }
	for name, make := range map[string]func(b *bench){
		"another plugin":    func(b *bench) { b.createSlot("test_decoding") },
		"no record of ours": func(b *bench) { b.createSlot("pgoutput") },
		"another database":  func(b *bench) { b.createSlotElsewhere() },
	} {
		t.Run(name, func(t *testing.T) {
			b := shared(t)
			make(b)
			replicationtest.WantStop(t, teardown(b), event.ExitOperator, "slot_foreign")
			if got := b.count(); got != "1 slots, 0 publications, 0 schemas" {
				t.Error(got)
			}
		})
	}
	t.Run("another database, in the place of ours", func(t *testing.T) {
		b := shared(t)
		b.settledRun("a").endClean()
		b.dropSlot()
		b.createSlotElsewhere()
		if err := teardown(b); err != nil {
			t.Fatal(err)
		}
		if got := b.count(); got != "1 slots, 0 publications, 0 schemas" {
			t.Error(got)
		}
		if b.logs.FilterMessageSnippet("slot kept").Len() != 1 {
			t.Error("it is not said that the slot was kept")
		}
	})
}
