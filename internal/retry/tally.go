package retry

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Tally is what the tables hold of one slot.
type Tally struct {
	At           time.Time // when it was counted; zero: not yet
	Parked       int       // rows of the retry table
	OldestParked time.Time // commit time of the first of them by position, which is the oldest; zero: there is none
	Dead         int       // letters that are open
	OldestDead   time.Time // when the first of them died; zero: there is none
}

// TallyLimit is how many rows, and letters, are counted at the most. A million are 100 ms where the visibility map lets the
// index alone be read, and seconds where it does not; statement_timeout is 15 s.
const TallyLimit = 1_000_000

// tallySQL finds the oldest row as the first by position: commit times follow it but for some milliseconds, and have no index.
const tallySQL = `SELECT
	(SELECT count(*) FROM (SELECT FROM cdc_relay.retry WHERE slot = $1::text AND system_id = $2 LIMIT $3) r),
	(SELECT extract(epoch FROM clock_timestamp() - commit_time)::float8 FROM cdc_relay.retry WHERE slot = $1 AND system_id = $2
		ORDER BY incarnation, commit_lsn, idx LIMIT 1),
	(SELECT count(*) FROM (SELECT FROM cdc_relay.dead_letter WHERE slot = $1 AND system_id = $2 AND state = 'open' LIMIT $3) d),
	(SELECT extract(epoch FROM clock_timestamp() - died_at)::float8 FROM cdc_relay.dead_letter WHERE slot = $1 AND system_id = $2 AND state = 'open'
		ORDER BY died_at, n LIMIT 1)`

// ReadTally counts what the tables hold of a slot; limit stands for that many and more. A database without these tables holds
// nothing.
func ReadTally(ctx context.Context, db dlq.Querier, slot, systemID string, limit int) (Tally, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	var t Tally
	var parked, dead *float64
	// Planned anew each time, for the same reason as all statements about these tables.
	err := db.QueryRow(ctx, tallySQL, pgx.QueryExecModeCacheDescribe, slot, systemID, limit).Scan(&t.Parked, &parked, &t.Dead, &dead)
	t.At = time.Now()
	var no *pgconn.PgError
	switch {
	case errors.As(err, &no) && no.Code == "42P01":
		return Tally{At: t.At}, nil
	case err != nil:
		return Tally{}, fmt.Errorf("count parked events and dead letters: %w", err)
	}
	t.OldestParked, t.OldestDead = ago(t.At, parked), ago(t.At, dead)
	return t, nil
}

// ago is a time of the database's clock on this process's.
func ago(now time.Time, seconds *float64) time.Time {
	if seconds == nil {
		return time.Time{}
	}
	return now.Add(-time.Duration(*seconds * float64(time.Second)))
}

// tally keeps the Tally between two counts by what this leader does itself, and it alone changes the tables. So it is told at
// once, whoever asks, and the tables are counted seldom: while something changes every ten seconds, and not more than a
// fiftieth of the time. (Each scrape counting a million rows would cost PostgreSQL more than they do otherwise.) The count is
// what mends the rest: a statement that was made twice, a row that somebody has removed by hand.
type tally struct {
	count func(ctx context.Context, limit int) (Tally, error) // nil: nothing is counted
	limit int
	pace  pace
	hooks *Hooks

	mu     sync.Mutex
	now    Tally
	parked int // by how much it changed since the count began that is under way
	dead   int
	moved  bool // since the last count began
}

// Between two counts.
const (
	tallyEvery = 10 * time.Second // while something changes
	tallyIdle  = time.Minute      // while nothing does
	tallyShare = 50
)

func (t *tally) init(cfg *Config) {
	*t = tally{count: cfg.Tally, limit: TallyLimit, hooks: &cfg.Hooks, pace: pace{log: cfg.Log, what: "counting parked events"}}
}

