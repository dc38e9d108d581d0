package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/retry/memorytest"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

var (
	errLost    = errors.New("the connection was lost")
	errRefused = errors.New("value too long for type")
)

// faultyStore is the database as a term sees it: a store in memory, behind a connection that is
// slow and breaks. Whatever a statement did, its outcome may be unknown to the relay; and a
// statement of a process that died may still be carried out.
type faultyStore struct {
	store.Store
	memory                         *memorytest.Store // the Store
	t                              *term
	writer, feeder, lookup, mirror dice
}

var _ store.Store = (*faultyStore)(nil)

func (t *term) newStore() *faultyStore {
	seed := t.dice.next()
	memory := t.w.db.Store(store.Config{Slot: slot, SystemID: system, Incarnation: 1, Epoch: t.epoch, Scope: t.w.scope, Block: t.w.hold})
	return &faultyStore{
		t: t, writer: *newDice(seed, 1), feeder: *newDice(seed, 2), lookup: *newDice(seed, 3), mirror: *newDice(seed, 4),
		Store: memory, memory: memory,
	}
}

// do makes a statement. It is carried out in one moment, in the midst of the time that it takes; a
// process that is stopped is stopped before it sends the statement, or before it reads the answer.
func (s *faultyStore) do(ctx context.Context, d *dice, of actor, what string, exec func(context.Context) error) error {
	w := s.t.w
	w.step()
	if !s.t.waitWhilePaused(ctx) {
		return ctx.Err()
	}
	w.mu.Lock()
	usual, lost, crashes := w.speed[of], w.lost, w.crashes
	if w.still {
		usual, lost = min(usual, 20*time.Millisecond), 0
	}
	down := w.down
	w.mu.Unlock()
	before, after, fate := d.about(usual), d.about(usual/2), d.n(1000)
	if !slept(ctx, before) {
		if fate%2 == 0 { // the server has it
			time.AfterFunc(d.about(usual), func() {
				if exec(context.Background()) == nil {
					w.note(s.t.name, nil, "%s of the dead process is carried out", what)
				}
			})
		}
		return ctx.Err()
	}
	w.mu.Lock()
	crashed, fenced := w.crashes != crashes || down, s.t.epoch != w.epoch
	w.mu.Unlock()
	if crashed || fate < lost/2 {
		w.note(s.t.name, nil, "%s is lost", what)
		return fmt.Errorf("%s: %w", what, errLost)
	}
	err := exec(context.WithoutCancel(ctx))
	if fenced && !isFenced(err) {
		w.fail(nil, "I9: %s of %s is carried out, and it is fenced", what, s.t.name)
	}
	if !slept(ctx, after) || !s.t.waitWhilePaused(ctx) {
		return ctx.Err()
	}
	if fate < lost {
		w.note(s.t.name, nil, "the answer to %s is lost", what)
		return fmt.Errorf("%s: %w", what, errLost)
	}
	s.t.inspect()
	return err
}

func (s *faultyStore) LeaseNumbers(ctx context.Context) (first int64, err error) {
	err = s.do(ctx, &s.writer, theWriter, "lease", func(ctx context.Context) (err error) {
		first, err = s.Store.LeaseNumbers(ctx)
		return err
	})
	return first, err
}

func (s *faultyStore) RegroupRows(ctx context.Context) (highest event.Position, err error) {
	err = s.do(ctx, &s.writer, theWriter, "regroup", func(ctx context.Context) (err error) {
		highest, err = s.Store.RegroupRows(ctx)
		return err
	})
	return highest, err
}

func (s *faultyStore) ExchangesWithRows(ctx context.Context) (list []uint64, err error) {
	err = s.do(ctx, &s.writer, theWriter, "exchanges", func(ctx context.Context) (err error) {
		list, err = s.Store.ExchangesWithRows(ctx)
		return err
	})
	return list, err
}

func (s *faultyStore) MissingExchanges(ctx context.Context) (list []store.MissingExchange, err error) {
	err = s.do(ctx, &s.writer, theWriter, "missing", func(ctx context.Context) (err error) {
		list, err = s.Store.MissingExchanges(ctx)
		return err
	})
	return list, err
}

func (s *faultyStore) PositionsFrom(ctx context.Context, from event.Position, limit int) (list []store.StoredPosition, err error) {
	err = s.do(ctx, &s.lookup, theLookup, "lookup", func(ctx context.Context) (err error) {
		list, err = s.Store.PositionsFrom(ctx, from, min(limit, 1000))
		return err
	})
	return list, err
}

func (s *faultyStore) Defer(ctx context.Context, rows []*store.Row) error {
	w := s.t.w
	s.t.inspectRound(rows)
	naming := s.writer.in(500)
	return s.do(ctx, &s.writer, theWriter, "defer", func(ctx context.Context) error {
		w.mu.Lock()
		for _, row := range rows {
			e := w.eventAt[row.Event.Position]
			if !e.is(&row.Event) {
				w.failLocked(e, "I5: %s defers %s with the bytes of another event", s.t.name, e)
			}
			if row.Dead {
				w.checkDead(s.t, e, row, store.Result{Class: row.Class, Reason: row.Reason, Attempts: row.Attempts})
			}
			if (e.refuse || w.refusing) && s.t.epoch == w.epoch {
				w.noteLocked(s.t.name, e, "its row is refused")
				anyone := w.refusing || !naming
				w.mu.Unlock()
				if len(rows) > 1 && anyone {
					return &store.Refused{Err: errRefused}
				}
				return &store.Refused{Row: row, Err: errRefused}
			}
		}
		w.mu.Unlock()
		err := s.Store.Defer(ctx, rows)
		for _, row := range rows {
			w.note(s.t.name, w.eventAt[row.Event.Position], "is deferred, n=%d dead=%t %s: %v", row.N, row.Dead, row.Reason, err)
		}
		return err
	})
}

