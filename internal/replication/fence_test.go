package replication

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/replicationtest"
	"github.com/cdc-relay/cdc-relay/internal/replication/session"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/replication/survey"
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

// A leader is cut off without a sign, and its standby takes over and reports further. Then the old
// one is asked to stop, or gets its connection back. Either way it changes nothing, and when the
// standby dies, nothing is lost.
func TestLeaderCutOffSilently(t *testing.T) {
	leaderCutOff(t, map[string]func(r *running, p *netproxy.Proxy, leads bool){
		"back": func(r *running, p *netproxy.Proxy, _ bool) {
			p.Release(netproxy.Up)
			p.Release(netproxy.Down)
			await.Until(r.b.t, "the old leader to be fenced or to stand by", func() bool {
				select {
				case <-r.done:
					replicationtest.WantStop(r.b.t, r.err, event.ExitFailure, "fenced")
					return true
				default:
					return r.s.Snapshot().Phase == survey.Standby
				}
			})
		},
	})
}

// leaderCutOff tries what becomes of the former leader; leads is false when it may have heard of
// the next one.
func leaderCutOff(t *testing.T, cases map[string]func(r *running, p *netproxy.Proxy, leads bool)) {
	t.Parallel()
	for name, then := range cases {
		t.Run(name, func(t *testing.T) {
			b := shared(t)
			b.cfg.WALSenderTimeout, b.cfg.Grace = 4*time.Second, time.Second
			standby := b.another()
			standbyProxy := standby.through()
			silent := b.through()

			first := b.settledRun("a")
			epoch := b.epoch()
			second := standby.run()
			second.waitPhase(survey.Standby)
			b.insert("b")
			first.waitSeen("b")
			b.current().Hold()
			b.insert("c") // the first leader has it and never settles it
			first.waitSeen("c")
			silent.Hold(netproxy.Up)
			silent.Hold(netproxy.Down)
			// else the machine stood still for longer than the timeout, before the hold
			leads := b.epoch() == epoch
			second.waitPhase(survey.Streaming)
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
			then(first, silent, leads)
			if after := b.remembered(); after != before {
				t.Errorf("the former leader wrote:\n%s\n%s", before, after)
			}
			if first.s.Snapshot().Phase == survey.Standby { // the third is the one that goes on
				if err := first.end(); err != nil {
					t.Errorf("stop: %v", err)
				}
			}
			second.crash(standbyProxy)
			b.cfg.URL = b.url
			third := b.run()
			third.waitSeen("e")
			third.endClean()
		})
	}
}

func (b *bench) epoch() string {
	b.t.Helper()
	return b.text(`SELECT epoch::text FROM cdc_relay.slots WHERE slot = $1`, b.cfg.Slot)
}

// flushLimitOf is a term of the present leader's epoch as keepFlushLimit has it.
func flushLimitOf(epoch int64) *session.Term {
	return &session.Term{Epoch: epoch, Line: replicationtest.NewRecorder(1)}
}

