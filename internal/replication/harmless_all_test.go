//go:build testall

package replication

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/replication/survey"
)

// ownServer is for tests that stop it, or need settings that it has to be started with.
func ownServer(t *testing.T, settings map[string]string) *pgserver.Postgres {
	t.Helper()
	p, err := pgserver.Start(await.Context(t), pgserver.Options{Settings: settings, NoFsync: true})
	await.Must(t, err)
	t.Cleanup(func() { p.Close() })
	await.Must(t, p.CreateDatabase(await.Context(t), "shop"))
	return p
}

// A fast shutdown waits for each walsender until it has reported the last record of the WAL, which
// a relay cannot: the flush limit is a row in the database that is going down. The relay lets go
// instead, or the server would not stop here: no grace and no wal_sender_timeout ends before the
// test.
func TestServerStopsAsFastWithARelay(t *testing.T) {
	t.Parallel()
	p := ownServer(t, nil)
	b := newBench(t, p.URL("shop"))
	b.cfg.Grace, b.cfg.WALSenderTimeout = time.Hour, time.Hour
	r := b.run()
	stops := func(unsettled ...int64) {
		t.Helper()
		stopped := make(chan error, 1)
		go func() {
			_, err := p.Stop("fast")
			stopped <- err
		}()
		await.Until(t, "the server to stop", func() bool { return len(stopped) > 0 })
		await.Must(t, <-stopped)
		var said []int64
		for _, line := range b.logs.FilterMessageSnippet("released the slot").All() {
			said = append(said, line.ContextMap()["unsettled"].(int64))
		}
		if !slices.Equal(said, unsettled) {
			t.Errorf("it has let go of the slot with so many events unsettled: %v, want %v", said, unsettled)
		}
	}
	starts := func() {
		t.Helper()
		await.Must(t, p.Start(await.Context(t)))
		r.waitPhase(survey.Streaming)
		b.reconnect()
	}
	r.waitPhase(survey.Streaming)
	b.insert("a")
	r.waitSeen("a")
	stops(0)
	starts()
	b.current().Hold() // the broker is dead from now on
	b.held = true
	b.insert("b")
	r.waitSeen("b")
	stops(0, 1)
	starts()
	// The everyday case: relay, broker and server are stopped together. The relay's long grace is
	// not the server's.
	r.stop()
	r.waitPhase(survey.Stopping)
	stops(0, 1)
	b.wantStop(r.wait(), event.ExitCut, "cut") // events were not confirmed
}

// The same before the session runs: the walsender streams already, and the line is still being
// created. It loads a large retry table, or waits for its broker, and does not notice that it is to
// end.
func TestServerStopsWhileTheLineIsCreated(t *testing.T) {
	t.Parallel()
	p := ownServer(t, nil)
	b := newBench(t, p.URL("shop"))
	b.cfg.WALSenderTimeout = time.Hour
	quick := b.cfg.NewLine
	creating, release := make(chan struct{}), make(chan struct{})
	var first sync.Once
	b.cfg.NewLine = func(ctx context.Context, at source.Term) (source.Line, error) {
		first.Do(func() {
			close(creating)
			<-release
		})
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return quick(ctx, at)
	}
	r := b.run()
	letGo := sync.OnceFunc(func() { close(release) })
	defer letGo()
	await.Closed(t, "the line to be created", creating)
	stopped := make(chan error, 1)
	go func() {
		_, err := p.Stop("fast")
		stopped <- err
	}()
	await.Until(t, "the server to stop", func() bool { return len(stopped) > 0 })
	await.Must(t, <-stopped)
	letGo()
	await.Must(t, p.Start(await.Context(t)))
	b.reconnect()
	r.waitPhase(survey.Streaming)
	b.insert("a")
	r.waitSeen("a")
	r.endClean()
	b.wantSeen("a")
}

// A raise of the flush limit is a commit. Under a publication FOR ALL TABLES that commit comes back
// in the stream, and must not cause the next one.
func TestIdleRelayHardlyWrites(t *testing.T) {
	b := alone(t) // what other databases write moves the slot too
	b.exec(`CREATE PUBLICATION p FOR ALL TABLES`)
	r := b.settledRun("a")
	b.exec(`SELECT pg_create_logical_replication_slot('watch', 'test_decoding')`)
	idle := time.NewTimer(3 * time.Second) // the time itself is what is tested
	<-idle.C
	var wrote int
	b.scan(&wrote, `SELECT count(*) FROM pg_logical_slot_get_changes('watch', NULL, NULL)
		WHERE data LIKE 'table cdc_relay.%'`)
	if wrote > 1 {
		t.Errorf("%d rows of ours were written in three idle seconds", wrote)
	}
	r.endClean()
}

// A relay is no standby that commits wait for. The setting may also change under a running one: its
// first report would make it such a standby.
func TestRelayThatBecomesASynchronousStandbyStops(t *testing.T) {
	b := alone(t)
	b.exec(`ALTER SYSTEM SET synchronous_commit = 'local'`) // for the test's own commits
	b.exec(`SELECT pg_reload_conf()`)
	await.Until(t, "the setting to be in force", func() bool { return b.text(`SHOW synchronous_commit`) == "local" })
	r := b.streaming()
	b.exec(`ALTER SYSTEM SET synchronous_standby_names = '*'`)
	b.exec(`SELECT pg_reload_conf()`)
	b.wantStop(r.wait(), event.ExitFailure, "sync_standby")

	names := fmt.Sprintf(`FIRST 2 ("cdc-relay/%s", a)`, b.cfg.Slot)
	b.exec(`ALTER SYSTEM SET synchronous_standby_names = '` + names + `'`)
	b.exec(`SELECT pg_reload_conf()`)
	await.Until(t, "the names to be in force", func() bool { return b.text(`SHOW synchronous_standby_names`) == names })
	b.wantStop(b.run().wait(), event.ExitFailure, "sync_standby")
}
