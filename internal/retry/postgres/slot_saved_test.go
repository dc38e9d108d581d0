package postgres

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// walsender is a session that reads a slot and reports what it is told to.
type walsender struct {
	t    *testing.T
	w    *database
	slot string
	conn *pgconn.PgConn
}

func (s *walsender) start() {
	s.t.Helper()
	cfg, err := pgconn.ParseConfig(s.w.url)
	if err != nil {
		s.t.Fatal(err)
	}
	cfg.RuntimeParams["replication"] = "database"
	if s.conn, err = pgconn.ConnectConfig(await.Context(s.t), cfg); err != nil {
		s.t.Fatal(err)
	}
	err = pglogrepl.StartReplication(await.Context(s.t), s.conn, s.slot, 0, pglogrepl.StartReplicationOptions{PluginArgs: []string{"proto_version '1'", "publication_names 'p'"}})
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *walsender) stop() { _ = s.conn.Close(context.Background()) }

// look reads what the view says of the slot.
func (s *walsender) look() (v slotSeen) {
	s.t.Helper()
	var restart, flush string
	s.w.scan(`SELECT coalesce(active_pid, 0), restart_lsn::text, confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1`, []any{s.slot}, &v.pid, &restart, &flush)
	for text, to := range map[string]*pglogrepl.LSN{restart: &v.restart, flush: &v.flush} {
		lsn, err := pglogrepl.ParseLSN(text)
		if err != nil {
			s.t.Fatal(err)
		}
		*to = lsn
	}
	return v
}

const insertEvent = `INSERT INTO outbox (id, aggregatetype, aggregateid, type) VALUES (gen_random_uuid(), 'a', 'k', 't')`

// report says that all up to the end of the WAL is flushed, and returns when the slot shows it.
func (s *walsender) report() {
	s.t.Helper()
	s.w.exec(insertEvent)
	var text string
	s.w.scan(`SELECT pg_current_wal_lsn()::text`, nil, &text)
	at, err := pglogrepl.ParseLSN(text)
	if err != nil {
		s.t.Fatal(err)
	}
	for s.look().flush < at {
		c, cancel := context.WithTimeout(await.Context(s.t), 5*time.Millisecond)
		for err = nil; err == nil; {
			_, err = s.conn.ReceiveMessage(c) // what was sent is read, or the walsender would wait
		}
		cancel()
		if !pgconn.Timeout(err) {
			s.t.Fatal(err)
		}
		err := pglogrepl.SendStandbyStatusUpdate(await.Context(s.t), s.conn, pglogrepl.StandbyStatusUpdate{WALWritePosition: at})
		if err != nil {
			s.t.Fatal(err)
		}
	}
}

// A bare position stays until the slot, as the server saved it, is past it: also after a crash of
// the server.
func TestBarePositionStaysUntilTheSlotIsSaved(t *testing.T) {
	server := servers.OwnPostgres(t)
	w := newDatabase(t, server, "")
	b := newBench(t, w)
	s := &walsender{t: t, w: w, slot: b.c.Slot}
	w.exec(`SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, s.slot)
	s.start()
	// keeps restart_lsn where it is
	open, err := connect(t, w.conn.Config().ConnString()).Begin(await.Context(t))
	b.must(err)
	_, err = open.Exec(await.Context(t), insertEvent)
	b.must(err)
	s.report()

	deadLetter := b.row("k", 1, 1)
	deadLetter.Dead = true
	deadLetter.Event.Origin = event.Origin{Relation: 7, Tx: 5}
	deadLetter.Event.Position.Commit = s.look().flush
	b.deferRow(deadLetter)
	b.answer(b.Ask(b.c, store.Purge, deadLetter.N, event.Route{}), true, sink.Outcome{})
	expire := func(want string) {
		t.Helper()
		if _, err := b.Expire(await.Context(t), 0, 10); err != nil {
			t.Fatal(err)
		}
		b.wantWhere(want, deadLetter)
	}
	for range 3 { // confirmed, but the server has no reason to save it
		s.report()
		expire("purged")
	}
	if v := s.look(); v.restart > deadLetter.Event.Position.Commit || v.flush <= deadLetter.Event.Position.Commit {
		t.Fatalf("the slot is not where this test needs it: %+v, dead letter at %s", v, deadLetter.Event.Position)
	}
	b.must(open.Commit(await.Context(t)))
	pass := func() {
		t.Helper()
		await.Until(t, "restart_lsn to move", func() bool {
			w.exec(`CHECKPOINT`) // writes which transactions run
			s.report()
			return s.look().restart > deadLetter.Event.Position.Commit
		}, func() any { return s.look() })
	}
	pass()
	expire("purged") // read for the first time: it may be on its way to the disk
	expire("purged")
	s.stop()
	await.Until(t, "the walsender to end", func() bool { return s.look().pid == 0 })
	expire("purged")
	s.start()
	s.report()
	expire("purged") // another walsender: the one before may have ended without having saved
	s.report()
	expire("purged") // its row may be in the outbox
	w.exec(`UPDATE cdc_relay.dead_letter SET digest = NULL`)
	s.report()
	expire("")

	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	s.stop()
	if err := server.Start(await.Context(t)); err != nil {
		t.Fatal(err)
	}
	w.conn = connect(t, w.url)
	if v := s.look(); v.flush <= deadLetter.Event.Position.Commit {
		t.Errorf("after the crash the slot sends from %s on: the dead letter at %s again", v.flush, deadLetter.Event.Position)
	}
	if _, err := b.Expire(await.Context(t), 0, 10); err != nil && errors.Is(err, store.ErrFenced) {
		t.Error(err)
	}
}
