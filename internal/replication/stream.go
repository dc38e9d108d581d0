package replication

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// Stream reads one slot for as long as the process lives: it prepares the slot, stands by while another relay holds
// it, leads when it is free, and goes on after every lost session.
//
// Run owns everything below it but Survey, which goes on after it. One term is one epoch: a line with its lanes, kept over lost sessions, thrown away when
// another relay led in between.
type Stream struct {
	cfg    Config
	pool   *pgxpool.Pool
	tables []string // names of the outbox tables, quoted; Run fills in their OIDs elsewhere

	status status // what the outside may ask

	started       time.Time
	everConnected bool
	sessions      int
	said          string          // the last reason for waiting that was logged
	holder        holder          // of the slot, while we stand by
	segment       uint64          // size in bytes of a file of WAL, at the last session's begin
	warned        bool            // of a message with our prefix that is not transactional; the reader's
	warnedOf      map[string]bool // what the relay will stop at, by its words; the monitor's
	durable       durable         // what the database is known to have, of the last session
	lastGood      atomic.Uint64   // position of the server at the last check that found publication and tables in order; 0: none
}

// New checks the configuration and makes the pool; it does not connect.
func New(cfg Config) (*Stream, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg.home = new(home)
	pool, err := connectPool(&cfg)
	if err != nil {
		return nil, err
	}
	cfg.home.moved = pool.Reset
	return &Stream{cfg: cfg, pool: pool, tables: cfg.quotedTables(), warnedOf: map[string]bool{}}, nil
}

// Pool is what everything but the stream uses of the database, until Close.
func (s *Stream) Pool() *pgxpool.Pool { return s.pool }

// Close ends the pool, after Run and Survey: a relay that has stopped, and stays up to say so, still asks how its slot stands.
func (s *Stream) Close() { closePool(s.pool) }

// Run relays until reading is done, then finishes what was read (until draining is done or the grace is over) and
// returns nil after a clean stop. Any other error is an *outbox.Stop: the relay can not go on by itself.
func (s *Stream) Run(reading, draining context.Context) error {
	s.started = time.Now()
	var t *term
	defer func() {
		t.end()
		s.cfg.home.leave()
	}()

	prepared := false
	wait := backoff{min: 100 * time.Millisecond, max: 5 * time.Second}
	for {
		err := s.meet(reading, &t)
		if err == nil && !prepared {
			_, err = prepare(reading, s.pool, &s.cfg)
			err = s.nameGap(reading, err)
			if err == nil {
				prepared, s.everConnected = true, true
				wait.reset()
			}
		}
		if err == nil {
			err = s.session(reading, draining, &t, &wait)
		}
		switch {
		case errors.Is(err, errCleanStop):
			return nil
		case errors.Is(err, errPrepareAgain):
			prepared = false
			t.end()
			t = nil
			s.status.waiting(err.Error()) // there is no reporter any more
			continue
		case errors.Is(err, errTaken):
			slept(reading, standbyPoll) // it may be free again at once, and taken again
			continue                    // to stand by behind it
		}
		if again, err := s.pause(reading, &wait, err); !again {
			if err == nil && t != nil {
				return s.stoppedWithoutSession(t)
			}
			return err
		}
	}
}

// session is one session of a leader, once the slot is free.
func (s *Stream) session(reading, draining context.Context, t **term, wait *backoff) error {
	se, err := s.seize(reading, t)
	if err != nil {
		return err
	}
	began := time.Now()
	err = se.run(reading, draining)
	s.keep(*t, se.received.Load())
	if time.Since(began) > steady {
		wait.reset()
	}
	// What ended the session may have ended the pool's connections too, without their noticing.
	s.pool.Reset()
	return err
}

// stoppedWithoutSession ends a process that leads but has lost its session: nothing can be reported any more.
func (s *Stream) stoppedWithoutSession(t *term) error {
	if n := t.line.Unsettled(); n > 0 {
		return cut(n)
	}
	s.cfg.Log.Warn("stopped without a session: what was confirmed since the last report is sent again at the next start")
	return nil
}

// pause decides whether err is worth another try, says why it waits (once per reason) and waits. A nil error to
// return means that the relay was asked to stop.
func (s *Stream) pause(reading context.Context, wait *backoff, err error) (again bool, _ error) {
	var stop *outbox.Stop
	if errors.As(err, &stop) {
		return false, err
	}
	if reading.Err() != nil {
		return false, nil //nolint:nilerr // whatever it was, the relay is to stop
	}
	if stop := fatalConnect(&s.cfg, err, s.everConnected, s.started); stop != nil {
		return false, stop
	}
	why := steadyWords(oneLine{err}.Error())
	if mend := mend(&s.cfg, err); mend != "" {
		why += "; " + mend
	}
	s.wait(why)
	return slept(reading, wait.next()), nil
}

// steadyWords is what an error says without what differs from try to try for the same reason: our own end of a connection in an error
// of package net, the clock beside a certificate that has expired, and whether TLS's alert about ours met us as we wrote or as we read.
func steadyWords(text string) string { return unsteady.ReplaceAllString(text, "$1$2") }

var unsteady = regexp.MustCompile(`\b(read tcp |write tcp )\S+->|\bcurrent time \S+ is |` +
	`\bfailed to (?:write startup message: write failed|receive message): (remote error: tls: )`)

// wait shows and logs why the relay is not streaming; the same reason is logged once.
func (s *Stream) wait(why string) {
	s.status.waiting(why)
	if why != s.said {
		s.cfg.Log.Warn("waiting for PostgreSQL", zap.String("why", why), zap.String("slot", s.cfg.Slot))
		s.said = why
	}
}

var (
	errCleanStop    = errors.New("stopped as asked")
	errPrepareAgain = errors.New("the slot's record changed: prepare again")
	errTaken        = errors.New("another relay has taken the slot meanwhile")
)

// steady is how long a session lasts that is no sign of trouble.
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

// slept waits for d; false means that ctx was done before.
func slept(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// cut is the end of a stop that did not wait for every confirm.
func cut(unsettled int) *outbox.Stop {
	return &outbox.Stop{
		Code: outbox.ExitCut, Reason: "cut",
		What: fmt.Sprintf("stopped with %d events not confirmed; they are sent again at the next start", unsettled),
		Mend: "a longer delivery.shutdown_grace lets the broker answer",
	}
}

// fenced is the end of a leader that another one replaced.
func fenced(c *Config, epoch int64) *outbox.Stop {
	return &outbox.Stop{
		Code: outbox.ExitFailure, Reason: "fenced",
		What: fmt.Sprintf("fenced: a newer leader of slot %q raised the epoch past %d", c.Slot, epoch),
		Mend: "none: start this relay again, it stands by",
	}
}
