package replication

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/replicationtest"
	"github.com/cdc-relay/cdc-relay/internal/replication/session"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// another is a bench for one more relay of the same slot, with a line of its own.
func (b *bench) another() *bench {
	o := &bench{t: b.t, url: b.url, conn: b.conn, cfg: b.cfg, logs: b.logs}
	o.cfg.NewLine = func(_ context.Context, at source.Term) (source.Line, error) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.line = replicationtest.NewRecorder(at.Start)
		o.line.Held = o.held
		return o.line, nil
	}
	return o
}

// A leader is cut off without a sign. The server ends it after source.wal_sender_timeout, which its
// session asks for, although the server's own setting says never: nobody else can free the slot.
// Its standby takes over and reports further, and the old one gets its connection back. It changes
// nothing, and when the standby dies, nothing is lost.
func TestLeaderCutOffSilently(t *testing.T) {
	b := shared(t)
	b.exec(`ALTER DATABASE ` + b.text(`SELECT current_database()`) + ` SET wal_sender_timeout = 0`)
	b.cfg.WALSenderTimeout, b.cfg.Grace = 4*time.Second, time.Second
	standby := b.another()
	standbyProxy := standby.through()
	silent := b.through()

	first := b.settledRun("a")
	second := standby.run()
	second.waitPhase(slot.Standby)
	b.insert("b")
	first.waitSeen("b")
	b.current().Hold()
	b.insert("c") // the first leader has it and never settles it
	first.waitSeen("c")
	silent.Hold(netproxy.Up)
	silent.Hold(netproxy.Down)
	second.waitPhase(slot.Streaming)
	second.waitSeen("c")
	b.insert("d")
	second.waitSeen("d")
	await.Until(t, "the new leader to report", func() bool {
		return standby.confirmedFlush() >= standby.current().OwnWatermark()
	})
	standby.current().Hold()
	b.insert("e")
	second.waitSeen("e")

	before := b.remembered()
	silent.Release(netproxy.Up)
	silent.Release(netproxy.Down)
	await.Until(t, "the old leader to be fenced or to stand by", func() bool {
		select {
		case <-first.done:
			b.wantStop(first.err, event.ExitFailure, "fenced")
			return true
		default:
			return first.s.Snapshot().Phase == slot.Standby
		}
	})
	b.wantRemembered(before)
	if first.s.Snapshot().Phase == slot.Standby { // the third is the one that goes on
		first.endClean()
	}
	second.crash(standbyProxy)
	b.cfg.URL = b.url
	b.delivers("e")
}

// A leader is frozen while its sessions read, or are idle. A new leader ends all of them, and none
// of another relay's or of a command's, whatever those do. Nothing else ends these: a statement
// works for as long as it is allowed to.
func TestNewLeaderEndsTheSessionsOfFormerOnes(t *testing.T) {
	b := shared(t)
	frozen := b.through()
	standby, third := b.another(), b.another()
	standby.cfg.URL, third.cfg.URL = b.url, b.url
	first := b.settledRun("a")
	reads := func(pool *pgxpool.Pool) {
		conn, err := pool.Acquire(await.Context(t))
		await.Must(t, err)
		pg := conn.Hijack().PgConn()
		t.Cleanup(func() { pg.Conn().Close() })
		go pg.Exec(context.Background(), `SET statement_timeout = 0; LOCK TABLE public.outbox IN ACCESS SHARE MODE; SELECT pg_sleep(3600)`).ReadAll()
	}
	const sessions = `SELECT coalesce(array_agg(pid), '{}')::int[] FROM pg_stat_activity
		WHERE datname = current_database() AND application_name LIKE 'cdc-relay/%' AND backend_type = 'client backend' AND NOT pid = ANY ($1)`
	const reading = ` AND query LIKE '%pg_sleep(3600)'`
	// A session that was idle since before its relay led is no leader's yet, and does nothing.
	const leads = ` AND pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory')`
	var others, former, leading, now []int32
	reads(first.s.Pool())
	await.Until(t, "a reader", func() bool {
		b.scan(&former, sessions+reading, []int32{})
		return len(former) == 1
	})
	b.scan(&former, sessions, []int32{})
	b.scan(&leading, sessions+leads, []int32{})
	second, last := standby.run(), third.run()
	second.waitPhase(slot.Standby)
	last.waitPhase(slot.Standby)
	for _, pool := range []*pgxpool.Pool{second.s.Pool(), last.s.Pool(), standby.pool()} {
		reads(pool)
	}
	await.Until(t, "readers of other processes", func() bool {
		b.scan(&others, sessions+reading, former)
		return len(others) == 3
	})

	frozen.Hold(netproxy.Up)
	frozen.Hold(netproxy.Down)
	b.exec(`SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1`, b.cfg.Slot)
	await.Until(t, "the sessions of the former leader to end", func() bool {
		b.scan(&now, `SELECT coalesce(array_agg(pid), '{}')::int[] FROM pg_stat_activity WHERE pid = ANY ($1)`, leading)
		return len(leading) > 0 && len(now) == 0
	}, func() any { return now })
	b.scan(&now, sessions+reading, former)
	slices.Sort(now)
	if !slices.Equal(now, slices.Sorted(slices.Values(others))) {
		t.Errorf("sessions %d of other processes read, want %d", now, others)
	}
	b.insert("b")
	await.Until(t, "one of the others to deliver", func() bool {
		return slices.ContainsFunc([]*bench{standby, third}, func(o *bench) bool {
			line := o.current()
			return line != nil && slices.Contains(line.Seen(), "b")
		})
	})
}

