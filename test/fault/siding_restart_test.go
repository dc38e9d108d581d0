package fault

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// What the siding knows holds over a crash: by the position of the event, whatever the configuration says now.

// unreported keeps the relay from reporting anything more until let go: it can not raise its ceiling.
func unreported(s *stand.Stand) (let func()) {
	s.T.Helper()
	conn, err := pgx.Connect(s.Within(time.Minute), s.DB)
	s.Must(err)
	_, err = conn.Exec(s.Within(time.Minute), `BEGIN`)
	s.Must(err)
	_, err = conn.Exec(s.Within(time.Minute), `SELECT FROM cdc_relay.progress WHERE slot = $1 FOR UPDATE`, s.Slot)
	s.Must(err)
	let = func() { _ = conn.Close(s.Within(time.Second)) } // a second time it does nothing
	s.T.Cleanup(let)
	return let
}

// e1 is a dead letter and e2 of its key is confirmed, and none of it is reported when the relay crashes: e1 is read again,
// and is not published, nor does it hold e2.
func TestDeadIsNotPublishedAfterACrash(t *testing.T) {
	stand.OnEachRouted(t, func(s *stand.Stand) {
		s.WatchFlush()
		r := s.Start()
		s.Write(30)
		s.Arrived()
		s.Reported()
		let := unreported(s)
		e1 := event(s, "a", 1, s.Poison(1, 0))
		s.AwaitSided(devenv.Open, 1)
		e2 := event(s, "a", 2, devenv.Kind{})
		s.Must(s.Consumer.WaitIDs(s.Within(30*time.Second), []string{e2}))
		s.Must(r.Kill())
		let()
		s.Gone()
		before := s.SidingRows()
		bound := s.Unreported()
		if bound != 1 {
			s.T.Errorf("%d events may arrive twice, want e2 alone", bound)
		}
		s.Antidote() // if it were published now, it would arrive
		r = s.Start()
		s.Must(s.Consumer.WaitIDs(s.Within(30*time.Second), []string{event(s, "a", 3, devenv.Kind{})}))
		v := s.CheckHistory(devenv.History{MaxDuplicates: bound, MaxDead: 1})
		if v.Duplicates != 1 || !slices.Equal(v.Dead, []string{e1}) {
			s.T.Errorf("%d duplicates and the dead letters %v, want e2 twice and e1", v.Duplicates, v.Dead)
		}
		if after := s.SidingRows(); !slices.Equal(before, after) {
			s.T.Errorf("the rows of the siding have changed:\n%.2000q\n%.2000q", before, after)
		}
		stopped(s, r, 0)
	})
}

const otherRow = "11111111-1111-1111-1111-111111111111"