// run counts until ctx is done.
func (t *tally) run(ctx context.Context) {
	for t.count != nil {
		began := time.Now()
		tell(t.hooks.Tally, true)
		err := t.once(ctx)
		tell(t.hooks.Tally, false)
		if ctx.Err() != nil {
			return
		}
		rest := max(tallyEvery, tallyShare*time.Since(began))
		if err != nil { // perhaps it takes too long
			t.pace.failed(err)
			t.limit = max(t.limit/4, TallyLimit/100)
			rest = tallyEvery
		} else {
			t.pace.succeeded()
			t.limit = min(2*t.limit, TallyLimit)
		}
		for rested := time.Duration(0); rested == 0 || rested < tallyIdle && !t.hasMoved(); rested += rest {
			if !slept(ctx, rest) {
				return
			}
		}
	}
}

// once counts.
func (t *tally) once(ctx context.Context) error {
	t.mu.Lock()
	t.parked, t.dead, t.moved = 0, 0, false
	t.mu.Unlock()
	counted, err := t.count(ctx, t.limit)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		t.moved = true
		return err
	}
	counted.Parked = t.merge(counted.Parked, t.parked, t.now.Parked)
	counted.Dead = t.merge(counted.Dead, t.dead, t.now.Dead)
	t.now = counted
	return nil
}

// merge is a number that was counted, with what changed meanwhile: that may be in the count or not and is taken as not, the
// next count knows. A count that came to its limit says no more than that it is not less.
func (t *tally) merge(counted, changed, kept int) int {
	if counted >= t.limit {
		return max(counted, kept)
	}
	return max(counted+changed, 0)
}

func (t *tally) hasMoved() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.moved
}

func (t *tally) snapshot() Tally {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.now
}

// add notes that so many rows, and letters, are there more; oldest is the first commit time of these rows.
func (t *tally) add(parked, dead int, oldest time.Time) {
	if parked == 0 && dead == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.moved = true
	t.parked, t.dead = t.parked+parked, t.dead+dead
	n := &t.now
	n.Parked, n.Dead = max(n.Parked+parked, 0), max(n.Dead+dead, 0)
	switch {
	case n.Parked == 0:
		n.OldestParked = time.Time{}
	case parked > 0 && (n.OldestParked.IsZero() || oldest.Before(n.OldestParked)):
		n.OldestParked = oldest
	}
	switch {
	case n.Dead == 0:
		n.OldestDead = time.Time{}
	case dead > 0 && n.OldestDead.IsZero():
		n.OldestDead = time.Now()
	}
}

// written notes rows that were committed.
func (t *tally) written(rows []*Row) (parked, dead int) {
	var oldest time.Time
	for _, row := range rows {
		if row.Dead {
			dead++
			continue
		}
		parked++
		if at := row.Event.CommitTime; oldest.IsZero() || at.Before(oldest) {
			oldest = at
		}
	}
	t.add(parked, dead, oldest)
	return parked, dead
}

// ended notes what came of rows.
func (t *tally) ended(results []Result) {
	gone, dead := 0, 0
	for _, r := range results {
		switch r.Kind {
		case Delivered:
			gone++
		case Dead:
			gone++
			dead++
		case Backoff:
		}
	}
	t.add(-gone, dead, time.Time{})
}

// answered notes what an operator's request did.
func (t *tally) answered(a Answer) {
	if a.Request.Row == nil {
		return
	}
	letters := 0 // a letter that was closed before was counted out then
	if a.Request.Open {
		letters = -1
	}
	switch a.Request.Kind {
	case Discard:
		t.add(0, letters, time.Time{})
	case Replay:
		if a.Outcome.State == sink.Confirmed {
			t.add(0, letters, time.Time{})
		}
	case Purge:
		if a.Request.Row.Dead {
			t.add(0, letters, time.Time{})
		} else {
			t.add(-1, 0, time.Time{})
		}
	case DeadLetter:
		t.add(-1, 1, time.Time{})
	case Retry, Redact:
	}
}
