package replication

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/setup"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
)

func (b *bench) dropSlot() {
	b.t.Helper()
	b.waitFree()
	b.exec(`SELECT pg_drop_replication_slot($1)`, b.cfg.Slot)
}

func (b *bench) createSlot(plugin string) {
	b.t.Helper()
	b.exec(`SELECT pg_create_logical_replication_slot($1, $2)`, b.cfg.Slot, plugin)
}

// createSlotElsewhere makes a slot of our name in another database of the cluster, and returns that
// database.
func (b *bench) createSlotElsewhere() *bench {
	b.t.Helper()
	other := newBench(b.t, servers.OwnPostgres(b.t).Database(b.t))
	other.exec(`SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, b.cfg.Slot)
	return other
}

func TestSlotDroppedWhileDown(t *testing.T) {
	b := shared(t)
	b.goesOn("a")
	b.dropSlot()
	b.insert("lost")
	stop := b.wantStop(b.run().wait(), event.ExitOperator, "slot_lost", b.cfg.Slot)
	// and again: nothing was made in its place
	b.wantStop(b.run().wait(), event.ExitOperator, "slot_lost")
	b.runFix(stop)
	b.goesOn("b")
	if slices.Contains(b.current().Seen(), "lost") {
		t.Error("a new slot cannot have it")
	}
	b.wantLogged("before the slot was created are not sent")
}

// A slot that was dropped and created again looks as before. What was committed in between is not
// in it.
func TestSlotRecreated(t *testing.T) {
	each(t, map[string]func(b *bench, r *running, p *netproxy.Proxy) error{
		"after a clean stop": func(b *bench, r *running, _ *netproxy.Proxy) error {
			r.endClean()
			b.recreate()
			return b.run().wait()
		},
		"after a kill": func(b *bench, r *running, p *netproxy.Proxy) error {
			r.crash(p)
			b.recreate()
			return b.run().wait()
		},
		"while its stream is cut": func(b *bench, r *running, p *netproxy.Proxy) error {
			p.Cut()
			b.recreate()
			await.Must(b.t, p.Restore())
			return r.wait()
		},
	}, func(t *testing.T, b *bench, happen func(b *bench, r *running, p *netproxy.Proxy) error) {
		p := b.through()
		r := b.settledRun("a")
		before := b.confirmedFlush()
		stop := b.wantStop(happen(b, r, p), event.ExitOperator, "slot_moved")
		after := b.confirmedFlush()
		if !strings.Contains(stop.What, "rows committed between") || !strings.Contains(stop.What, after.String()) {
			t.Errorf("the range (%s to %s) is not named: %s", before, after, stop.What)
		}
		b.wantStop(b.run().wait(), event.ExitOperator, "slot_moved")
		b.wantStop(setup.Init(await.Context(t), b.cfg, setup.InitOptions{}), event.ExitOperator, "slot_moved")
		b.runFix(stop)
		b.goesOn("b")
		if slices.Contains(b.current().Seen(), "lost") {
			t.Error("the slot began after it")
		}
	})
}

// recreate has the slot without a row that was committed meanwhile.
func (b *bench) recreate() {
	b.t.Helper()
	b.dropSlot()
	b.insert("lost")
	b.createSlot("pgoutput")
}

// A clean stop leaves the flush limit where the slot is, so that the smallest move by another hand
// is seen.
func TestSlotMovedByHandAfterACleanStop(t *testing.T) {
	b := shared(t)
	b.goesOn("a")
	if at, flushLimit := b.confirmedFlush().String(), b.text(`SELECT max_flush_lsn::text FROM cdc_relay.progress`); at != flushLimit {
		t.Errorf("the slot is at %s, the flush limit at %s", at, flushLimit)
	}
	b.insert("skipped")
	b.waitFree()
	b.exec(`SELECT pg_replication_slot_advance($1, pg_current_wal_lsn())`, b.cfg.Slot)
	b.runFix(b.wantStop(b.run().wait(), event.ExitOperator, "slot_moved"))
	b.goesOn("b")
}

// hold reads the slot as a program of that name does.
func (b *bench) hold(application string) *pgconn.PgConn {
	b.t.Helper()
	conn, err := b.replicate(b.cfg.Slot, application, "proto_version '1'", "publication_names '"+b.cfg.Publication+"'")
	await.Must(b.t, err)
	return conn
}

func TestSlotHeldByAnotherProgram(t *testing.T) {
	b := shared(t)
	b.goesOn("a")
	b.waitFree()
	b.hold("billing export")
	b.wantStop(b.run().wait(), event.ExitOperator, "slot_active", `"billing export"`, "stop that program, or choose another source.slot")
}

// waitHeld waits until a relay shows that it waits for another program.
func (r *running) waitHeld(application string) {
	r.b.t.Helper()
	r.waitPhase(slot.Waiting)
	await.Until(r.b.t, "the relay to wait for the program", func() bool {
		return strings.Contains(r.s.Snapshot().Why, application) && r.b.logs.FilterMessage("waiting for PostgreSQL").
			FilterField(zap.String("reason", r.s.Snapshot().Why)).Len() == 1
	}, func() any { return r.s.Snapshot() })
}

// visit calls a function that decodes the slot, as a psql does. It waits for a lock of ours, until
// leave.
func (b *bench) visit(function string) (leave func()) {
	b.t.Helper()
	conn := b.connect()
	_, err := conn.Exec(await.Context(b.t), `SET application_name = psql`)
	await.Must(b.t, err)
	unlock := b.begin(`LOCK TABLE pg_publication_rel IN ACCESS EXCLUSIVE MODE`)
	left := make(chan error, 1)
	go func() {
		_, err := conn.Exec(await.Context(b.t), fmt.Sprintf(`SELECT FROM %s('%s', NULL, NULL, 'proto_version', '1', 'publication_names', '%s')`,
			function, b.cfg.Slot, b.cfg.Publication))
		left <- err
	}()
	await.Until(b.t, "the slot to be held", func() bool {
		return b.text(`SELECT EXISTS (SELECT FROM pg_replication_slots JOIN pg_locks ON pid = active_pid WHERE slot_name = $1 AND NOT granted)::text`, b.cfg.Slot) == "true"
	})
	return func() {
		unlock()
		await.Must(b.t, <-left)
	}
}

// A psql that looks into the slot while the relay reconnects is waited for.
func TestSlotHeldForAMoment(t *testing.T) {
	b := shared(t)
	p := b.through()
	r := b.settledRun("a")
	p.Cut()
	b.waitFree()
	b.insert("b")
	leave := b.visit("pg_logical_slot_peek_binary_changes")
	await.Must(t, p.Restore())
	r.waitHeld("psql")
	leave()
	r.waitSeen("b")
	r.endClean()
}

// One that takes rows out of the slot is not forgiven for leaving, also if it takes none from above
// the flush limit. Here a standby, which has reported nothing itself, finds it.
func TestSlotMovedByAProgramThatLeaves(t *testing.T) {
	b := shared(t)
	of := b.through()
	leader := b.settledRun("a")
	standby := b.another()
	p := standby.through()
	r := standby.run()
	r.waitPhase(slot.Standby)
	p.Cut()
	r.waitPhase(slot.Waiting)
	leader.crash(of)
	b.waitFree()
	b.insert("skipped")
	b.exec(`UPDATE cdc_relay.progress SET max_flush_lsn = pg_current_wal_insert_lsn() + 100000000`)
	leave := b.visit("pg_logical_slot_get_binary_changes")
	await.Must(t, p.Restore())
	r.waitHeld("psql")
	leave()
	standby.wantStop(r.wait(), event.ExitOperator, "slot_moved", `"psql"`)
}

// invalidate writes so much that the slot is lost on a server that keeps little.
func (b *bench) invalidate() {
	b.t.Helper()
	b.exec(`SELECT pg_logical_emit_message(false, 'fill', repeat('x', 1000000)) FROM generate_series(1, 40)`)
	b.exec(`SELECT pg_switch_wal()`)
	b.exec(`CHECKPOINT`)
	await.Until(b.t, "the slot to be lost", func() bool {
		return b.text(`SELECT wal_status FROM pg_replication_slots WHERE slot_name = $1`, b.cfg.Slot) == "lost"
	})
}

func TestSlotInvalidatedByTheServer(t *testing.T) {
	t.Parallel()
	p := servers.QuietPostgres(t)
	for name, stopFirst := range map[string]bool{"while down": true, "while running": false} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, p.Database(t))
			b.exec(`ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'`)
			b.exec(`SELECT pg_reload_conf()`)
			r := b.settledRun("a")
			if stopFirst {
				r.endClean()
			} else {
				b.current().Hold() // the broker is dead, so the slot stays
			}
			b.insert("lost")
			b.invalidate()
			if stopFirst {
				list, err := slot.ReadUnheld(await.Context(t), b.pool(), "another")
				await.Must(t, err)
				if len(list) != 1 || !list[0].Lost || !strings.Contains(list[0].Fix(), "SLOT="+b.cfg.Slot+" cdc-relay recover") {
					t.Errorf("the slots that nobody holds are %+v", list)
				}
				r = b.run()
			}
			stop := b.wantStop(r.wait(), event.ExitOperator, "slot_lost", "invalidated")
			_, err := setup.Accept(await.Context(t), b.cfg, setup.AcceptOptions{ID: stop.Finding, Reason: "a test"})
			b.wantStop(err, event.ExitUsage, "usage", "cannot be read on", "add --new-slot", "or cdc-relay recover")
			b.runFix(stop)
			b.goesOn("b")
		})
	}
}

func TestAnotherPublicationSystemOrTimeline(t *testing.T) {
	b := shared(t)
	b.exec(`CREATE PUBLICATION second FOR TABLE outbox WITH (publish = 'insert')`)
	b.goesOn("a")
	b.cfg.Publication = "second"
	b.runFix(b.wantStop(b.run().wait(), event.ExitOperator, "slot_moved", `"p"`, `"second"`))
	b.goesOn("b")
	for _, other := range []string{`system_id = '42'`, `timeline = timeline + 1`} {
		b.exec(`UPDATE cdc_relay.slots SET ` + other)
		stop := b.wantStop(b.run().wait(), event.ExitOperator, "slot_moved")
		b.runFix(stop)
		b.goesOn("after " + other)
	}
}
