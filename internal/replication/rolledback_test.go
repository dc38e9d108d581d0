// A server whose storage is restored to an earlier state while a relay runs, or between two runs.

package replication

import (
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/replicationtest"
	"github.com/cdc-relay/cdc-relay/internal/replication/session"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/replication/survey"
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

func (b *restorable) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// keepImage copies the server's storage.
func (b *restorable) keepImage() {
	b.t.Helper()
	var err error
	b.image, err = b.pg.Image(await.Context(b.t))
	b.must(err)
}

// back restores the storage, starts the server, and writes there before the relay comes: of other
// tables so many bytes of WAL, then events of these ids.
func (b *restorable) back(wal int, ids ...string) {
	b.t.Helper()
	ctx := await.Context(b.t)
	b.proxy.Cut()
	b.must(b.pg.RollBack(ctx, b.image))
	b.must(b.pg.Start(ctx))
	b.reconnect()
	for range wal >> 20 {
		b.exec(`SELECT pg_logical_emit_message(true, 'filler', repeat('x', 1 << 20))`)
	}
	for _, id := range ids {
		b.insert(id)
	}
	b.must(b.proxy.Restore())
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
	if err != nil {
		t.Fatal(err)
	}
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
		{"UnderALivingRelayThatComesLate", func(b *restorable) { b.underALivingRelay(64 << 20) }},
		{"UnderAStoppedRelay", (*restorable).underAStoppedRelay},
		{"UnderALeaderWithAStandby", (*restorable).underALeaderWithAStandby},
		{"ToBeforeTheLeadersTerm", (*restorable).toBeforeTheLeadersTerm},
		{"BeforeAnythingWasReported", (*restorable).beforeAnythingWasReported},
		{"AndResumedWithItsMemory", (*restorable).andResumedWithItsMemory},
		{"CrashIsNone", (*restorable).crashIsNone},
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
	b.exec(`SELECT pg_logical_emit_message(true, 'filler', repeat('x', 1 << 20))`)
	b.insert("gone too")
	r.waitSeen("gone", "gone too")
	await.Until(b.t, "it to be reported", func() bool { return b.confirmedFlush() >= b.current().OwnWatermark() })
	b.back(wal, "b", "c", "d")
	stop := replicationtest.WantStop(b.t, r.endsBefore("b"), event.ExitOperator, "rolled_back")
	b.wantLost(stop, at)
	if says := map[bool]string{true: "WAL ends at", false: "flush limit"}[wal == 0]; !strings.Contains(stop.What, says) {
		b.t.Errorf("%q is not said: %s", says, stop.What)
	}
	r = b.run()
	r.waitSeen("b", "c", "d")
	r.endClean()
}

// A process that starts remembers nothing: it repeats what the slot has, and all that is committed
// since is there.
func (b *restorable) underAStoppedRelay() {
	b.t.Helper()
	r := b.settledRun("a")
	b.keepImage()
	b.insert("gone")
	r.waitSeen("gone")
	r.endClean()
	b.back(0, "b", "c")
	r = b.run()
	r.waitSeen("b", "c")
	r.endClean()
}

// Whoever leads next, nothing that was committed since is missed: the standby has received nothing
// and goes on from the slot; the former leader stops when it comes first, and else forgets what it
// had and stands by.
func (b *restorable) underALeaderWithAStandby() {
	b.t.Helper()
	r := b.settledRun("a")
	other := b.another()
	standby := other.run()
	standby.waitPhase(survey.Standby)
	b.keepImage()
	b.insert("gone")
	r.waitSeen("gone")
	await.Until(b.t, "it to be reported", func() bool { return b.confirmedFlush() >= b.current().OwnWatermark() })
	b.back(0, "b", "c")
	standby.waitSeen("b", "c")
	await.Until(b.t, "the former leader to stop or to stand by", func() bool {
		select {
		case <-r.done:
			replicationtest.WantStop(b.t, r.err, event.ExitOperator, "rolled_back")
			return true
		default:
			return r.s.Snapshot().Phase == survey.Standby
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
	b.proxy.Cut()
	ctx := await.Context(b.t)
	b.must(b.pg.RollBack(ctx, b.image))
	b.must(b.pg.Start(ctx))
	b.reconnect()
	other.conn = b.conn
	for range 2 {
		b.exec(`SELECT pg_logical_emit_message(true, 'filler', repeat('x', 1 << 20))`)
	}
	b.insert("b")
	b.insert("c")
	other.held = true
	next := other.run()
	next.waitSeen("b", "c")
	line := other.current()
	line.Settle(len(line.Seen()) - 1)
	await.Until(b.t, "the first to be reported", func() bool { return b.confirmedFlush() > line.All()[len(line.Seen())-2].Position.Commit })
	b.must(b.proxy.Restore())
	r.waitPhase(survey.Standby)
	next.stop()
	next.cut()
	<-next.done
	replicationtest.WantStop(b.t, r.endsBefore("later"), event.ExitOperator, "rolled_back")
	r = b.run()
	r.waitSeen("c")
	r.endClean()
}

// Events were received and none was confirmed since the image: nothing was reported, and the limit
// is the same. When the WAL has grown past them, the relay goes on, and what it remembered hides
// nothing.
func (b *restorable) beforeAnythingWasReported() {
	b.t.Helper()
	r := b.settledRun("a")
	b.current().Hold()
	b.keepImage()
	b.insert("gone")
	r.waitSeen("gone")
	b.back(2<<20, "b", "c")
	r.waitSeen("b", "c")
	r.endClean()
}

// A virtual machine that is resumed with its memory has the same postmaster as before. The
// transaction that was read last tells that the WAL is another one.
func (b *restorable) andResumedWithItsMemory() {
	b.t.Helper()
	r := b.settledRun("a")
	b.current().Hold()
	b.keepImage()
	at := b.text(`SELECT pg_current_wal_insert_lsn()::text`)
	b.insert("gone")
	r.waitSeen("gone")
	b.proxy.Cut()
	ctx := await.Context(b.t)
	b.must(b.pg.RollBack(ctx, b.image))
	b.must(b.pg.Start(ctx))
	b.reconnect()
	as := *r.s.cfg.Primary.Server.Load()
	as.Started = b.text(`SELECT (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint::text`)
	r.s.cfg.Primary.Server.Store(&as)
	for range 2 {
		b.exec(`SELECT pg_logical_emit_message(true, 'filler', repeat('x', 1 << 20))`)
	}
	b.insert("b")
	b.must(b.proxy.Restore())
	stop := replicationtest.WantStop(b.t, r.endsBefore("b"), event.ExitOperator, "rolled_back")
	b.wantLost(stop, at)
	if !strings.Contains(stop.What, "is no longer in the WAL") {
		b.t.Error(stop)
	}
	r = b.run()
	r.waitSeen("b")
	r.endClean()
}

// After a crash the server has all that it had made durable. The relay goes on, in the same
// process, and sends again what the slot had not kept, not more.
func (b *restorable) crashIsNone() {
	b.t.Helper()
	r := b.settledRun("a")
	b.insert("b")
	r.waitSeen("b")
	first := b.current()
	b.proxy.Cut()
	ctx := await.Context(b.t)
	b.must(b.pg.Kill())
	b.must(b.pg.Start(ctx))
	b.reconnect()
	kept := b.confirmedFlush()
	b.insert("c")
	b.must(b.proxy.Restore())
	await.Until(b.t, "a new line", func() bool { return b.current() != first })
	r.waitSeen("c")
	r.endClean()
	for _, tx := range b.current().Transactions() {
		if tx.Commit < kept {
			b.t.Errorf("the commit at %s is sent again, the slot was at %s", tx.Commit, kept)
		}
	}
	if got := strings.Join(b.current().Seen(), " "); !strings.HasSuffix("a b c", got) {
		b.t.Errorf("events %s after the crash", got)
	}
}

// A process goes on from what the last raise of the flush limit proves, not from what it settled or
// reported since: a row of the retry table that settled it may be gone. And only while nobody led
// in between, on a database that has the flush limit.
func TestResumesWhereTheFlushLimitProvesIt(t *testing.T) {
	s := &Stream{cfg: &source.Config{Primary: new(source.Primary)}}
	tm := &session.Term{Epoch: 5, Raised: "then", Line: replicationtest.NewRecorder(200)}
	tm.Proven.Store(100)
	tm.Reported.Store(200)
	tm.FlushLimit.Store(300)
	s.keep(tm, 400)
	for _, c := range []struct {
		rec  slot.Record
		want pglogrepl.LSN
	}{
		{slot.Record{Epoch: 5, Raised: "then", FlushLimit: 300}, 100},
		{slot.Record{Epoch: 5, Raised: "then", FlushLimit: 310}, 100}, // a raise without an answer
		{slot.Record{Epoch: 5, Raised: "then", FlushLimit: 299}, 0},
		{slot.Record{Epoch: 6, Raised: "later", FlushLimit: 300}, 0},
		// by another relay, on storage from before
		{slot.Record{Epoch: 5, Raised: "later", FlushLimit: 310}, 0},
	} {
		if got := s.durable.resume(&c.rec); got != c.want {
			t.Errorf("epoch %d, flush limit %s: from %s, want %s", c.rec.Epoch, c.rec.FlushLimit, got, c.want)
		}
	}
	if had := pglogrepl.LSN(s.cfg.Primary.Wal.Load()); had != 400 {
		t.Errorf("WAL is known up to %s", had)
	}
}
