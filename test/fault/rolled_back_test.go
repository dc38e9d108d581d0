package fault

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

func init() {
	ofOnePostgres = append(ofOnePostgres, ofOne[*pgserver.Postgres]{
		"RolledBackUnderALivingRelay", func(t *testing.T, pg *pgserver.Postgres) {
			underALivingRelay(stand.On(t, pg, stand.SharedRabbitMQ(t)), pg, 0)
		},
	})
}

// restored is the server's storage from the time of an image, under relays that were kept away.
type restored struct {
	*stand.Stand
	pg    *pgserver.Postgres
	image string
}

// keepImage writes some events, keeps the storage, and writes more: those are gone once it is
// restored.
func keepImage(s *stand.Stand, pg *pgserver.Postgres) restored {
	s.T.Helper()
	s.Write(20)
	s.Arrived()
	s.Reported()
	image, err := pg.Image(s.Context())
	s.Must(err)
	s.Write(20)
	s.Arrived()
	s.Reported()
	return restored{s, pg, image}
}

// back restores the storage and lets the relays come once so many bytes of WAL were written, and
// some events.
func (s restored) back(wal int) {
	s.T.Helper()
	s.Postgres.Cut()
	s.Must(s.pg.RollBack(s.Context(), s.image))
	s.Must(s.pg.Start(s.Context()))
	for range wal >> 20 {
		s.SQL(`SELECT pg_logical_emit_message(true, 'filler', repeat('x', 1 << 20))`)
	}
	s.Write(20)
	s.Must(s.Postgres.Restore())
}

// allArrive waits for every row that the database has now.
func (s restored) allArrive() {
	s.T.Helper()
	var ids []string
	s.Query([]any{&ids}, `SELECT array_agg(id::text) FROM outbox`)
	s.Must(s.Consumer.WaitIDs(s.Context(), ids))
}

// The storage of the server goes back while a relay runs, and with it what the relay had reported:
// the relay stops, and says which interval is gone. The next one delivers all that the database
// has.
func underALivingRelay(s *stand.Stand, pg *pgserver.Postgres, wal int) {
	s.T.Helper()
	r := s.Start()
	b := keepImage(s, pg)
	b.back(wal)
	s.Exits(r, 3, "went back to an earlier state", "committed between", "start the relay again")
	r = s.Start()
	s.Write(10)
	b.allArrive()
	stopped(s, r, 0)
}