// flushLimitOf is a term of the present leader's epoch as keepFlushLimit has it.
func flushLimitOf(epoch int64) *session.Term {
	return &session.Term{Epoch: epoch, Line: replicationtest.NewRecorder(1)}
}

func TestFlushLimitIsRaisedOnlyByTheHolderUnderItsEpoch(t *testing.T) {
	b := alone(t) // with much WAL of others the leader itself raises it meanwhile
	r := b.settledRun("a")
	pool := b.pool()
	ctx := await.Context(t)
	view, err := slot.ReadView(ctx, pool, b.cfg.Slot)
	await.Must(t, err)
	rec, err := slot.ReadRecord(ctx, pool, b.cfg.Slot)
	await.Must(t, err)
	epoch, holder := rec.Epoch, uint32(view.ActivePID)
	before := b.remembered()

	b.wantStop(session.RaiseFlushLimit(ctx, pool, &b.cfg, flushLimitOf(epoch-1), holder, 0), event.ExitFailure, "fenced")
	if err := session.RaiseFlushLimit(ctx, pool, &b.cfg, flushLimitOf(epoch), holder+1, 0); !errors.Is(err, slot.ErrNotActive) {
		t.Errorf("raised without holding the slot: %v", err)
	}
	await.Must(t, session.LowerFlushLimit(ctx, pool, &b.cfg, flushLimitOf(epoch-1), holder, 0))
	await.Must(t, session.LowerFlushLimit(ctx, pool, &b.cfg, flushLimitOf(epoch), holder+1, 0))
	b.wantRemembered(before)
	tm := flushLimitOf(epoch)
	await.Must(t, session.RaiseFlushLimit(ctx, pool, &b.cfg, tm, holder, 0))
	if got := b.text(`SELECT max_flush_lsn::text FROM cdc_relay.progress`); got != pglogrepl.LSN(tm.FlushLimit.Load()).String() {
		t.Errorf("the table says %s, the term %s", got, pglogrepl.LSN(tm.FlushLimit.Load()))
	}
	r.endClean()
}

