//go:build testall

package replication

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
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
	var checks atomic.Int32
	b.cfg.Hooks.Monitor = func(atWork bool) {
		if !atWork {
			checks.Add(1)
		}
	}
	r := b.run()
	stops := func(unsettled ...int64) {
		t.Helper()
		stopped := make(chan error, 1)
		go func() {
			_, err := p.Stop("fast")
			stopped <- err
		}()
		// The server refuses the monitor's checks from now on, and the watch is told before that.
		const enough = 5
		before := checks.Load()
		await.Until(t, "the server to stop", func() bool { return len(stopped) > 0 || checks.Load() > before+enough })
		if len(stopped) == 0 {
			t.Fatalf("the server refuses connections, has ended %d checks, and the relay keeps its walsender", enough)
		}
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
		r.waitPhase(slot.Streaming)
		b.reconnect()
	}
	r.waitPhase(slot.Streaming)
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
	r.waitPhase(slot.Stopping)
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
	r.waitPhase(slot.Streaming)
	b.insert("a")
	r.waitSeen("a")
	r.endClean()
	b.wantSeen("a")
}

// A server whose connections are all in use is not asked again and again. The stream goes on, what
// needs a connection goes on as soon as there is one, and a shutdown is noticed at once although no
// session of the pool can tell of it: a watch that is refused waits for longer than this test does.
func TestServerWithoutFreeConnections(t *testing.T) {
	t.Parallel()
	p := ownServer(t, map[string]string{"max_connections": "20", "superuser_reserved_connections": "15", "log_connections": "on"})
	b := newBench(t, p.URL("shop"))
	b.exec(`CREATE ROLE relay LOGIN REPLICATION; ALTER DATABASE shop OWNER TO relay; ALTER TABLE outbox OWNER TO relay; GRANT CREATE ON SCHEMA public TO relay`)
	u := *p.Url
	u.User, u.Path = url.User("relay"), "/shop"
	b.cfg.URL = u.String()
	b.cfg.Grace, b.cfg.WALSenderTimeout, b.cfg.RefusedPause = time.Hour, time.Hour, time.Hour
	block, blocked, release := make(chan struct{}), make(chan struct{}), make(chan struct{})
	b.cfg.Hooks.Monitor = func(bool) {
		select {
		case <-block:
			blocked <- struct{}{}
			<-release
		default:
		}
	}
	free := sync.OnceFunc(func() { close(release) })
	defer free()
	r := b.settledRun("a")
	refused := func(more int) {
		t.Helper()
		times := func() int { return strings.Count(p.Log(), "remaining connection slots are reserved") }
		told := times()
		await.Until(t, "the relay to be refused", func() bool { return times() >= told+more })
	}
	var others []*pgx.Conn
	exhaust := func(times int) {
		t.Helper()
		for range 5 {
			others = append(others, b.connect())
		}
		b.exec(`SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE usename = 'relay' AND backend_type = 'client backend'`)
		refused(times)
	}
	walsenders := func() int { return strings.Count(p.Log(), "replication connection authorized") }
	exhaust(4)
	before := walsenders()
	b.insert("b")
	r.waitSeen("b")
	refused(2)
	if now := walsenders(); now != before {
		t.Errorf("it has opened %d replication connections because it was refused others", now-before)
	}
	for _, conn := range others {
		await.Must(t, conn.Close(await.Context(t)))
	}
	await.Until(t, "b to be reported", func() bool { return b.confirmedFlush() >= b.current().OwnWatermark() })

	// Now without the help of the monitor, which has trouble itself every five seconds.
	block <- struct{}{}
	<-blocked
	exhaust(1)
	stopped := make(chan error, 1)
	go func() {
		_, err := p.Stop("fast")
		stopped <- err
	}()
	await.Until(t, "the relay to let go", func() bool { return b.logs.FilterMessageSnippet("released the slot").Len() == 1 })
	free()
	await.Until(t, "the server to stop", func() bool { return len(stopped) > 0 })
	await.Must(t, <-stopped)
}

