// PostgreSQL servers of a test's own. They have no autovacuum: it writes by itself, and once it has
// vacuumed a shared catalog each new connection reads all catalogs, and waits for a test that has
// locked one.

package servers

import (
	"context"
	"sync"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
)

var (
	ownPostgres = sync.OnceValues(func() (*pgserver.Postgres, error) {
		return closedInTheEnd(startPostgresForTests(context.Background(), "off"))
	})
	quietPostgres = sync.OnceValues(func() (*pgserver.Postgres, error) {
		return closedInTheEnd(startPostgresForTests(context.Background(), "off"))
	})

	quiet sync.Mutex // a test has quietPostgres
)

// OwnPostgres is a server of this process, also when an address is given: for many tests at a time
// that make slots, hold transactions open or write much WAL, which tests of other packages would
// wait for. It is started at first use and ended by Main.
func OwnPostgres(t testing.TB) *pgserver.Postgres {
	t.Helper()
	return server(t, ownPostgres)
}

// QuietPostgres is one more server of this process, which a test has alone until it ends: for tests
// of positions, of what keeps WAL and of settings that need no restart. The next test waits, and
// starts with the default settings. A test asks for it once.
func QuietPostgres(t testing.TB) *pgserver.Postgres {
	t.Helper()
	p := server(t, quietPostgres)
	quiet.Lock()
	t.Cleanup(func() {
		defer quiet.Unlock()
		if err := p.ResetSettings(context.Background()); err != nil {
			t.Errorf("reset settings: %v", err)
		}
	})
	return p
}
