// Package replication is the PostgreSQL side of the relay: the life of one slot. A Stream prepares
// the slot, stands by while another relay holds it, leads, and starts again after every lost
// session. The packages below it do the parts.
package replication

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/schema"
	"github.com/cdc-relay/cdc-relay/internal/replication/session"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// Stream reads one slot for as long as the process lives: it prepares the slot, stands by while
// another relay holds it, leads when it is free, and goes on after every lost session.
//
// Run owns everything below it but Survey, which goes on after it. One term is one epoch: a line
// with its lanes, kept over lost sessions and discarded when another relay led in between.
type Stream struct {
	cfg    *source.Config
	pool   *pgxpool.Pool
	tables []string // names of the outbox tables, quoted; Run fills in their OIDs elsewhere
	// preparedFor is the constant; tests make it longer
	preparedFor time.Duration

	status *slot.Status    // what the outside may ask
	shared *session.Shared // with the sessions

	// Run's goroutine writes the fields below; AwaitDecision, which follows it, reads ended.
	started       time.Time    // when Run began
	everConnected bool         // a preparation has succeeded in this process
	sessions      int          // how many sessions have begun
	loggedReason  string       // the last reason for waiting that was logged
	visitor       visitor      // session that calls a function on the slot
	prepared      prepared     // what Prepare has left for the first session; zero: nothing
	decidedAtEnd  string       // decisionState when Run ended with a Stop
	durable       durableState // what the database certainly has, as of the last session

	// of this process; nil: it does not lead, or another relay has led since
	term           *session.Term
	sessionBackoff backoff // between two sessions
}

// New checks the configuration and makes the pool; it does not connect.
func New(cfg source.Config) (*Stream, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.Primary = new(source.Primary)
	pool, err := source.ConnectPool(&cfg)
	if err != nil {
		return nil, err
	}
	cfg.Primary.ServerChanged = pool.Reset
	seen := new(slot.Status)
	return &Stream{
		cfg: &cfg, pool: pool, tables: cfg.QuotedTables(), preparedFor: preparedFor, status: seen,
		shared: &session.Shared{Cfg: &cfg, Pool: pool, Status: seen, WarnedStops: map[string]bool{}},
	}, nil
}

// Pool is the connection pool that everything but the stream uses, until Close.
func (s *Stream) Pool() *pgxpool.Pool { return s.pool }

// Snapshot is what the stream does now. Anyone may ask, also before Run.
func (s *Stream) Snapshot() slot.Snapshot { return s.status.Snapshot() }

// Survey asks what only operators want to know, in every phase and after Run has returned, until
// ctx is done.
func (s *Stream) Survey(ctx context.Context) error {
	slot.Survey(ctx, s.pool, s.cfg, s.status, s.tables)
	return nil
}

// Close ends the pool, after Run and Survey: a relay that has stopped, and stays up to say so,
// still asks how its slot stands.
func (s *Stream) Close() { source.ClosePool(s.pool) }

// showWaiting shows and logs why the relay is not streaming; the same reason is logged once.
func (s *Stream) showWaiting(why string) {
	s.status.EnterPhase(slot.Waiting, why)
	if why != s.loggedReason {
		s.cfg.Log.Warn("waiting for PostgreSQL", zap.String("reason", why), zap.String("slot", s.cfg.Slot))
		s.loggedReason = why
	}
}

var errPrepareAgain = errors.New("the slot's record changed: prepare again")

// Run relays until reading is done, then finishes what was read (until draining is done or the
// grace is over) and returns nil after a clean stop. Any other error is an *event.Stop: the relay
// cannot go on by itself.
func (s *Stream) Run(reading, draining context.Context) error {
	s.started = time.Now()
	s.forgetServer()
	defer func() {
		s.endTerm()
		s.cfg.Primary.ForgetServer()
	}()

	prepared := false
	s.sessionBackoff = backoff{min: 100 * time.Millisecond, max: 5 * time.Second}
	for {
		err := s.checkServer(reading)
		if err == nil && !prepared {
			if err = s.prepare(reading); err == nil {
				prepared, s.everConnected = true, true
				s.sessionBackoff.reset()
			}
		}
		if err == nil {
			err = s.runSession(reading, draining)
		}
		switch {
		case errors.Is(err, session.ErrCleanStop):
			return nil
		case errors.Is(err, errPrepareAgain), errors.Is(err, errPromoted):
			prepared = false
			s.endTerm()
			if errors.Is(err, errPromoted) {
				s.leaveServer()
			}
			s.status.EnterPhase(slot.Waiting, err.Error()) // the reporter has ended
			continue
		case errors.Is(err, errTaken):
			source.Sleep(reading, standbyPoll) // it may be free again at once, and taken again
			continue                           // to stand by behind it
		}
		if again, err := s.pauseAfter(reading, err); !again {
			if err == nil && s.term != nil {
				return s.stoppedWithoutSession()
			}
			return err
		}
	}
}

// endTerm ends the term and its line, if there is one.
func (s *Stream) endTerm() {
	s.term.EndTerm()
	s.term = nil
}

