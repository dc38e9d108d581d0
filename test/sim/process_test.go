package sim

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
	"golang.org/x/sync/errgroup"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/relay"
	"github.com/cdc-relay/cdc-relay/internal/relay/order"
	"github.com/cdc-relay/cdc-relay/internal/retry"
)

// process is one of the two relays. It lives many lives: it is killed, fenced or stopped, and
// started again.
type process struct {
	w *world
	n int

	// Guarded by the world's mutex.
	life   *life
	paused chan struct{} // closed when it goes on; nil: it is not stopped by a signal
}

// life is the process from one start to its end.
type life struct {
	*process
	name     string
	dice     *dice
	ctx      context.Context
	kill     context.CancelFunc
	stopping chan struct{} // closed: a clean stop is asked for
	grace    time.Duration
	term     *term
	known    [places]time.Time // when its sink knows the partitions of a topic
	changed  chan struct{}
}

// term is the time under one epoch: the real line and the real retry table, as cmd composes them.
type term struct {
	*life
	name  string
	epoch int64
	start pglogrepl.LSN // the stream may bring what ends behind it, and nothing else

	line       *relay.Line
	retryTable *retry.Table
	mirror     *mirror // nil: there is none in this seed
	store      *faultyStore
	sink       *broker
	cancel     context.CancelFunc
	done       chan struct{}
	err        error // valid after done

	stopped atomic.Bool

	// What was when it began, and what it did since: guarded by the world's mutex, by the number of
	// the event.
	deferred  []bool
	dead      []bool
	delivered []int
	doubts    []int // outcomes that were unknown
	copied    []int // by the broker
	recopies  []int // reasons to copy once more
	// bytes of rows that are with the lanes, or confirmed and not deleted yet
	fed map[event.Position]int64
}

// run lives until ctx is done.
func (p *process) run(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		d := newDice(p.w.seed, 100+p.n, n)
		l := &life{process: p, name: fmt.Sprintf("%c%d", 'A'+p.n, n), dice: d, stopping: make(chan struct{}), changed: make(chan struct{}, 1)}
		if !slept(ctx, d.upTo(50*time.Millisecond)) {
			return
		}
		l.ctx, l.kill = context.WithCancel(ctx) //nolint:fatcontext // of this life alone
		if p.w.atomic {
			l.learnTopics()
		}
		p.w.mu.Lock()
		p.life = l
		p.w.mu.Unlock()
		p.w.note(l.name, nil, "starts")
		err := l.live()
		p.w.note(l.name, nil, "ends: %v", err)
		p.w.mu.Lock()
		p.life = nil
		p.w.mu.Unlock()
		l.kill()
		if !slept(ctx, d.upTo(pick(d, 10*time.Millisecond, time.Second))) {
			return
		}
	}
}

// learnTopics draws when the sink knows the partitions of each topic.
func (l *life) learnTopics() {
	for u := range l.known {
		if l.dice.in(700) {
			continue
		}
		in := l.dice.upTo(300 * time.Millisecond)
		l.known[u] = time.Now().Add(in)
		time.AfterFunc(in, func() {
			select {
			case l.changed <- struct{}{}:
			default:
			}
		})
	}
}

// waitWhilePaused waits while the process is stopped by a signal; false when it is killed then, or
// ctx is done.
func (l *life) waitWhilePaused(ctx context.Context) bool {
	for {
		l.w.mu.Lock()
		paused := l.paused
		l.w.mu.Unlock()
		if paused == nil {
			return ctx.Err() == nil
		}
		select {
		case <-paused:
		case <-ctx.Done():
			return false
		}
	}
}

var (
	errStopped = errors.New("stopped as asked")
	errKilled  = errors.New("killed")
	errHolder  = errors.New("this session no longer holds the slot")
)

// live is replication.Stream.Run: it stands by, leads, and goes on after lost sessions, until it is
// killed, fenced or stopped.
func (l *life) live() error {
	defer func() { l.term.end() }()
	for {
		s, err := l.seize()
		if err == nil {
			err = s.run()
			s.release()
		}
		switch {
		case l.ctx.Err() != nil:
			return errKilled
		case errors.Is(err, errSession), errors.Is(err, errHolder):
		default:
			return err
		}
		if !slept(l.ctx, l.dice.upTo(100*time.Millisecond)) {
			return errKilled
		}
	}
}