// The raise of the flush limit, and its lowering, meet a raise of the epoch: they wait for that,
// and then change nothing.
func TestFlushLimitIsLeftToWhoRaisesTheEpoch(t *testing.T) {
	b := shared(t)
	b.settledRun("a")
	pool := b.pool()
	ctx := await.Context(t)
	for name, write := range map[string]func(tm *session.Term, pid uint32) error{
		"raise": func(tm *session.Term, pid uint32) error {
			return session.RaiseFlushLimit(ctx, pool, &b.cfg, tm, pid, 0)
		},
		"lower": func(tm *session.Term, pid uint32) error {
			return session.LowerFlushLimit(ctx, pool, &b.cfg, tm, pid, 0)
		},
	} {
		rec, err := slot.ReadRecord(ctx, pool, b.cfg.Slot)
		await.Must(t, err)
		view, err := slot.ReadView(ctx, pool, b.cfg.Slot)
		await.Must(t, err)
		progress := b.text(`SELECT p::text FROM cdc_relay.progress p`)
		commit := b.begin(`UPDATE cdc_relay.slots SET epoch = epoch + 1`)
		done := make(chan error, 1)
		go func() { done <- write(flushLimitOf(rec.Epoch), uint32(view.ActivePID)) }()
		await.Until(t, name+" to wait", func() bool {
			return len(done) > 0 || b.lockWaits() > 0 // the leader may want to write, too
		})
		commit()
		if err := <-done; name == "raise" {
			b.wantStop(err, event.ExitFailure, "fenced")
		} else if err != nil {
			t.Error(err)
		}
		if after := b.text(`SELECT p::text FROM cdc_relay.progress p`); after != progress {
			t.Errorf("%s: changed:\n%s\n%s", name, progress, after)
		}
	}
}

// A relay that took the slot is kept waiting when it raises the epoch, and its session ends
// meanwhile. It does not lead before it holds the slot again.
func TestSlotLostBeforeTheEpochIsRaised(t *testing.T) {
	b := shared(t)
	b.goesOn("a")
	newLine := b.cfg.NewLine
	b.cfg.NewLine = func(ctx context.Context, at source.Term) (source.Line, error) {
		view, err := slot.ReadView(ctx, at.Pool, b.cfg.Slot)
		if err != nil || !view.Active() {
			t.Errorf("a line is made, and nobody holds the slot: %v", err)
		}
		return newLine(ctx, at)
	}
	commit := b.begin(`SELECT FROM cdc_relay.slots WHERE slot = $1 FOR SHARE`, b.cfg.Slot)
	r := b.run()
	await.Until(t, "the takeover to wait", func() bool { return b.lockWaits() == 1 })
	b.exec(`SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1`, b.cfg.Slot)
	b.waitFree()
	commit()
	b.insert("b")
	r.waitSeen("b")
	r.endClean()
}

// The epoch was raised under a running leader, as a takeover would: its next raise finds out, and
// it stops.
func TestLeaderThatWasFencedStops(t *testing.T) {
	b := shared(t)
	r := b.settledRun("a")
	b.exec(`UPDATE cdc_relay.slots SET epoch = epoch + 1`)
	before := b.remembered()
	b.insert("b")
	b.wantStop(r.wait(), event.ExitFailure, "fenced")
	b.wantRemembered(before)
	b.delivers("b")
}

// Another relay led between two sessions of this one: what is in memory is thrown away, the other
// one reported beyond it.
func TestLeaderReturnsAfterAnotherLed(t *testing.T) {
	b := shared(t)
	p := b.through()
	other := b.another()
	other.cfg.URL = b.url
	r := b.settledRun("a")
	b.current().Hold()
	b.insert("b")
	r.waitSeen("b")
	old := b.current()
	p.Cut()
	between := other.run()
	between.waitSeen("b")
	b.insert("c")
	between.waitSeen("c")
	between.endClean()
	await.Must(t, p.Restore())
	await.Until(t, "a new term", func() bool { return b.current() != old })
	b.insert("d")
	r.waitSeen("d")
	if seen := b.current().Seen(); len(seen) != 1 {
		t.Errorf("the new term has %v", seen)
	}
	r.endClean()
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
	s.term = tm
	s.keepDurable(400)
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
		if got := s.durable.resumeFrom(&c.rec); got != c.want {
			t.Errorf("epoch %d, flush limit %s: from %s, want %s", c.rec.Epoch, c.rec.FlushLimit, got, c.want)
		}
	}
	if had := pglogrepl.LSN(s.cfg.Primary.ReceivedWAL.Load()); had != 400 {
		t.Errorf("WAL is known up to %s", had)
	}
}
