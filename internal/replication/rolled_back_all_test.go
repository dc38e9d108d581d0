//go:build testall

// A server whose storage is restored to an earlier state while a relay runs, or between two runs.

package replication

import (
	"regexp"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
)

// restorable is a bench on a server of its own, whose relay comes through a proxy: it is kept away
// while the server goes back.
type restorable struct {
	*bench
	pg    *pgserver.Postgres
	proxy *netproxy.Proxy
	image string
}

func onRestorable(t *testing.T, pg *pgserver.Postgres) *restorable {
	t.Helper()
	b := newBench(t, pg.Database(t))
	return &restorable{bench: b, pg: pg, proxy: b.through()}
}

// keepImage copies the server's storage.
func (b *restorable) keepImage() {
	b.t.Helper()
	var err error
	b.image, err = b.pg.Image(await.Context(b.t))
	await.Must(b.t, err)
}

// raiseNothing keeps the flush limit where it is until the server goes back. Else it would be
// raised a minute after the last time, which a busy machine may take, and alone show what has
// happened.
func (b *restorable) raiseNothing() {
	b.t.Helper()
	b.begin(`LOCK TABLE cdc_relay.progress IN SHARE MODE`)
}

// rollBack restores the storage and starts the server. The relay is kept away.
func (b *restorable) rollBack() {
	b.t.Helper()
	b.proxy.Cut()
	await.Must(b.t, b.pg.RollBack(await.Context(b.t), b.image))
	await.Must(b.t, b.pg.Start(await.Context(b.t)))
	b.reconnect()
}

// fill writes so many MiB of WAL that no table has.
func (b *restorable) fill(n int) {
	b.t.Helper()
	for range n {
		b.exec(`SELECT pg_logical_emit_message(true, 'filler', repeat('x', 1 << 20))`)
	}
}

// back restores the storage, starts the server, and writes there before the relay comes: of other
// tables so many MiB of WAL, then events of these ids.
func (b *restorable) back(wal int, ids ...string) {
	b.t.Helper()
	b.rollBack()
	b.fill(wal)
	for _, id := range ids {
		b.insert(id)
	}
	await.Must(b.t, b.proxy.Restore())
}

var lostInterval = regexp.MustCompile(`committed between ([0-9A-F]+/[0-9A-F]+) and ([0-9A-F]+/[0-9A-F]+) may be gone`)

// wantLost wants the stop to name an interval that holds a position.
func (b *restorable) wantLost(stop *event.Stop, at string) {
	b.t.Helper()
	m := lostInterval.FindStringSubmatch(stop.What)
	if m == nil || b.text(`SELECT ($1::pg_lsn <= $2::pg_lsn AND $2::pg_lsn <= $3::pg_lsn)::text`, m[1], at, m[2]) != "true" {
		b.t.Errorf("%s is not in an interval that is named: %s", at, stop.What)
	}
}

func TestRolledBackServer(t *testing.T) {
	t.Parallel()
	pg, err := pgserver.Start(await.Context(t), pgserver.Options{NoFsync: true})
	await.Must(t, err)
	t.Cleanup(func() {
		if err := pg.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, c := range []struct {
		name string
		test func(b *restorable)
	}{
		{"UnderALivingRelay", func(b *restorable) { b.underALivingRelay(0) }},
		{"UnderALivingRelayThatComesLate", func(b *restorable) { b.underALivingRelay(4) }},
		{"UnderALeaderWithAStandby", (*restorable).underALeaderWithAStandby},
		{"ToBeforeTheLeadersTerm", (*restorable).toBeforeTheLeadersTerm},
		{"BeforeAnythingWasReported", (*restorable).beforeAnythingWasReported},
		{"AndResumedWithItsMemory", (*restorable).andResumedWithItsMemory},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(onRestorable(t, pg)) })
	}
}

// What the relay had reported is no longer in the server: it stops and names the interval. Started
// again it reads from the slot, and nothing that was committed since is missed. With much WAL
// written meanwhile only the flush limit shows it.
func (b *restorable) underALivingRelay(wal int) {
	b.t.Helper()
	r := b.settledRun("a")
	b.keepImage()
	b.insert("gone")
	at := b.text(`SELECT pg_current_wal_insert_lsn()::text`)
	// more than the new start writes
	b.fill(1)
	b.insert("gone too")
	r.waitSeen("gone")
	r.waitReported("gone too")
	b.back(wal, "b", "c", "d")
	stop := b.wantStop(r.endsBefore("b"), event.ExitOperator, "rolled_back")
	b.wantLost(stop, at)
	if says := map[bool]string{true: "WAL ends at", false: "flush limit"}[wal == 0]; !strings.Contains(stop.What, says) {
		b.t.Errorf("%q is not said: %s", says, stop.What)
	}
	b.delivers("b", "c", "d")
}

