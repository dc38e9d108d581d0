//go:build nightly

package fault

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

func init() { otherServers["dump"], otherServers["promoted clone"] = restoredDump, promotedClone }

// The numbers of transactions of the two are far apart: of a row with a number that the new server
// has given since the restore the relay takes nothing for known (sent.Description.UnsentSQL).
func restoredDump(t *testing.T, pg *pgserver.Postgres) {
	conn, err := pgx.Connect(t.Context(), pg.URL("postgres"))
	await.Must(t, err)
	_, err = conn.Exec(t.Context(), `DO $$ BEGIN FOR i IN 1..20000 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$`)
	await.Must(t, err)
	await.Must(t, conn.Close(t.Context()))
	to := ownPostgres(t)
	s, b := leave(t, pg, false)
	s.Must(to.RestoreDump(s.Context(), pg, s.Database()))
	s.Move(to)
	b.goesOn(s, "does not exist here")
}

// A copy of the server's files, slots included, that begins with a recovery: the next timeline.
// What waits in the slot is the original's to send. (TestSlotAcceptedOnAnotherServer accepts such a
// server as the same data.)
func promotedClone(t *testing.T, pg *pgserver.Postgres) {
	s, b := leave(t, pg, true)
	event(s, "c", 1, load.Kind{}) // waits in the slot
	clone := started(t)(pgserver.StartClone(s.Context(), pg, true))
	s.Must(pg.Start(s.Context()))
	b.staysACopy(s.Copy(clone, stand.SharedRabbitMQ(t)), "left on timeline 1", "on timeline 2")
	b.original(s)
}