// runSession is one session of a leader, once the slot is free. The watch for a shutdown of the
// server begins before it and ends after it.
func (s *Stream) runSession(reading, draining context.Context) error {
	defer s.dropPrepared()
	if err := s.standBy(reading); err != nil {
		return err
	}
	// The steps to the stream go on in this session of the pool, which has the catalogs in memory:
	// the watch makes one of its own.
	soon, cancel := context.WithTimeout(reading, source.AnswerTimeout)
	warm, err := s.pool.Acquire(soon)
	cancel()
	if err != nil {
		return err
	}
	releaseWarm := sync.OnceFunc(warm.Release)
	defer releaseWarm()
	acquiring, abandon := context.WithCancelCause(reading)
	defer abandon(nil)
	watch := session.NewShutdownWatch(s.shared)
	watching, stop := context.WithCancel(context.Background())
	var watched sync.WaitGroup
	watched.Go(func() { watch.Run(watching, abandon) })
	defer watched.Wait()
	defer stop()
	se, err := s.acquireSlot(acquiring, watch, releaseWarm)
	if err != nil {
		return err
	}
	s.showStreaming()
	began := time.Now()
	err = se.Run(reading, draining)
	s.keepDurable(se.Received.Load())
	if time.Since(began) > steadySession {
		s.sessionBackoff.reset()
	}
	// Whatever ended the session may also have ended the pool's connections unnoticed.
	s.pool.Reset()
	return err
}

// showStreaming shows and logs that a session begins.
func (s *Stream) showStreaming() {
	s.sessions++
	s.loggedReason = ""
	if s.sessions > 1 && s.cfg.Hooks.Reconnect != nil {
		s.cfg.Hooks.Reconnect()
	}
	s.status.EnterPhase(slot.Streaming, "")
	s.status.SetLeader(slot.RelayName(s.cfg))
	s.cfg.Log.Info("streaming", zap.String("slot", s.cfg.Slot), zap.Int64("epoch", s.term.Epoch))
}

// stoppedWithoutSession ends a process that leads but has lost its session: nothing can be
// reported.
func (s *Stream) stoppedWithoutSession() error {
	if n := s.term.Line.Unsettled(); n > 0 {
		return session.GraceOverStop(n)
	}
	s.cfg.Log.Warn("stopped without a session: what was confirmed since the last report is sent again at the next start")
	return nil
}

// pauseAfter waits before the next try after err, and logs the reason, each reason once. again is
// false if there is none: the relay was asked to stop (nil), or cannot go on by itself (a Stop).
func (s *Stream) pauseAfter(reading context.Context, err error) (again bool, _ error) {
	var stop *event.Stop
	if errors.As(err, &stop) {
		// the first answer is a change
		s.decidedAtEnd = s.decisionStateOr(context.WithoutCancel(reading), "")
		return false, slot.ConnectAndNameStop(reading, *s.cfg, err, s.shared.Good())
	}
	if reading.Err() != nil {
		return false, nil //nolint:nilerr // whatever it was, the relay is to stop
	}
	if stop := schema.MisfitStop(err); stop != nil {
		return false, stop
	}
	if stop := source.FatalConnect(s.cfg, err, s.everConnected, s.started); stop != nil {
		return false, stop
	}
	why := source.StableText(source.OneLine(err).Error())
	if fix := source.FixStream(s.cfg, err); fix != "" {
		why += "; " + fix
	}
	s.showWaiting(why)
	return source.Sleep(reading, s.sessionBackoff.next()), nil
}

// steadySession is how long a session must last to reset the backoff.
const steadySession = 10 * time.Second

// backoff doubles from min to max, with full jitter in the upper half.
type backoff struct {
	min, max time.Duration
	current  time.Duration
}

func (b *backoff) next() time.Duration {
	b.current = min(max(2*b.current, b.min), b.max)
	return b.current/2 + rand.N(b.current/2+1)
}

func (b *backoff) reset() { b.current = 0 }

// decisionPoll is how often the slot's record is looked at: one query of one row.
const decisionPoll = 2 * time.Second

// AwaitDecision returns true once the slot's record, or whether the slot exists, is not what it was
// when Run ended: an operator has accepted what was found, or recovered the slot, and Run may be
// called again. It returns false when ctx is done.
func (s *Stream) AwaitDecision(ctx context.Context) bool {
	for source.Sleep(ctx, decisionPoll) {
		if s.decisionStateOr(ctx, s.decidedAtEnd) != s.decidedAtEnd {
			// until now it is what it was before the end: the leader
			s.status.EnterPhase(slot.Starting, "")
			return true
		}
	}
	return false
}

// decisionStateOr is decided, or other while the database does not answer.
func (s *Stream) decisionStateOr(ctx context.Context, other string) string {
	now, err := s.decisionState(ctx)
	if err != nil {
		return other
	}
	return now
}

// decisionState is a text that changes when an operator decides something, and not when relays come
// and go. When an accepted slot is replaced by a new one, only its absence in between changes the
// text.
func (s *Stream) decisionState(ctx context.Context) (string, error) {
	rec, view, err := slot.ReadBoth(ctx, s.pool, s.cfg.Slot)
	if err != nil || rec == nil {
		return "", err
	}
	return fmt.Sprintf("%s %d %t %s", rec.State, rec.Incarnation, view != nil, rec.SendsText), nil
}

// forgetServer makes Run begin as in a new process, which remembers nothing of the server.
func (s *Stream) forgetServer() {
	s.durable, s.visitor, s.loggedReason = durableState{}, visitor{}, ""
	s.cfg.Primary.ForgetServer()
	s.cfg.Primary.ReceivedWAL.Store(0)
	s.shared.SetGood(&slot.View{})
}