// An idle relay writes nothing, whatever it reads. Two things could make it write for ever: the
// record of what the publication sends, if it looks different whenever it is read back, and the
// raise of the flush limit, a commit that comes back in the stream under a publication FOR ALL
// TABLES. Whatever is written takes a transaction number, so nobody may take any.
func TestIdleRelayWritesNothing(t *testing.T) {
	t.Parallel()
	p := servers.QuietPostgres(t) // what other databases write moves the slots too
	var benches []*bench
	checks := make(chan int, 1000) // which bench has been checked
	for _, c := range []struct {
		publication string
		messages    bool
		tables      bool
	}{
		{`CREATE PUBLICATION p FOR TABLE outbox`, false, true},
		{`CREATE PUBLICATION p FOR TABLE outbox, another`, false, true},
		{`CREATE PUBLICATION p FOR ALL TABLES`, false, true},
		{`CREATE PUBLICATION p FOR TABLES IN SCHEMA public`, false, true},
		{`CREATE PUBLICATION p FOR TABLES IN SCHEMA public, cdc_relay`, false, true},
		{`CREATE PUBLICATION p`, true, false},
		{`CREATE PUBLICATION p FOR ALL TABLES`, true, false},
		{`CREATE PUBLICATION p FOR TABLE outbox`, true, true},
	} {
		b := newBench(t, p.Database(t))
		b.exec(`CREATE TABLE another (); CREATE SCHEMA cdc_relay`)
		if !strings.Contains(c.publication, " IN SCHEMA ") {
			b.exec(c.publication)
		} else if !b.since15(c.publication) {
			continue
		}
		if c.messages {
			b.relayMessages()
		}
		if !c.tables {
			b.cfg.Tables = nil
		}
		n := len(benches)
		b.cfg.Hooks.Monitor = func(atWork bool) {
			if !atWork {
				checks <- n
			}
		}
		benches = append(benches, b)
	}
	checked := func(times int) {
		t.Helper()
		seen := map[int]int{}
		await.Until(t, "checks of all relays", func() bool {
			for len(checks) > 0 {
				seen[<-checks]++
			}
			for n := range benches {
				if seen[n] < times {
					return false
				}
			}
			return true
		}, func() any { return seen })
	}
	first := benches[0]
	var runs []*running
	for _, b := range benches {
		runs = append(runs, b.streaming())
	}
	sessions := func() (n int) {
		for _, r := range runs {
			n += r.sessions()
		}
		return n
	}
	states := func() (all []string) {
		for _, b := range benches {
			all = append(all, b.text(`SELECT s.ctid::text || s.xmin || p.ctid || p.xmin || s || p FROM cdc_relay.slots s JOIN cdc_relay.progress p USING (slot)`))
		}
		return append(all, "next transaction "+first.text(`SELECT pg_snapshot_xmax(pg_current_snapshot())::text`))
	}
	idle := func(id string) (before, after []string) {
		t.Helper()
		for i, b := range benches {
			if len(b.cfg.Tables) > 0 {
				b.insert(id)
			} else {
				b.exec(message(id, "1"))
			}
			runs[i].waitReported(id)
		}
		for len(checks) > 0 {
			<-checks
		}
		checked(1) // the one that recorded it records the standbys of a failover slot afterwards
		before = states()
		checked(2)
		return before, states()
	}
	// The flush limit is raised without an event, too: at the beginning of a session, and a minute
	// after the last raise where others have written, as the other relays here. So the events come
	// when all relays stream, and what took too long is done again.
	const most = 45 * time.Second
	for n := 0; ; n++ {
		began, was := time.Now(), sessions()
		before, after := idle(fmt.Sprint("a", n))
		if time.Since(began) > most || sessions() != was {
			continue
		}
		for i, now := range after {
			if now != before[i] {
				t.Errorf("an idle relay has written: %s, before %s", now, before[i])
			}
		}
		return
	}
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