func (s *faultyStore) ReadRows(ctx context.Context, wants []store.Want, run int, size, acked int64) (runs []store.RowRun, err error) {
	s.t.inspectBudget(size)
	err = s.do(ctx, &s.feeder, theFeeder, "read", func(ctx context.Context) (err error) {
		runs, err = s.Store.ReadRows(ctx, wants, min(run, s.t.w.rows), size, acked)
		return err
	})
	if err == nil {
		for _, r := range runs {
			for _, row := range r.Rows {
				s.t.w.note(s.t.name, s.t.w.eventAt[row.Event.Position], "is read in a run, n=%d blocked=%t", row.N, r.Blocked)
			}
		}
	}
	return runs, err
}

func (s *faultyStore) GroupsOfDestination(ctx context.Context, at store.Cursor, limit int) (groups []uint64, next store.Cursor, err error) {
	err = s.do(ctx, &s.feeder, theFeeder, "sweep", func(ctx context.Context) (err error) {
		groups, next, err = s.Store.GroupsOfDestination(ctx, at, min(limit, s.t.w.page))
		return err
	})
	return groups, next, err
}

func (s *faultyStore) NextDestination(ctx context.Context, at store.Cursor) (next store.Cursor, ok bool, err error) {
	err = s.do(ctx, &s.feeder, theFeeder, "skip", func(ctx context.Context) (err error) {
		next, ok, err = s.Store.NextDestination(ctx, at)
		return err
	})
	return next, ok, err
}

func (s *faultyStore) ApplyResults(ctx context.Context, results []store.Result) error {
	w := s.t.w
	err := s.do(ctx, &s.feeder, theFeeder, "apply", func(ctx context.Context) error {
		w.mu.Lock()
		for _, r := range results {
			e := w.eventAt[r.Row.Event.Position]
			switch {
			case r.Kind == store.Delivered && e.delivered == 0:
				w.failLocked(e, "I2: %s deletes the row of %s, which was not delivered", s.t.name, e)
			case r.Kind == store.Dead:
				w.checkDead(s.t, e, r.Row, r)
			}
			if e.noEnd && s.t.epoch == w.epoch {
				w.noteLocked(s.t.name, e, "its end is refused")
				w.mu.Unlock()
				return &store.Refused{Err: errRefused}
			}
		}
		w.mu.Unlock()
		err := s.Store.ApplyResults(ctx, results)
		for _, r := range results {
			w.note(s.t.name, w.eventAt[r.Row.Event.Position], "%s, n=%d, attempts %d, after %s: %v",
				[...]string{"its row is deleted", "backs off", "dies"}[r.Kind], r.Row.N, r.Attempts, r.After, err)
		}
		return err
	})
	if err == nil {
		s.t.unfed(results)
	}
	return err
}

func (s *faultyStore) WaitingRequests(ctx context.Context, limit int, size int64) (list []store.Request, err error) {
	err = s.do(ctx, &s.feeder, theFeeder, "requests", func(ctx context.Context) (err error) {
		list, err = s.Store.WaitingRequests(ctx, limit, size)
		return err
	})
	return list, err
}

func (s *faultyStore) BeginReplay(context.Context, int64) error {
	panic("the simulation has no rows of which values are left out")
}

func (s *faultyStore) AnswerRequests(ctx context.Context, answers []store.Answer) (done []bool, err error) {
	w := s.t.w
	err = s.do(ctx, &s.feeder, theFeeder, "answer", func(ctx context.Context) (err error) {
		w.mu.Lock()
		for _, a := range answers {
			if a.Request.Row == nil {
				continue
			}
			e := w.eventAt[a.Request.Row.Event.Position]
			if a.Request.Kind == store.Replay && a.Outcome.State == sink.Confirmed && e.delivered == 0 {
				w.failLocked(e, "I2: %s calls %s replayed, which was not delivered", s.t.name, e)
			}
			if e.noEnd && s.t.epoch == w.epoch {
				w.mu.Unlock()
				return &store.Refused{Err: errRefused}
			}
		}
		w.mu.Unlock()
		done, err = s.Store.AnswerRequests(ctx, answers)
		for i, a := range answers {
			if a.Request.Row != nil {
				w.note(s.t.name, w.eventAt[a.Request.Row.Event.Position], "%s is answered: %t %v", a.Request.Kind, done[i], err)
			}
		}
		return err
	})
	if err != nil {
		return make([]bool, len(answers)), err
	}
	return done, nil
}

// checkDead checks that a dead letter has a reason to be one (invariant I4).
func (w *world) checkDead(t *term, e *simEvent, row *store.Row, r store.Result) {
	switch {
	case e.fault || r.Class == sink.Permanent && e.refusals > 0:
	case r.Class == sink.Transient && r.Reason != "" && e.refusals > 0 && r.Attempts >= min(w.attempts, e.refusals):
	case w.maxAge > 0 && !row.DeferredAt.IsZero() && time.Since(row.DeferredAt) > w.maxAge:
	default:
		w.failLocked(e, "I4: %s condemns %s: %s %s, %d attempts", t.name, e, r.Class, r.Reason, r.Attempts)
	}
}