// newTerm makes a line with what the tables hold counted in it, and runs it.
func (l *life) newTerm(epoch int64, start pglogrepl.LSN) (*term, error) {
	w := l.w
	t := &term{life: l, name: fmt.Sprintf("%s/%d", l.name, epoch), epoch: epoch, start: start, done: make(chan struct{})}
	n := len(w.events)
	t.deferred, t.dead, t.delivered, t.doubts = make([]bool, n), make([]bool, n), make([]int, n), make([]int, n)
	t.copied, t.recopies, t.fed = make([]int, n), make([]int, n), map[event.Position]int64{}
	w.mu.Lock()
	now := w.tables()
	for _, e := range w.events {
		t.deferred[e.n] = now.deferred[e] != nil
		t.dead[e.n] = now.deadLetters[e] != "" || e.closed && now.deferred[e] == nil
	}
	w.mu.Unlock()
	t.store = t.newStore()
	t.sink = t.newBroker()
	jitter := newDice(l.dice.next())
	turn := make(chan *dice, 1)
	turn <- jitter
	t.retryTable = retry.New(retry.Config{
		Slot: slot, Epoch: epoch, Incarnation: 1, Store: t.store, Sink: t.sink, Scope: w.scope, Block: w.hold,
		DestinationMaxAge: w.maxAge, RoundBytes: w.roundBytes, BudgetBytes: w.budgetBytes,
	})
	copies := &relay.Copies{}
	t.line = relay.New(relay.Config{
		Ordering: w.ordering, MaxInFlight: w.budget, MaxInFlightBytes: w.maxInFlightBytes, Start: start, Sink: t.sink, RetryTable: fedBack{t.retryTable, t},
		MaxGroups: w.held, Block: w.hold, MaxAttempts: w.attempts, Backoff: w.backoff, MaxBackoff: w.maxBackoff, DestinationMaxAge: w.maxAge, Guard: true,
		Jitter: func(most time.Duration) time.Duration {
			d := <-turn
			defer func() { turn <- d }()
			return d.upTo(most)
		},
		AfterStep: func(m *order.Machine) {
			if faults := m.Faults(); faults != "" {
				w.fail(nil, "an ordering group of %s: %s", t.name, faults)
			}
		},
	})
	copies.Line = t.line
	if w.plan.mirror {
		t.mirror = t.newMirror(copies)
	}
	ctx, cancel := context.WithTimeout(l.ctx, time.Minute)
	defer cancel()
	if err := t.retryTable.Load(ctx, offering{t.line, t}); err != nil {
		return nil, err
	}
	ctx, t.cancel = context.WithCancel(l.ctx)
	go func() {
		defer close(t.done)
		t.err = t.run(ctx)
	}()
	w.note(t.name, nil, "leads from %s", start)
	return t, nil
}

// run is cmd's line.Run.
func (t *term) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return t.line.Run(ctx) })
	group.Go(func() error { return t.retryTable.Run(ctx) })
	group.Go(func() error { return t.mirror.run(ctx) })
	return group.Wait()
}

// Stopping is term.Stopping of cmd/cdc-relay.
func (t *term) Stopping() {
	t.stopped.Store(true)
	t.mirror.stop()
	t.retryTable.StopFeeding()
	t.line.Stopping()
}

// WaitSettled is term.WaitSettled of cmd/cdc-relay.
func (t *term) WaitSettled(ctx context.Context) error {
	if err := t.line.WaitSettled(ctx); err != nil || !t.stopped.Load() {
		return err
	}
	t.mirror.wait(ctx)
	return t.retryTable.WaitIdle(ctx)
}

// end is replication's term.end.
func (t *term) end() {
	if t == nil {
		return
	}
	t.cancel()
	<-t.done
}

// inspect checks the bounds of memory (invariant I5).
func (t *term) inspect() {
	shot := t.line.Snapshot()
	switch {
	case shot.Events > t.w.budget:
		t.w.fail(nil, "I5: %s has %d events in an in-flight budget of %d", t.name, shot.Events, t.w.budget)
	case shot.Bytes > t.w.maxInFlightBytes+t.w.oversize:
		t.w.fail(nil, "I5: %s has %d bytes in an in-flight budget of %d", t.name, shot.Bytes, t.w.maxInFlightBytes)
	case shot.WaitingGroups > t.w.held+t.w.budget+10_000:
		t.w.fail(nil, "I5: %s holds %d ordering groups, of %d at most", t.name, shot.WaitingGroups, t.w.held)
	case t.retryTable.Snapshot().InFlight > 10_100:
		t.w.fail(nil, "I5: %s has %d rows in flight", t.name, t.retryTable.Snapshot().InFlight)
	}
}
