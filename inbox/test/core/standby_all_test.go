//go:build testall

package core

import (
	"context"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
)

// An effect that the synchronous standby does not have is not acknowledged, though the server has
// committed it.
func TestSynchronousStandbyAway(t *testing.T) {
	t.Parallel()
	server, err := pgserver.Start(await.Context(t), pgserver.Options{NoFsync: true})
	await.Must(t, err)
	t.Cleanup(func() { server.Close() })
	await.Must(t, server.CreateDatabase(t.Context(), "service"))
	r := newRigAt(t, server.URL("service"), write, func(cfg *inbox.Config) { cfg.Timeout = 4 * time.Second })
	standbys := func(names string) {
		t.Helper()
		_, err := r.pool.Exec(t.Context(), "ALTER SYSTEM SET synchronous_standby_names = '"+names+"'")
		await.Must(t, err)
		_, err = r.pool.Exec(t.Context(), "SELECT pg_reload_conf()")
		await.Must(t, err)
		await.Until(t, "the setting", func() bool {
			return r.count(t, "SELECT count(*) FROM pg_settings WHERE name = 'synchronous_standby_names' AND setting = '"+names+"'") == 1
		})
	}
	standbys("away")
	await.Until(t, "commits to wait for the standby, which is the checkpointer's doing", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, err := r.pool.Exec(ctx, "SELECT pg_logical_emit_message(true, 'probe', '')")
		return err != nil && ctx.Err() != nil
	})
	done := make(chan error, 1)
	go func() { done <- r.handle(t.Context(), inbox.Message{ID: "1"}) }()
	await.Until(t, "the inbox to find the record and to wait", func() bool { return r.said.has("also on a synchronous standby") || len(done) == 1 })
	if len(done) == 1 || r.effects(t, "1") != 1 {
		t.Fatalf("acknowledged: %v, effects %d; want an effect that is not acknowledged", len(done) == 1, r.effects(t, "1"))
	}
	standbys("")
	await.Must(t, <-done)
	if n := r.effects(t, "1"); n != 1 || r.outcomes("duplicate") != 1 {
		t.Errorf("effects %d, duplicates %d; want one each", n, r.outcomes("duplicate"))
	}
}