func TestFlushLimitIsRaisedOnlyByTheHolderUnderItsEpoch(t *testing.T) {
	b := alone(t) // with much WAL of others the leader itself raises it meanwhile
	r := b.settledRun("a")
	pool, err := source.ConnectPool(&b.cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	ctx := await.Context(t)
	view, err := slot.Read(ctx, pool, b.cfg.Slot)
	if err != nil {
		t.Fatal(err)
	}
	rec, err := slot.ReadRecord(ctx, pool, b.cfg.Slot)
	if err != nil {
		t.Fatal(err)
	}
	epoch, holder := rec.Epoch, uint32(view.ActivePID)
	before := b.remembered()

	replicationtest.WantStop(t, session.RaiseFlushLimit(ctx, pool, &b.cfg, flushLimitOf(epoch-1), holder, 0), event.ExitFailure, "fenced")
	if err := session.RaiseFlushLimit(ctx, pool, &b.cfg, flushLimitOf(epoch), holder+1, 0); !errors.Is(err, slot.ErrNotActive) {
		t.Errorf("raised without holding the slot: %v", err)
	}
	for _, try := range []struct {
		epoch int64
		pid   uint32
	}{{epoch - 1, holder}, {epoch, holder + 1}} {
		if err := session.LowerFlushLimit(ctx, pool, &b.cfg, flushLimitOf(try.epoch), try.pid, 0); err != nil {
			t.Error(err)
		}
	}
	if after := b.remembered(); after != before {
		t.Errorf("changed:\n%s\n%s", before, after)
	}
	tm := flushLimitOf(epoch)
	if err := session.RaiseFlushLimit(ctx, pool, &b.cfg, tm, holder, 0); err != nil {
		t.Error(err)
	}
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
	pool, err := source.ConnectPool(&b.cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	ctx := await.Context(t)
	other := b.connect()
	for name, write := range map[string]func(tm *session.Term, pid uint32) error{
		"raise": func(tm *session.Term, pid uint32) error {
			return session.RaiseFlushLimit(ctx, pool, &b.cfg, tm, pid, 0)
		},
		"lower": func(tm *session.Term, pid uint32) error {
			return session.LowerFlushLimit(ctx, pool, &b.cfg, tm, pid, 0)
		},
	} {
		rec, err := slot.ReadRecord(ctx, pool, b.cfg.Slot)
		if err != nil {
			t.Fatal(err)
		}
		view, err := slot.Read(ctx, pool, b.cfg.Slot)
		if err != nil {
			t.Fatal(err)
		}
		progress := b.text(`SELECT p::text FROM cdc_relay.progress p`)
		tx, err := other.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(ctx, `UPDATE cdc_relay.slots SET epoch = epoch + 1`); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- write(flushLimitOf(rec.Epoch), uint32(view.ActivePID)) }()
		await.Until(t, name+" to wait", func() bool {
			// the leader may want to write, too
			return len(done) > 0 || b.text(`SELECT count(*)::text FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) != "0"
		})
		if err := tx.Commit(ctx); err != nil {
			t.Fatal(err)
		}
		if err := <-done; name == "raise" {
			replicationtest.WantStop(t, err, event.ExitFailure, "fenced")
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
	b.settledRun("a").endClean()
	newLine := b.cfg.NewLine
	b.cfg.NewLine = func(ctx context.Context, at source.Term) (source.Line, error) {
		view, err := slot.Read(ctx, at.Pool, b.cfg.Slot)
		if err != nil || !view.Active() {
			t.Errorf("a line is made, and nobody holds the slot: %v", err)
		}
		return newLine(ctx, at)
	}
	tx, err := b.connect().Begin(await.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(await.Context(t), `SELECT FROM cdc_relay.slots WHERE slot = $1 FOR SHARE`, b.cfg.Slot); err != nil {
		t.Fatal(err)
	}
	r := b.run()
	await.Until(t, "the takeover to wait", func() bool {
		return b.text(`SELECT count(*)::text FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) == "1"
	})
	b.exec(`SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1`, b.cfg.Slot)
	b.waitFree()
	if err := tx.Commit(await.Context(t)); err != nil {
		t.Fatal(err)
	}
	b.insert("b")
	r.waitSeen("b")
	r.endClean()
}

// A standby is held up on its way to the slot, and meanwhile another one leads and stops. What it
// then compares the slot with must be of the time when it holds it.
func TestStandbyThatComesLate(t *testing.T) {
	b := shared(t)
	late, between := b.another(), b.another()
	var held atomic.Bool
	asked, goes := make(chan struct{}, 8), make(chan struct{})
	late.cfg.Password = func() (string, error) { // asked for at every connect
		if held.Load() {
			asked <- struct{}{}
			<-goes
		}
		return "", nil
	}
	leader := b.settledRun("a")
	standby := late.run()
	letGo := sync.OnceFunc(func() { close(goes) })
	t.Cleanup(letGo)
	standby.waitPhase(survey.Standby)
	held.Store(true)
	leader.endClean()
	<-asked // the standby comes
	between.settledRun("b").endClean()
	held.Store(false)
	letGo()
	standby.waitPhase(survey.Streaming)
	b.insert("c")
	standby.waitSeen("c")
	standby.endClean()
}

// The epoch was raised under a running leader, as a takeover would: its next raise finds out, and
// it stops.
func TestLeaderThatWasFencedStops(t *testing.T) {
	b := shared(t)
	r := b.settledRun("a")
	b.exec(`UPDATE cdc_relay.slots SET epoch = epoch + 1`)
	before := b.remembered()
	b.insert("b")
	replicationtest.WantStop(t, r.wait(), event.ExitFailure, "fenced")
	if after := b.remembered(); after != before {
		t.Errorf("it wrote:\n%s\n%s", before, after)
	}
	next := b.run()
	next.waitSeen("b")
	next.endClean()
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
	if err := p.Restore(); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "a new term", func() bool { return b.current() != old })
	b.insert("d")
	r.waitSeen("d")
	if seen := b.current().Seen(); len(seen) != 1 {
		t.Errorf("the new term has %v", seen)
	}
	r.endClean()
}

// The slot was adopted between two sessions, under an epoch that looks like ours.
func TestLeaderReturnsAfterTheSlotWasAdopted(t *testing.T) {
	b := shared(t)
	p := b.through()
	r := b.settledRun("a")
	b.current().Hold()
	b.insert("b")
	r.waitSeen("b")
	old := b.current()
	p.Cut()
	b.exec(`UPDATE cdc_relay.slots SET incarnation = incarnation + 1`)
	if err := p.Restore(); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "a new term", func() bool { return b.current() != old })
	r.waitSeen("b") // again: it was not settled
	r.endClean()
}
