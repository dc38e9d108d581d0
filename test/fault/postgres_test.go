package fault

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// started is a server until the test ends.
func started(t *testing.T) func(*pgserver.Postgres, error) *pgserver.Postgres {
	return func(pg *pgserver.Postgres, err error) *pgserver.Postgres {
		t.Helper()
		await.Must(t, err)
		t.Cleanup(func() {
			if err := pg.Close(); err != nil {
				t.Error(err)
			}
		})
		return pg
	}
}

// ownPostgres is one that the test may stop.
func ownPostgres(t *testing.T) *pgserver.Postgres {
	t.Helper()
	return started(t)(pgserver.Start(await.Context(t), pgserver.Options{NoFsync: true}))
}

// The server crashes while the broker is away and events wait in the relay. The relay and the
// writers wait for both. After a restart the process remembers of the stream only what the server
// can prove, so what it had not reported may arrive twice, and no more.
func TestPostgresCrashesWithTheBrokerAway(t *testing.T) {
	stand.Parallel(t)
	pg := ownPostgres(t)
	s := stand.On(t, pg, stand.SharedKafka(t))
	r := s.StartWatched()
	stop := s.Load(100)
	s.More(50)
	s.Broker.Cut()
	s.Unready(r, "broker down")
	s.Write(50)
	_, err := pg.Stop("immediate")
	s.Must(err)
	s.Unready(r, "waiting for postgres")
	s.Postgres.Cut()
	s.Must(pg.Start(s.Context()))
	duplicates := s.Unproven()
	s.Must(s.Postgres.Restore())
	s.Must(s.Broker.Restore())
	s.Leads(s.Ready(r))
	s.More(50)
	stop()
	s.Check(duplicates)
}
