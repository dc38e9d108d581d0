package replication

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/survey"
)

// An idle outbox must not pin the WAL that other tables write.
func TestIdleOutboxMovesWithOtherTables(t *testing.T) {
	b := shared(t)
	b.exec(`CREATE TABLE other (t text)`)
	r := b.run()
	r.waitPhase(survey.Streaming)
	for range 3 {
		// some 25 MB
		b.exec(`INSERT INTO other SELECT repeat(md5(g::text), 100) FROM generate_series(1, 8000) g`)
		var at string
		if err := b.conn.QueryRow(await.Context(t), `SELECT pg_current_wal_lsn()::text`).Scan(&at); err != nil {
			t.Fatal(err)
		}
		await.Until(t, "the slot to follow", func() bool {
			v, err := slot.Read(await.Context(t), b.conn, b.cfg.Slot)
			return err == nil && uint64(v.Current)-uint64(v.ConfirmedFlush) < 20<<20
		})
	}
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
}

// reconnect is for after a restart of the server.
func (b *bench) reconnect() { b.conn = b.connect() }