// Between the crash and the next start the configuration changes: another table of the publication before ours, logical messages
// as events, another number of lanes, another ordering. What is parked or dead is known by its position all the same: it is not sent again.
func TestConfigurationChangesBetweenCrashAndRedelivery(t *testing.T) {
	t.Parallel()
	onEach, onRabbitMQ := stand.OnEachRouted, func(t *testing.T, test func(*stand.Stand)) {
		t.Helper()
		stand.Parallel(t)
		test(stand.Routed(t, stand.Kinds[0]))
	}
	for name, c := range map[string]struct {
		on     func(*testing.T, func(*stand.Stand))
		change func(*stand.Stand)
	}{
		"tables": {onEach, func(s *stand.Stand) {
			s.Source = "tables: [public.other_outbox, public.outbox]"
			s.Messages = []devenv.Row{{ID: otherRow, Aggregate: "order", Key: "o", Seq: 1, Unit: s.Usual()}}
		}},
		"prefix": {onEach, func(s *stand.Stand) {
			s.Source = "message_prefix: ours"
			s.Messages = []devenv.Row{{ID: "of a message", Aggregate: "order", Key: "m", Seq: 1, Unit: s.Usual()}}
		}},
		"lanes": {onRabbitMQ, func(s *stand.Stand) { s.Delivery = "lanes: 3" }}, // on Kafka they are the partitions
		"order": {onEach, func(s *stand.Stand) { s.Ordering = "pipelined" }},
	} {
		t.Run(name, func(t *testing.T) {
			c.on(t, func(s *stand.Stand) {
				s.WatchFlush()
				s.SQL(`CREATE TABLE other_outbox (LIKE outbox INCLUDING ALL)`)
				// Both tables are published from the beginning: the server sends the rows of the other one, whoever's they are.
				s.SQL(fmt.Sprintf(`CREATE PUBLICATION %s FOR TABLE outbox, other_outbox WITH (publish = 'insert', publish_via_partition_root = true)`, s.Slot))
				r := s.Start()
				s.Write(30)
				s.Arrived()
				s.Reported()
				let := unreported(s)
				// One transaction with all of it: the indexes of its events are counted over everything in it.
				s.SQL(fmt.Sprintf(`SELECT pg_logical_emit_message(true, 'ours', '{"id": "of a message", "aggregatetype": "order", "aggregateid": "m", "type": "placed", "payload": {"seq": 1}, "destination": "%[3]s", "routing_key": "order.placed"}');
					INSERT INTO other_outbox (id, aggregatetype, aggregateid, type, payload) VALUES ('%[5]s', 'order', 'o', 'placed', '{"seq": 1}');
					INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload, destination, routing_key)
					SELECT gen_random_uuid(), 'order', 'c' || i %% 5, 'placed', jsonb_build_object('key', 'c' || i %% 5, 'seq', i / 5 + 1, 'fill', repeat('x', CASE WHEN i %% 5 > 1 AND i %% 7 = 0 THEN %[1]d ELSE 0 END)),
						CASE WHEN i %% 5 < 2 THEN '%[2]s' ELSE '%[3]s' END, CASE WHEN i %% 5 > 1 AND i %% 7 = 0 THEN '%[4]s' ELSE 'order.placed' END
					FROM generate_series(0, 99) i`, s.Poison(1, 0).Payload, s.Later(), s.Usual(), s.Poison(1, 0).RoutingKey, otherRow))
				s.AwaitSided(devenv.Open, 1)
				s.AwaitSided(devenv.Parked, 30)
				s.Until(time.Minute, "all of it to be somewhere", func() bool {
					n, _ := s.Consumer.Count()
					return n-s.Committed()+s.Sided(devenv.Open)+s.Sided(devenv.Parked) >= 100
				})
				s.Must(r.Kill())
				let()
				s.Gone()
				dead := s.SidedIDs(devenv.Open)
				bound := s.Unreported()
				c.change(s)
				r = s.Start()
				s.Write(30)
				s.MakeLater()
				v := s.CheckHistory(devenv.History{MaxDuplicates: bound, MaxDead: len(dead)})
				slices.Sort(dead)
				slices.Sort(v.Dead)
				if !slices.Equal(dead, v.Dead) {
					s.T.Errorf("%d letters were open, and now %d", len(dead), len(v.Dead))
				}
				stopped(s, r, 0)
			})
		})
	}
}

