//go:build testall

package fault

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// The storage of the server goes back while a relay runs, and with it what the relay had reported:
// the relay stops, and says which interval is gone. The next one delivers all that the database
// has. (TestRolledBackServer of internal/replication has the other ways to meet it.)
func rolledBackUnderALivingRelay(t *testing.T, pg *pgserver.Postgres) {
	s := stand.On(t, pg, stand.SharedRabbitMQ(t))
	r := s.Start()
	write := func() {
		s.Deliver(20)
		s.Reported()
	}
	write()
	image, err := pg.Image(s.Context())
	s.Must(err)
	write() // gone once the image is restored

	s.Postgres.Cut()
	s.Must(pg.RollBack(s.Context(), image))
	s.Must(pg.Start(s.Context()))
	s.Write(20)
	s.Must(s.Postgres.Restore())
	s.Exits(r, 3, "went back to an earlier state", "committed between", "start the relay again")
	r = s.Start()
	s.Write(10)
	var ids []string
	s.Query([]any{&ids}, `SELECT array_agg(id::text) FROM outbox`)
	s.Must(s.Consumer.WaitIDs(s.Context(), ids))
	stopped(s, r, 0)
}
