package core

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
)

// Prune deletes what is older than Keep, of this service alone, and waits for nobody.
func TestPrune(t *testing.T) {
	t.Parallel()
	for _, table := range []string{"processed_messages", "Inbox.processed"} {
		r := newRig(t, write, func(cfg *inbox.Config) { cfg.Table, cfg.Keep = table, time.Hour })
		if table != "processed_messages" {
			// The schema may be made again.
			_, err := r.pool.Exec(t.Context(), `CREATE SCHEMA "Inbox";`+inbox.Schema(table)+inbox.Schema(table))
			await.Must(t, err)
		}
		await.Must(t, r.handle(t.Context(), inbox.Message{ID: "young"}))
		_, err := r.pool.Exec(t.Context(), "INSERT INTO "+quoted(table)+` (service, id, processed_at)
			SELECT service, n, now() - interval '61 minutes' FROM generate_series(1, 2500) n, (VALUES ('notifier'), ('billing')) AS s (service)`)
		await.Must(t, err)

		tx, err := r.pool.Begin(t.Context())
		await.Must(t, err)
		_, err = tx.Exec(t.Context(), "SELECT FROM "+quoted(table)+" WHERE service = 'notifier' AND id = '7' FOR UPDATE")
		await.Must(t, err)
		n, err := r.Prune(t.Context())
		await.Must(t, err)
		if n != 2499 {
			t.Errorf("%d rows are deleted, want all but the locked one", n)
		}
		await.Must(t, tx.Rollback(t.Context()))
		if n, err := r.Prune(t.Context()); n != 1 || err != nil {
			t.Errorf("%d rows are deleted, %v; want the last one", n, err)
		}
		if own, other := r.count(t, "SELECT count(*) FROM "+quoted(table)+" WHERE service = 'notifier'"), r.count(t, "SELECT count(*) FROM "+quoted(table)+" WHERE service = 'billing'"); own != 1 || other != 2500 {
			t.Errorf("rows left: own %d, of the other service %d; want 1 and 2500", own, other)
		}
		await.Must(t, r.handle(t.Context(), inbox.Message{ID: "young"}))
		if r.outcomes("duplicate") != 1 {
			t.Error("a young record is forgotten")
		}
	}
}