// The siding's own connections are lost, again and again, while it parks and while it feeds; the stream's is not.
func TestConnectionOfTheSidingLost(t *testing.T) {
	stand.OnEachRouted(t, func(s *stand.Stand) {
		s.Retry = "backoff: 100ms, max_backoff: 1s"
		s.Kinds = []devenv.Kind{s.ToLater(0.5, 0), s.Poison(0.05, 0)}
		s.WatchFlush()
		r := s.Start()
		s.RefuseLater()
		stop := s.Load(300)
		lose := func() {
			s.SQL(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
				WHERE datname = current_database() AND application_name LIKE 'cdc-relay/%' AND backend_type = 'client backend'`)
		}
		for range 5 {
			s.AwaitSided(devenv.Parked, s.Sided(devenv.Parked)+20)
			lose()
		}
		s.MakeLater()
		for range 5 {
			s.MoreOf(s.Later(), 30)
			lose()
		}
		s.Kinds = nil
		stop()
		s.Leads(s.Ready(r))
		s.AwaitEmpty()
		s.Until(time.Minute, "the letters", func() bool { return s.Sided(devenv.Open) > 0 })
		s.CheckHistory(devenv.History{MaxDuplicates: 0, MaxDead: -1})
		stopped(s, r, 0)
	})
}

// A role whose sessions do not wait for their commits and read only: the relay's do and write. A row that others see is
// durable.
func TestRoleThatIsReadOnlyAndDoesNotWaitForItsCommits(t *testing.T) {
	stand.Parallel(t)
	pg, err := devenv.StartPostgres(t.Context(), devenv.PostgresOptions{Settings: map[string]string{"wal_writer_delay": "10s"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pg.Close(); err != nil {
			t.Error(err)
		}
	})
	s := stand.On(t, pg, stand.SharedRabbitMQ(t))
	s.Route()
	s.WatchFlush()
	s.User = "careless"
	s.SQL(`CREATE ROLE careless SUPERUSER REPLICATION LOGIN; ALTER ROLE careless SET synchronous_commit = off;
		ALTER ROLE careless SET default_transaction_read_only = on; ALTER ROLE careless SET statement_timeout = '1ms';
		ALTER ROLE careless SET lock_timeout = '1ms'; ALTER ROLE careless SET search_path = 'nowhere'`)
	r := s.Start()
	for i := range 5 {
		event(s, fmt.Sprint("k", i), 1, s.ToLater(1, 0))
		s.Until(30*time.Second, "the row", func() bool {
			var rows int
			var durable bool
			s.Query([]any{&rows, &durable}, `SELECT count(*), coalesce(max(lsn) < pg_current_wal_flush_lsn(), true) FROM devenv.siding_log WHERE NOT gone`)
			if rows > i && !durable {
				t.Errorf("row %d is seen before it is durable", i)
			}
			return rows > i
		})
	}
	s.MakeLater()
	s.Check(0)
	stopped(s, r, 0)
}

// A copy of the database has rows of the system that it was copied from: they are never sent and never touched, they hold
// nobody, and `check` names them.
func TestRowsOfAForeignSystem(t *testing.T) {
	stand.OnEachRouted(t, func(s *stand.Stand) {
		s.WatchFlush()
		r := s.Start()
		parked := event(s, "a", 1, s.ToLater(1, 0))
		dead := event(s, "b", 1, s.Poison(1, 0))
		s.AwaitSided(devenv.Parked, 1)
		s.AwaitSided(devenv.Open, 1)
		stopped(s, r, 0)
		s.SQL(`UPDATE cdc_relay.retry SET system_id = '4711'; UPDATE cdc_relay.dead_letter SET system_id = '4711'`)
		s.SQL(`DELETE FROM outbox`)
		foreign := s.SidingRows()

		said := s.Command("check")
		if !strings.Contains(said.Stdout, "4711 (1 parked, 1 dead letters)") {
			s.T.Errorf("check does not name the foreign rows: %s%s", said.Stdout, said.Stderr)
		}
		s.MakeLater()
		s.Antidote()
		r = s.Start()
		s.Must(s.Consumer.WaitIDs(s.Within(30*time.Second), []string{event(s, "a", 2, s.ToLater(1, 0)), event(s, "b", 2, devenv.Kind{})}))
		s.Check(0)
		for _, d := range s.Consumer.Deliveries() {
			if d.ID == parked || d.ID == dead {
				s.T.Errorf("event %s of another system was sent", d.ID)
			}
		}
		if after := s.SidingRows(); !slices.Equal(foreign, after) {
			s.T.Errorf("the foreign rows have changed:\n%.2000q\n%.2000q", foreign, after)
		}
		stopped(s, r, 0)
	})
}
