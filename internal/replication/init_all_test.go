//go:build testall

package replication

import (
	"errors"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/schema"
	"github.com/cdc-relay/cdc-relay/internal/replication/setup"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// Each right that a statement of the retry table needs is asked for at the start: without it the
// first refused event would find that it cannot be deferred.
func TestRoleThatMayNotDefer(t *testing.T) {
	b, role, owner := asRole(t, "REPLICATION")
	b.init(setup.InitOptions{URL: owner, Role: role})
	for _, on := range []string{"DELETE ON cdc_relay.retry", "INSERT ON cdc_relay.dead_letter", "INSERT ON cdc_relay.audit", "USAGE ON SEQUENCE cdc_relay.row_number"} {
		b.exec(`REVOKE ` + on + ` FROM ` + role)
		b.wantStop(b.run().wait(), event.ExitFailure, "schema")
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
	standby.waitPhase(slot.Standby)
	b.wantText("2 true", `SELECT max(version)::text || ' ' || (to_regprocedure('cdc_relay.prune_audit(interval)') IS NOT NULL) FROM cdc_relay.migration`)
	b.wantText(epoch, `SELECT epoch::text FROM cdc_relay.slots`)
	b.insert("b")
	leader.waitSeen("b")
	leader.endClean()
	standby.waitPhase(slot.Streaming)
	b.insert("c")
	standby.waitSeen("c")
	standby.endClean()
}

func TestRoleThatMayNotReplicate(t *testing.T) {
	b, role, owner := asRole(t, "")
	b.exec(`ALTER ROLE ` + role + ` REPLICATION`)
	b.init(setup.InitOptions{URL: owner, Role: role})
	b.exec(`ALTER ROLE ` + role + ` NOREPLICATION`)
	b.wantStop(b.run().wait(), event.ExitFailure, "rights", "REPLICATION")
	b.exec(`ALTER ROLE ` + role + ` SUPERUSER`) // which may
	b.goesOn("a")
}

// A right on the outbox is missing at the first start: that is said, and nothing is left half made
// that a next start would take for a slot made by hand.
func TestRoleThatMayNotReadTheOutbox(t *testing.T) {
	b, role, owner := asRole(t, "REPLICATION")
	b.exec(schema.CreatePublicationSQL(&b.cfg))
	ddl := b.cfg
	ddl.URL = owner
	pool, err := source.ConnectPool(&ddl)
	await.Must(t, err)
	defer pool.Close()
	await.Must(t, setup.CreateObjects(await.Context(t), pool, &ddl, setup.InitOptions{Role: role}))
	b.exec(`REVOKE SELECT ON outbox FROM ` + role)
	b.insert("before")
	nothingLeft := func() {
		t.Helper()
		b.waitNoWalsender()
		b.wantCount("0 slots, 1 publications, 1 schemas")
		b.wantText("0", `SELECT count(*)::text FROM cdc_relay.slots`)
	}
	for range 2 {
		b.wantStop(b.run().wait(), event.ExitFailure, "rights", "public.outbox", `GRANT SELECT ON "public"."outbox" TO "`+role+`"`)
		nothingLeft()
	}
	b.wantFinding("rights", "may not read table public.outbox", "GRANT SELECT")
	b.exec(`GRANT SELECT ON outbox TO ` + role)
	b.exec(`ALTER TABLE outbox ENABLE ROW LEVEL SECURITY`)
	b.exec(`CREATE POLICY everything ON outbox USING (true)`)
	b.wantStop(b.run().wait(), event.ExitFailure, "rights")
	nothingLeft()
	b.wantFinding("rights", "row level security", "BYPASSRLS")
	b.exec(`ALTER ROLE ` + role + ` BYPASSRLS`)
	b.wantStop(b.run().wait(), event.ExitUsage, "backfill")
	nothingLeft()

	// The right is taken away between the question and the count: the slot that was made by then
	// does not stay.
	commit := b.openInsert("open")
	r := b.run()
	b.waitCreating()
	b.exec(`REVOKE SELECT ON outbox FROM ` + role)
	commit()
	b.wantStop(r.wait(), event.ExitFailure, "rights")
	nothingLeft()
}

// A standby is not the one to make again what was torn down.
func TestTeardownUnderAStandby(t *testing.T) {
	b := shared(t)
	first := b.settledRun("a")
	second := b.another().run()
	second.waitPhase(slot.Standby)
	b.exec(`TRUNCATE outbox`)
	b.exec(`DELETE FROM cdc_relay.slots`)
	b.exec(`DELETE FROM cdc_relay.progress`)
	var stop *event.Stop
	// it may have noticed
	if err := first.end(); err != nil && !(errors.As(err, &stop) && stop.Reason == "fenced") {
		t.Fatal(err)
	}
	b.wantStop(second.wait(), event.ExitOperator, "slot_lost")
}

// A publication that somebody else made may have other readers.
func TestTeardownKeepsAPublicationThatNoRelayMade(t *testing.T) {
	b := shared(t)
	b.exec(schema.CreatePublicationSQL(&b.cfg))
	b.goesOn("a")
	b.waitNoWalsender()
	await.Must(t, setup.Teardown(await.Context(t), b.cfg, false))
	b.wantCount("0 slots, 1 publications, 0 schemas")
	b.wantLogged("publication kept: it was not created by a relay")
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
			stop := b.wantStop(teardown(b), event.ExitOperator, "slot_foreign", "not ours to drop")
			b.wantCount("1 slots, 0 publications, 0 schemas")
			if name == "no record of ours" { // when nobody needs it
				b.runFix(stop)
				b.wantCount("0 slots, 0 publications, 0 schemas")
			}
		})
	}
	t.Run("another database, in the place of ours", func(t *testing.T) {
		b := shared(t)
		b.goesOn("a")
		b.dropSlot()
		b.createSlotElsewhere()
		await.Must(t, teardown(b))
		b.wantCount("1 slots, 0 publications, 0 schemas")
		b.wantLogged("slot kept")
	})
}
