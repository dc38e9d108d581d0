// The stand's database on another server.

package stand

import (
	"net/url"
	"path"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
)

// Move has the stand go on with the database of its name on another server.
func (s *Stand) Move(pg *pgserver.Postgres) {
	s.T.Helper()
	s.sql.close()
	s.DB, s.PostgresAddr = pg.URL(s.Database()), pg.Addr()
	s.Postgres = s.Proxy(s.PostgresAddr)
}

// Database is the name of the stand's database.
func (s *Stand) Database() string {
	s.T.Helper()
	u, err := url.Parse(s.DB)
	s.Must(err)
	return path.Base(u.Path)
}

// Copy is a stand for a copy of the database on another server, with a place of its own.
func (s *Stand) Copy(pg *pgserver.Postgres, place Place) *Stand {
	s.T.Helper()
	c := &Stand{
		T: s.T, ctx: await.Context(s.T), Binary: s.Binary, place: place, DB: pg.URL(s.Database()), PostgresAddr: pg.Addr(),
		Slot: s.Slot, Ordering: s.Ordering, Timeout: s.Timeout, Keys: s.Keys, Sink: s.Sink, Delivery: s.Delivery, Retry: s.Retry,
		DeadLetters: s.DeadLetters, Source: s.Source, usual: s.usual, Env: s.Env,
	}
	s.T.Cleanup(c.sql.close)
	c.Postgres = c.Proxy(c.PostgresAddr)
	place.open(c)
	s.T.Cleanup(c.Consumer.Close)
	return c
}
