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

	status *slot.Status    // what the outside may ask
	common *session.Shared // with the sessions

	started       time.Time
	everConnected bool
	sessions      int
	said          string  // the last reason for waiting that was logged
	visitor       visitor // that holds the slot
	ended         string  // what an operator decides with, when Run ended for good
	durable       durable // what the database certainly has, as of the last session

	// Run's: the term of this process; nil: it does not lead, or another relay has led since
	term *session.Term
	wait backoff // between two sessions
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
	cfg.Primary.Changed = pool.Reset
	seen := new(slot.Status)
	return &Stream{
		cfg: &cfg, pool: pool, tables: cfg.QuotedTables(), status: seen,
		common: &session.Shared{Cfg: &cfg, Pool: pool, Status: seen, WarnedOf: map[string]bool{}},
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

// waiting shows and logs why the relay is not streaming; the same reason is logged once.
func (s *Stream) waiting(why string) {
	s.status.Enter(slot.Waiting, why)
	if why != s.said {
		s.cfg.Log.Warn("waiting for PostgreSQL", zap.String("reason", why), zap.String("slot", s.cfg.Slot))
		s.said = why
	}
}

var errPrepareAgain = errors.New("the slot's record changed: prepare again")

// The loop of the relay: session after session until it is asked to stop or cannot go on, with a
// growing pause after each failure (backoff).

// Run relays until reading is done, then finishes what was read (until draining is done or the
// grace is over) and returns nil after a clean stop. Any other error is an *event.Stop: the relay
// cannot go on by itself.
func (s *Stream) Run(reading, draining context.Context) error {
	s.started = time.Now()
	s.forget()
	defer func() {
		s.endTerm()
		s.cfg.Primary.Forget()
	}()

	prepared := false
	s.wait = backoff{min: 100 * time.Millisecond, max: 5 * time.Second}
	for {
		err := s.checkServer(reading)
		if err == nil && !prepared {
			if err = slot.Prepare(reading, s.pool, s.cfg); err == nil {
				prepared, s.everConnected = true, true
				s.wait.reset()
			}
		}
		if err == nil {
			err = s.session(reading, draining)
		}
		switch {
		case errors.Is(err, session.ErrCleanStop):
			return nil
		case errors.Is(err, errPrepareAgain), errors.Is(err, errPromoted):
			prepared = false
			s.endTerm()
			if errors.Is(err, errPromoted) {
				s.leave()
			}
			s.status.Enter(slot.Waiting, err.Error()) // the reporter has ended
			continue
		case errors.Is(err, errTaken):
			source.Sleep(reading, standbyPoll) // it may be free again at once, and taken again
			continue                           // to stand by behind it
		}
		if again, err := s.pause(reading, err); !again {
			if err == nil && s.term != nil {
				return s.stoppedWithoutSession()
			}
			return err
		}
	}
}

// endTerm ends the term and its line, if there is one.
func (s *Stream) endTerm() {
	s.term.End()
	s.term = nil
}

// session is one session of a leader, once the slot is free. The watch for a shutdown of the server
// begins before it and ends after it.
func (s *Stream) session(reading, draining context.Context) error {
	if err := s.standBy(reading); err != nil {
		return err
	}
	acquiring, abandon := context.WithCancelCause(reading)
	defer abandon(nil)
	watch := session.NewShutdownWatch(s.common)
	watching, stop := context.WithCancel(context.Background())
	var watched sync.WaitGroup
	watched.Go(func() { watch.Run(watching, abandon) })
	defer watched.Wait()
	defer stop()
	se, err := s.acquire(acquiring, watch)
	if err != nil {
		return err
	}
	s.streaming()
	began := time.Now()
	err = se.Run(reading, draining)
	s.keep(se.Received.Load())
	if time.Since(began) > steady {
		s.wait.reset()
	}
	// Whatever ended the session may also have ended the pool's connections unnoticed.
	s.pool.Reset()
	return err
}

// streaming says that a session begins.
func (s *Stream) streaming() {
	s.sessions++
	s.said = ""
	if s.sessions > 1 && s.cfg.Hooks.Reconnect != nil {
		s.cfg.Hooks.Reconnect()
	}
	s.status.Enter(slot.Streaming, "")
	s.cfg.Log.Info("streaming", zap.String("slot", s.cfg.Slot), zap.Int64("epoch", s.term.Epoch))
}

// stoppedWithoutSession ends a process that leads but has lost its session: nothing can be
// reported.
func (s *Stream) stoppedWithoutSession() error {
	if n := s.term.Line.Unsettled(); n > 0 {
		return session.GraceOver(n)
	}
	s.cfg.Log.Warn("stopped without a session: what was confirmed since the last report is sent again at the next start")
	return nil
}

// pause decides whether to try again after err, logs the reason (each reason once) and waits. A nil
// error to return means that the relay was asked to stop.
func (s *Stream) pause(reading context.Context, err error) (again bool, _ error) {
	var stop *event.Stop
	if errors.As(err, &stop) {
		s.ended = s.decidedOr(context.WithoutCancel(reading), "") // the first answer is a change
		return false, slot.Named(reading, *s.cfg, err, s.common.Good())
	}
	if reading.Err() != nil {
		return false, nil //nolint:nilerr // whatever it was, the relay is to stop
	}
	if stop := schema.Misfit(err); stop != nil {
		return false, stop
	}
	if stop := source.FatalConnect(s.cfg, err, s.everConnected, s.started); stop != nil {
		return false, stop
	}
	why := source.StableText(source.OneLine(err).Error())
	if fix := source.Fix(s.cfg, err); fix != "" {
		why += "; " + fix
	}
	s.waiting(why)
	return source.Sleep(reading, s.wait.next()), nil
}

// steady is how long a session must last to reset the backoff.
const steady = 10 * time.Second

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

// A stream that has ended for good waits for an operator's decision, as a process that stays up
// with --hold-on-fatal.

// decisionPoll is how often the slot's record is looked at: one query of one row.
const decisionPoll = 2 * time.Second

// AwaitDecision returns true once the slot's record, or whether the slot exists, is not what it was
// when Run ended: an operator has accepted what was found, or recovered the slot, and Run may be
// called again. It returns false when ctx is done.
func (s *Stream) AwaitDecision(ctx context.Context) bool {
	for source.Sleep(ctx, decisionPoll) {
		if s.decidedOr(ctx, s.ended) != s.ended {
			// until now it is what it was before the end: the leader
			s.status.Enter(slot.Starting, "")
			return true
		}
	}
	return false
}

// decidedOr is decided, or other while the database does not answer.
func (s *Stream) decidedOr(ctx context.Context, other string) string {
	now, err := s.decided(ctx)
	if err != nil {
		return other
	}
	return now
}

// decided is what an operator decides with: it does not change when relays come and go. A slot that
// was accepted already and is then replaced by a new one shows that by its absence alone.
func (s *Stream) decided(ctx context.Context) (string, error) {
	rec, view, err := slot.ReadBoth(ctx, s.pool, s.cfg.Slot)
	if err != nil || rec == nil {
		return "", err
	}
	return fmt.Sprintf("%s %d %t %s", rec.State, rec.Incarnation, view != nil, rec.SendsText), nil
}

// forget makes the next Run begin as in a new process, which remembers nothing of the server.
func (s *Stream) forget() {
	s.durable, s.visitor, s.said = durable{}, visitor{}, ""
	s.cfg.Primary.Forget()
	s.cfg.Primary.Wal.Store(0)
	s.common.SetGood(&slot.View{})
}
