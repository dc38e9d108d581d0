package fault

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// ofOnePostgres are the tests that stop a server. More are in postgres_all_test.go.
var ofOnePostgres = []ofOne[*pgserver.Postgres]{
	{"RoleThatIsReadOnlyAndDoesNotWaitForItsCommits", roleThatIsReadOnlyAndDoesNotWaitForItsCommits},
	{"StopsFast", func(t *testing.T, pg *pgserver.Postgres) {
		postgresStops{mode: "fast", says: `"unsettled":0[,}]`}.meet(stand.On(t, pg, stand.SharedRabbitMQ(t)), pg)
	}},
	{"StopsImmediatelyWithTheBrokerAway", func(t *testing.T, pg *pgserver.Postgres) {
		postgresStops{mode: "immediate", brokerAway: true}.meet(stand.On(t, pg, stand.SharedKafka(t)), pg)
	}},
}

// They run one after the other, on a server of their own.
func TestPostgres(t *testing.T) {
	stand.Parallel(t)
	pg, err := pgserver.Start(await.Context(t), pgserver.Options{NoFsync: true})
	await.Must(t, err)
	t.Cleanup(func() {
		if err := pg.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, c := range ofOnePostgres {
		t.Run(c.name, func(t *testing.T) { c.test(t, pg) })
	}
}

// postgresStops is a stop of the server.
type postgresStops struct {
	mode       string
	brokerAway bool
	says       string // of what the relay lets go; "": it does not come to that
}

// The server stops, in the way named, with a healthy relay or while the broker is away and events
// wait in the relay. The relay and the writers wait for both. After a restart the process remembers
// of the stream only what the server can prove, so what it had not reported may arrive twice, and
// no more. A server that is stopped fast waits for its walsenders for as long as they last, so that
// it stops at all is the relay's doing: it lets go when all is confirmed, or soon without that.
func (c postgresStops) meet(s *stand.Stand, pg *pgserver.Postgres) {
	s.T.Helper()
	r := s.StartWatched()
	stop := s.Load(100)
	s.More(50)
	if c.brokerAway {
		s.Broker.Cut()
		s.Unready(r, "broker down")
		s.Write(50)
	}
	took, err := pg.Stop(c.mode)
	s.Must(err)
	s.T.Logf("PostgreSQL stopped in %s", took)
	if c.says != "" {
		s.Until("the relay to say that it let go", func() bool {
			return regexp.MustCompile(`released the slot.*` + c.says).MatchString(r.Log())
		})
	}
	s.Unready(r, "waiting for postgres")
	s.Postgres.Cut()
	s.Must(pg.Start(s.Context()))
	duplicates := s.Unproven()
	s.Must(s.Postgres.Restore())
	if c.brokerAway {
		s.Must(s.Broker.Restore())
	}
	s.Leads(s.Ready(r))
	s.More(50)
	stop()
	s.Check(duplicates)
}

// A role whose sessions do not wait for their commits and read only: the relay's do and write. A
// row that others see is durable.
func roleThatIsReadOnlyAndDoesNotWaitForItsCommits(t *testing.T, pg *pgserver.Postgres) {
	s := stand.On(t, pg, stand.SharedRabbitMQ(t))
	s.Route()
	s.WatchFlush()
	s.User = "careless"
	s.SQL(`CREATE ROLE careless SUPERUSER REPLICATION LOGIN; ALTER ROLE careless SET synchronous_commit = off;
		ALTER ROLE careless SET default_transaction_read_only = on; ALTER ROLE careless SET statement_timeout = '1ms';
		ALTER ROLE careless SET lock_timeout = '1ms'; ALTER ROLE careless SET search_path = 'nowhere'`)
	r := s.Start()
	// not before: the slot's creation waits for the writer
	s.SQL(`ALTER SYSTEM SET wal_writer_delay = '10s'`)
	s.SQL(`SELECT pg_reload_conf()`)
	t.Cleanup(func() {
		stand.SQLOn(t, pg.URL("postgres"), `ALTER SYSTEM RESET ALL`)
		stand.SQLOn(t, pg.URL("postgres"), `SELECT pg_reload_conf()`)
	})
	for i := range 5 {
		event(s, fmt.Sprint("k", i), 1, s.ToLater(1, 0))
		s.Until("the row", func() bool {
			var rows int
			var durable bool
			s.Query([]any{&rows, &durable}, `SELECT count(*), coalesce(max(lsn) < pg_current_wal_flush_lsn(), true) FROM devenv.retry_log WHERE NOT gone`)
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