// Whoever leads next, nothing that was committed since is missed: the standby has received nothing
// and goes on from the slot; the former leader stops when it comes first, and else forgets what it
// had and stands by.
func (b *restorable) underALeaderWithAStandby() {
	b.t.Helper()
	r := b.settledRun("a")
	b.keepImage() // which may take so long that a standby would lead
	b.insert("gone")
	r.waitReported("gone")
	standby := b.another().run()
	standby.waitPhase(slot.Standby)
	b.back(0, "b", "c")
	standby.waitSeen("b", "c")
	await.Until(b.t, "the former leader to stop or to stand by", func() bool {
		select {
		case <-r.done:
			b.wantStop(r.err, event.ExitOperator, "rolled_back")
			return true
		default:
			return r.s.Snapshot().Phase == slot.Standby
		}
	})
	standby.endClean()
}

// The image is from before the leader's term. Another relay leads there, and has raised the epoch
// to the same number; its limit is above the leader's, and an event is not settled when it dies.
// The leader of before must not take it for its own time.
func (b *restorable) toBeforeTheLeadersTerm() {
	b.t.Helper()
	other := b.another()
	other.cfg.URL = b.url // past the proxy
	other.goesOn("a")
	b.keepImage()
	r := b.settledRun("gone")
	b.rollBack()
	other.conn = b.conn
	b.fill(2)
	b.insert("b")
	b.insert("c")
	other.held = true
	next := other.run()
	next.waitSeen("b", "c")
	line := other.current()
	line.Settle(len(line.Seen()) - 1)
	await.Until(b.t, "the first to be reported", func() bool { return b.confirmedFlush() > line.All()[len(line.Seen())-2].Position.Commit })
	await.Must(b.t, b.proxy.Restore())
	r.waitPhase(slot.Standby)
	next.stop()
	next.cut()
	<-next.done
	b.wantStop(r.endsBefore("later"), event.ExitOperator, "rolled_back")
	b.delivers("c")
}

// Events were received and none was confirmed since the image: nothing was reported, and the limit
// is the same. When the WAL has grown past them, the relay goes on, and what it remembered hides
// nothing.
func (b *restorable) beforeAnythingWasReported() {
	b.t.Helper()
	r := b.settledRun("a")
	b.current().Hold()
	b.raiseNothing()
	b.keepImage()
	b.insert("gone")
	r.waitSeen("gone")
	b.back(2, "b", "c")
	r.waitSeen("b", "c")
	r.endClean()
}

// A virtual machine that is resumed with its memory has the same postmaster as before. The
// transaction that was read last tells that the WAL is another one, also when its commit had not
// arrived: what does not fit into the buffers on the way is lost with the connection.
func (b *restorable) andResumedWithItsMemory() {
	b.t.Helper()
	r := b.settledRun("a")
	b.current().Hold()
	b.raiseNothing()
	b.keepImage()
	at := b.text(`SELECT pg_current_wal_insert_lsn()::text`)
	release := b.current().Block()
	b.exec(`INSERT INTO outbox SELECT 'gone' || CASE n WHEN 0 THEN '' ELSE n::text END, to_jsonb(repeat('x', 4 << 20)) FROM generate_series(0, 7) n`)
	r.waitSeen("gone")
	b.rollBack()
	release()
	as := *r.s.cfg.Primary.Server.Load()
	as.Started = b.text(`SELECT (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint::text`)
	r.s.cfg.Primary.Server.Store(&as)
	b.fill(2)
	b.insert("b")
	await.Must(b.t, b.proxy.Restore())
	stop := b.wantStop(r.endsBefore("b"), event.ExitOperator, "rolled_back")
	b.wantLost(stop, at)
	if !strings.Contains(stop.What, "is no longer in the WAL") {
		b.t.Error(stop)
	}
	b.delivers("b")
}
