//go:build nightly

package debezium

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	debeziumserver "github.com/cdc-relay/cdc-relay/internal/devenv/servers/debezium"
)

// Back to Debezium, on the relay's slot and under load. With its old offsets it goes on where the
// slot is, as long as the slot still reads what they name; later it refuses to start, until they
// are removed. Nothing is lost either way (docs/from-debezium.md).
func TestRollback(t *testing.T) {
	t.Run("rabbitmq, soon", func(t *testing.T) {
		s := newStage(t, "rabbitmq")
		first := s.debezium("")
		s.writes()
		s.more(500)
		s.throughTheRelay(first, s.holdRestart)
		second := s.debezium(first.Dir())
		s.more(500)
		s.finish(-1)
		must(t, second.Stop(s.within()))
		s.free()
		// And to the relay again: it sees that the slot has moved without it, and somebody has to
		// say that this is meant.
		relay := runner.Start(t, runner.Build(t), s.config)
		if code, err := relay.Exit(s.within()); err != nil || code != 3 || !strings.Contains(relay.Log(), "cdc-relay accept ") {
			t.Errorf("the relay ends with %d, %v: %s", code, err, relay.Log())
		}
	})
	t.Run("kafka, later", func(t *testing.T) {
		s := newStage(t, "kafka")
		first := s.debezium("")
		s.writes()
		s.more(500)
		s.throughTheRelay(first, func() {})
		// What starts and stops at once has waited until the relay has reported everything that was
		// there.
		s.restartPasses(query[string](s, `SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1`, s.slot))
		refused, err := debeziumserver.LaunchDebezium(debeziumserver.DebeziumOptions{DB: s.db, Source: s.source, Sink: s.sink, Dir: first.Dir()})
		must(t, err)
		t.Cleanup(func() { _ = refused.Kill() })
		if _, err := refused.Exit(s.within()); err != nil {
			t.Fatal(err)
		}
		if log := refused.Log(); !strings.Contains(log, "Last recorded offset is no longer available on the server") {
			t.Fatalf("it has ended for another reason:\n%s", log)
		}
		must(t, os.Remove(filepath.Join(first.Dir(), "offsets.dat")))
		s.debezium(first.Dir())
		s.more(500)
		s.finish(-1)
	})
}

// throughTheRelay moves to the relay, has it go on for a while after that, and stops it. Debezium's
// next start is on the relay's slot and publication.
func (s *stage) throughTheRelay(d *debeziumserver.Debezium, that func()) {
	s.t.Helper()
	s.takesTheSlot(d, false)
	s.source["slot.name"] = s.slot
	that()
	relay := s.relay()
	s.more(500)
	if code := relay.Stop(s.t); code != 0 {
		s.t.Errorf("the relay exits %d", code)
	}
}

// holdRestart keeps the slot's restart_lsn where it is, by a transaction that stays open.
func (s *stage) holdRestart() {
	s.t.Helper()
	conn, err := pgx.Connect(s.within(), s.db)
	must(s.t, err)
	s.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	for _, sql := range []string{"BEGIN", "CREATE TABLE held (x int)"} {
		_, err := conn.Exec(s.within(), sql)
		must(s.t, err)
	}
}

// restartPasses has the relay run until the slot no longer reads what was before a position.
func (s *stage) restartPasses(at string) {
	s.t.Helper()
	relay := s.relay()
	for ctx := s.within(); !query[bool](s, `SELECT restart_lsn > $2::pg_lsn FROM pg_replication_slots WHERE slot_name = $1`, s.slot, at); {
		must(s.t, ctx.Err())
		conn, err := pgx.Connect(ctx, s.db)
		must(s.t, err)
		_, err = conn.Exec(ctx, "CHECKPOINT")
		must(s.t, err)
		must(s.t, conn.Close(ctx))
		s.more(20)
	}
	if code := relay.Stop(s.t); code != 0 {
		s.t.Errorf("the relay exits %d", code)
	}
}
