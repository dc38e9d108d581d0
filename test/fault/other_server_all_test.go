//go:build testall

package fault

import (
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// The database goes on at another server, or a copy of it is started beside it. What is deferred or
// dead comes along when it is the same data, before newer events of its keys, and is never sent by
// a copy. Only an operator knows which of the two it is: the relay stops (exit 3) and asks.
//
// They run one after the other, with one server as the original.
func TestOtherServer(t *testing.T) {
	stand.Parallel(t)
	pg := started(t)(pgserver.Start(await.Context(t), pgserver.Options{NoFsync: true}))
	for name, test := range map[string]func(*testing.T, *pgserver.Postgres){
		"dump":           restoredDump,
		"backup":         restoredBackup,
		"promoted clone": promotedClone,
		"clone":          cloneOnTheSameTimeline,
		"standby":        promotedStandby,
	} {
		t.Run(name, func(t *testing.T) { test(t, pg) })
	}
}

// recovered has recover make the slot, when the writers were there first: what they committed is
// sent behind what was deferred.
func (b before) recovered(s *stand.Stand) {
	s.T.Helper()
	early := []string{event(s, b.a(), 4, s.ToLater(1, 0)), event(s, b.b(), 3, load.Kind{})}
	s.Exits(s.Launch(), 3, "cdc-relay recover --same-data")
	said := operated(s, "recover", "--same-data", "--order-by", "created_at")
	s.T.Log(said.Stdout)
	r := s.Start()
	s.Must(s.Consumer.WaitIDs(s.Context(), early[1:]))
	event(s, b.a(), 5, s.ToLater(1, 0))
	s.MakeLater()
	s.AwaitEmpty()
	operated(s, append([]string{"dead-letters", "replay", number(s, b.dead), "--wait", "10m"}, s.Antidote()...)...)
	s.CheckHistory(checker.History{NewPositions: true, MaxDuplicates: -1})
	stopped(s, r, 0)
}

// staysACopy accepts the server as a copy, with a broker of its own: it sends what is committed
// there from now on, not what was deferred or waits, and leaves those rows as they are.
func (b before) staysACopy(c *stand.Stand, words ...string) {
	c.T.Helper()
	c.Accept(asks(c, words...), "--copy")
	if result := c.Command("recover"); result.Code != 2 {
		c.T.Errorf("recover on a copy ends with %d, and its original has these rows: %s%s", result.Code, result.Stdout, result.Stderr)
	}
	c.MakeLater() // it could send them
	var ids []string
	r := c.Start()
	for _, kind := range []load.Kind{c.ToLater(1, 0), {}} {
		ids = append(ids, event(c, b.a(), 5, kind), event(c, b.b(), 5, kind))
	}
	c.Must(c.Consumer.WaitIDs(c.Context(), ids))
	c.Reported()
	stopped(c, r, 0)
	c.Must(c.Consumer.Drain(c.Context()))
	for _, d := range c.Consumer.Deliveries() {
		if !slices.Contains(ids, d.ID) {
			c.T.Errorf("the copy sent event %s, which the original sends", d.ID)
		}
	}
	var left []string
	c.Query([]any{&left}, `SELECT array_agg(convert_from(id, 'UTF8')) FROM (SELECT id FROM cdc_relay.retry UNION ALL SELECT id FROM cdc_relay.dead_letter WHERE state = 'open') r`)
	slices.Sort(left)
	want := append(slices.Clone(b.deferred), b.dead)
	slices.Sort(want)
	if !slices.Equal(left, want) {
		c.T.Errorf("the copy has %q of the original, want %q", left, want)
	}
}

// original has the original send what is its own.
func (b before) original(s *stand.Stand) {
	s.T.Helper()
	r := s.Start()
	event(s, b.a(), 4, s.ToLater(1, 0))
	s.MakeLater()
	s.AwaitEmpty()
	operated(s, append([]string{"dead-letters", "replay", number(s, b.dead), "--wait", "10m"}, s.Antidote()...)...)
	s.Check(b.twice)
	stopped(s, r, 0)
}

// A dump is restored into another cluster: another system identifier, no slot, lower positions.
//
// The numbers of transactions of the two are far apart: of a row with a number that the new server
// has given since the restore the relay takes nothing for known (sent.Description.UnsentSQL).
func restoredDump(t *testing.T, pg *pgserver.Postgres) {
	conn, err := pgx.Connect(t.Context(), pg.URL("postgres"))
	await.Must(t, err)
	_, err = conn.Exec(t.Context(), `DO $$ BEGIN FOR i IN 1..20000 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$`)
	await.Must(t, err)
	await.Must(t, conn.Close(t.Context()))
	to := started(t)(pgserver.Start(await.Context(t), pgserver.Options{NoFsync: true}))
	t.Run("same data", func(t *testing.T) {
		s, b := leave(t, pg, false)
		s.Must(to.RestoreDump(s.Context(), pg, s.Database()))
		s.Move(to)
		b.goesOn(s, "does not exist here")
	})
	t.Run("copy", func(t *testing.T) {
		s, b := leave(t, pg, false)
		s.Must(to.RestoreDump(s.Context(), pg, s.Database()))
		b.staysACopy(s.Copy(to, stand.SharedRabbitMQ(t)), "does not exist here")
		b.original(s)
	})
	t.Run("recovered", func(t *testing.T) {
		s, b := leave(t, pg, false)
		s.Must(to.RestoreDump(s.Context(), pg, s.Database()))
		s.Move(to)
		b.recovered(s)
	})
	t.Run("accepted before", func(t *testing.T) { acceptedBeforeItWasCopied(t, pg, to) })
}

// A base backup is restored: the same system identifier, the next timeline, no slot.
func restoredBackup(t *testing.T, pg *pgserver.Postgres) {
	s, b := leave(t, pg, false)
	s.Move(started(t)(pgserver.StartRestored(s.Context(), pg)))
	b.goesOn(s, "on timeline 1", "on timeline 2")
}

// A copy of the server's files, slots included, that begins with a recovery: the next timeline.
// What waits in the slot is the original's to send.
func promotedClone(t *testing.T, pg *pgserver.Postgres) {
	for _, name := range []string{"same data", "copy"} {
		t.Run(name, func(t *testing.T) {
			s, b := leave(t, pg, true)
			waits := event(s, "c", 1, load.Kind{})
			clone := started(t)(pgserver.StartClone(s.Context(), pg, true))
			s.Must(pg.Start(s.Context()))
			if name == "copy" {
				b.staysACopy(s.Copy(clone, stand.SharedRabbitMQ(t)), "left on timeline 1", "on timeline 2")
				b.original(s)
				return
			}
			s.Move(clone)
			b.goesOn(s, "left on timeline 1", "on timeline 2")
			s.Must(s.Consumer.WaitIDs(s.Context(), []string{waits}))
		})
	}
}

// A copy of the server's files that is started as it is: nothing in the database distinguishes it,
// so a relay there sends what the original sends. That is what docs/running.md warns of. Torn down
// before a relay is started there, it has nothing left to send.
func cloneOnTheSameTimeline(t *testing.T, pg *pgserver.Postgres) {
	s, b := leave(t, pg, true)
	waits := event(s, "c", 1, load.Kind{})
	clone := started(t)(pgserver.StartClone(s.Context(), pg, false))
	s.Must(pg.Start(s.Context()))

	twice := s.Copy(clone, stand.SharedRabbitMQ(t))
	twice.MakeLater()
	r := twice.Start()
	twice.Must(twice.Consumer.WaitIDs(s.Context(), append([]string{waits}, b.deferred...)))
	stopped(twice, r, 0)

	silent := s.Copy(clone, stand.SharedRabbitMQ(t))
	operated(silent, "teardown", "--yes", "--force")
	silent.MakeLater()
	operated(silent, "init", "--no-backfill")
	r = silent.Start()
	silent.Must(silent.Consumer.WaitIDs(s.Context(), []string{event(silent, "a", 5, silent.ToLater(1, 0))}))
	stopped(silent, r, 0)
	if n, _ := silent.Consumer.Count(); n != 1 {
		t.Errorf("a clone that was torn down sent %d events, want the one that was committed there", n)
	}
	b.original(s)
}

// A physical standby is promoted, and its primary is gone: the next timeline, no slot.
func promotedStandby(t *testing.T, pg *pgserver.Postgres) {
	standby := started(t)(pgserver.StartStandby(await.Context(t), pg))
	s, b := leave(t, pg, false)
	var at string
	s.Query([]any{&at}, `SELECT pg_current_wal_lsn()::text`)
	s.Until("the standby to have all of it", func() (has bool) {
		s.Must(standby.Query(s.Context(), &has, `SELECT pg_last_wal_replay_lsn() >= $1::pg_lsn`, at))
		return has
	})
	s.Must(pg.Kill())
	var promoted bool
	s.Must(standby.Query(s.Context(), &promoted, `SELECT pg_promote()`))
	s.Move(standby)
	b.goesOn(s, "on timeline 1", "on timeline 2")
	s.Must(pg.Start(s.Context()))
}

// A loss is accepted, and the database is copied before the relay is started again: what was
// accepted there is not accepted here.
func acceptedBeforeItWasCopied(t *testing.T, pg, to *pgserver.Postgres) {
	s, b := leave(t, pg, false)
	s.Free()
	s.SQL(`SELECT pg_drop_replication_slot($1)`, s.Slot)
	r := s.Launch()
	s.Exits(r, 3, "no longer exists")
	s.Accept(r.Log())
	if result := s.Command("check"); !strings.Contains(result.Stdout, "its loss was accepted") {
		t.Errorf("check does not say that the loss was accepted: %s%s", result.Stdout, result.Stderr)
	}
	s.Must(to.RestoreDump(s.Context(), pg, s.Database()))
	b.staysACopy(s.Copy(to, stand.SharedRabbitMQ(t)), "does not exist here")
	b.original(s)
}
