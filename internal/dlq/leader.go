// Leader is the part of the leading relay that works for operators: it makes the requests of bulk
// jobs, and purges by age, under the fence of its epoch.

package dlq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// LeaderConfig is the configuration of a Leader.
type LeaderConfig struct {
	Term
	// Expire purges by age; the store of the retry table has it. It is called once a minute, and
	// again while it changes something. nil means that nothing is purged.
	Expire func(ctx context.Context) (changed int, err error)
	// called while there is a job of ResendRows; nil means that nobody carries it out
	Resend func()
	Keep   time.Duration // jobs that ended longer ago are forgotten; 0 keeps them
	Log    *zap.Logger
}

// Itself is the actor in the audit for what the relay does by itself. No role or token of a person
// has this name by accident, as could be with "relay".
const Itself = "(the relay)"

// Leader works for operators during one term, in one goroutine. It makes the requests of bulk jobs,
// which the retry table carries out, and purges by age.
type Leader struct {
	cfg LeaderConfig

	pace    map[int64]pace // of jobs with a rate
	expired time.Time      // when Expire was last called
	logged  logged
}

// pace is how much of its rate a job may still use.
type pace struct {
	at   time.Time
	left float64 // requests that may be made now
}

// NewLeader makes a Leader. It starts nothing.
func NewLeader(cfg LeaderConfig) *Leader {
	return &Leader{cfg: cfg, pace: map[int64]pace{}}
}

const (
	leaderTick  = time.Second            // between two looks for jobs
	busyTick    = 200 * time.Millisecond // likewise, while there is a job
	expireEvery = time.Minute

	pageSize = 1000 // requests that are made for a job in one statement
	maxAhead = 2000 // waiting requests of a job; it bounds the table, and the work of a cancel
)

// Run works until ctx is done, and returns nil then. It goes on after errors of the database, and
// logs each text once. Only a newer leader ends it, with an *event.Stop.
func (l *Leader) Run(ctx context.Context) error {
	return repeat(ctx, nil, func(now time.Time) (time.Duration, error) {
		busy, err := l.once(ctx, now)
		if busy && err == nil {
			return busyTick, nil
		}
		return leaderTick, err
	}, func(why string) {
		l.logged.warn(l.cfg.Log, "operators' jobs wait: the database failed, they are tried again", why)
	})
}

// repeat calls once, and again after the time that it returns, until ctx is done or stop is closed;
// then it returns nil. It calls failed with each error of the database, and with "" after a
// success. It returns the *event.Stop of a newer leader.
func repeat(ctx context.Context, stop <-chan struct{}, once func(now time.Time) (wait time.Duration, err error), failed func(why string)) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-stop:
			return nil
		case <-timer.C:
		}
		wait, err := once(time.Now())
		fenced, why := (*event.Stop)(nil), ""
		switch {
		case ctx.Err() != nil:
			return nil // the term is over, whatever the error
		case errors.As(err, &fenced):
			return fenced
		case err != nil:
			why = err.Error()
		}
		failed(why)
		timer.Reset(wait)
	}
}

// logged is the text that was last logged. A text is logged again only after another one, or after
// a success.
type logged string

func (l *logged) warn(log *zap.Logger, what, why string) {
	if why != string(*l) && why != "" {
		log.Warn(what, zap.String("error", why))
	}
	*l = logged(why)
}

// once does what is due. busy reports whether there is a job whose requests are still being made.
func (l *Leader) once(ctx context.Context, now time.Time) (busy bool, err error) {
	jobs, err := l.jobs(ctx)
	if err != nil {
		// an error about jobs must not keep dead letters beyond their time
		return false, errors.Join(err, l.expireDeadLetters(ctx, now))
	}
	running := map[int64]pace{}
	var errs []error
	for i := range jobs {
		j := &jobs[i]
		if j.broken {
			if err := l.reject(ctx, j); err != nil {
				errs = append(errs, fmt.Errorf("job %d: %w", j.id, err))
			}
			continue
		}
		n := l.allowance(j, now)
		if p, paced := l.pace[j.id]; paced {
			running[j.id] = p
		}
		if err := l.advance(ctx, j, n); err != nil {
			errs = append(errs, fmt.Errorf("job %d: %w", j.id, err)) // the other jobs go on
		}
		busy = busy || j.state == "asking"
	}
	l.pace = running
	return busy, errors.Join(append(errs, l.expireDeadLetters(ctx, now))...)
}

// allowance returns how many requests of a job may be made now: its rate times the time since the
// last requests, but at most for one second, and no more than may wait at once.
func (l *Leader) allowance(j *job, now time.Time) int {
	n := min(pageSize, maxAhead-j.waiting)
	if j.rate > 0 {
		p, known := l.pace[j.id]
		if !known {
			p = pace{at: now.Add(-busyTick)}
		}
		p.left = min(p.left+j.rate*now.Sub(p.at).Seconds(), max(j.rate, 1))
		p.at = now
		n = min(n, int(p.left), max(int(j.rate), 1)-j.waiting)
		p.left -= float64(max(n, 0))
		l.pace[j.id] = p
	}
	return n
}

// expireDeadLetters purges old dead letters: once a minute, and again at once while it finds some.
func (l *Leader) expireDeadLetters(ctx context.Context, now time.Time) error {
	if l.cfg.Expire == nil || now.Sub(l.expired) < expireEvery {
		return nil
	}
	changed, err := l.cfg.Expire(ctx)
	if err != nil {
		return fmt.Errorf("purge by age: %w", err)
	}
	if changed == 0 {
		l.expired = now
	}
	return l.forgetOldJobs(ctx)
}

// forgetOldJobs removes jobs that ended longer ago than Keep.
func (l *Leader) forgetOldJobs(ctx context.Context) error {
	if l.cfg.Keep <= 0 {
		return nil
	}
	return l.cfg.change(ctx, "forget old jobs", `, gone AS (DELETE FROM cdc_relay.bulk b USING fence
			WHERE b.slot = $1 AND b.closed_at < now() - make_interval(secs => $3))
		SELECT true FROM fence`, []any{l.cfg.Keep.Seconds()})
}

// job is a job that is not closed, as the leader reads it.
type job struct {
	id          int64
	bulk        Bulk
	rate        float64
	state       string // asking or asked: whether all its requests were made
	deadLetters bool   // place is among the dead letters
	place       place
	created     time.Time
	waiting     int  // requests of it that wait
	broken      bool // its filter cannot be read
}

// place is a position together with the incarnation of its slot. Rows are processed in the order of
// their places.
type place struct {
	incarnation int64
	commit      string // as text
	index       int64
}

// jobs reads the jobs that are not closed, as many as have leaderFilters bytes of filters. The
// others wait until these have made their requests.
func (l *Leader) jobs(ctx context.Context) (list []job, err error) {
	resends := false
	err = l.cfg.readRows(ctx, "read cdc_relay.bulk", ` SELECT b.job, b.kind, b.filter, coalesce(b.rate, 0), b.state, b.in_dead_letters,
			b.incarnation, b.commit_lsn::text, b.idx, b.created_at, (SELECT count(*) FROM cdc_relay.request r WHERE r.job = b.job AND r.state = 'waiting')
		FROM fence LEFT JOIN (SELECT b.*, sum(f.asking) OVER (ORDER BY b.job) - f.asking AS before FROM cdc_relay.bulk b
				CROSS JOIN LATERAL (SELECT CASE WHEN b.state = 'asking' THEN coalesce(octet_length(b.filter), 0) ELSE 0 END AS asking) f
				WHERE b.slot = $1 AND b.system_id = $3 AND b.closed_at IS NULL) b
			ON before < $4 ORDER BY b.job LIMIT 100`,
		[]any{l.cfg.SystemID, leaderFilters}, func(rows pgx.Rows) error {
			var j job
			var filter []byte
			err := rows.Scan(&j.id, &j.bulk.Kind, &filter, &j.rate, &j.state, &j.deadLetters, &j.place.incarnation, &j.place.commit, &j.place.index, &j.created, &j.waiting)
			if err == nil && j.bulk.Kind == ResendRows {
				resends = true
				return nil
			}
			// whoever may request by SQL may write a filter that cannot be read; the other jobs
			// must go on
			j.broken = err == nil && j.state == "asking" && json.Unmarshal(filter, &j.bulk.Filter) != nil
			list = append(list, j)
			return err
		})
	if err != nil {
		return nil, err
	}
	if resends && l.cfg.Resend != nil {
		l.cfg.Resend()
	}
	return list, nil
}

// reject cancels a job whose filter cannot be read, and notes that in the audit.
func (l *Leader) reject(ctx context.Context, j *job) error {
	return l.cfg.change(ctx, "cancel the job", `, job AS (UPDATE cdc_relay.bulk b SET state = 'cancelled', closed_at = now(), filter = NULL FROM fence
			WHERE b.job = $3 AND b.closed_at IS NULL RETURNING b.slot, b.system_id, b.job),
		noted AS (INSERT INTO cdc_relay.audit (slot, system_id, who, action, n, why, result)
			SELECT job.slot, job.system_id, '`+Itself+`', 'cancel', 0, 'its filter cannot be read', 'job ' || job.job FROM job)
		SELECT true FROM fence`, []any{j.id})
}

// advance makes up to n requests of a job. It closes a job that has no request left to make, and
// none that waits.
func (l *Leader) advance(ctx context.Context, j *job, n int) error {
	switch {
	case j.state == "asked" && j.waiting == 0:
		return l.cfg.change(ctx, "close the job", `, closed AS (UPDATE cdc_relay.bulk b SET state = 'done', closed_at = now(), filter = NULL FROM fence
				WHERE b.job = $3 AND b.state = 'asked' AND NOT EXISTS (SELECT FROM cdc_relay.request r WHERE r.job = $3 AND r.state = 'waiting'))
			SELECT true FROM fence`, []any{j.id})
	case j.state == "asked" || n <= 0:
		return nil
	}
	tables := j.bulk.tables()
	t := tables[len(tables)-1]
	if !j.deadLetters {
		t = Deferred
	}
	return l.makeRequests(ctx, j, t, t == tables[len(tables)-1], n)
}

// makeRequests makes a page of requests, at most n, for the rows after the job's place in a table.
// A page that is not full ends the table. The statement locks the job first, so that no requests
// are made for a job that was cancelled in between.
func (l *Leader) makeRequests(ctx context.Context, j *job, t *Table, last bool, n int) error {
	w := where{args: []any{l.cfg.Slot, l.cfg.Epoch, j.id, l.cfg.SystemID, n, j.place.incarnation, j.place.commit, j.place.index, j.created, last}}
	w.and("t.slot = $1 AND t.system_id = $4 AND (t.incarnation, t.commit_lsn, t.idx) > ($6::bigint, $7::pg_lsn, $8::bigint)")
	w.and("t." + j.bulk.since(t) + " <= $9") // both are times of the database
	if t == DeadLetters && (j.bulk.Filter.Class != "" || j.bulk.Filter.Error != "") {
		// The filter is about the last rejection: a dead letter that was rejected after the job was
		// requested is left out.
		w.and("NOT EXISTS (SELECT FROM cdc_relay.request r WHERE r.n = t.n AND (r.slot, r.system_id) = (t.slot, t.system_id) AND r.kind = 'replay' AND r.state = 'failed' AND r.done_at > $9)")
	}
	j.bulk.chosen(&w, t)
	var found int
	err := l.cfg.change(ctx, "make a job's requests", `, job AS MATERIALIZED (SELECT b.* FROM cdc_relay.bulk b, fence
			WHERE b.job = $3 AND b.state = 'asking' AND (b.in_dead_letters, b.incarnation, b.commit_lsn, b.idx) = (`+fmt.Sprint(j.deadLetters)+`, $6, $7, $8) FOR UPDATE OF b),
		page AS MATERIALIZED (SELECT t.n, t.incarnation, t.commit_lsn, t.idx FROM `+t.name+` t WHERE EXISTS (SELECT FROM job) AND `+w.sql.String()+`
			ORDER BY t.incarnation, t.commit_lsn, t.idx LIMIT $5),
		made AS (INSERT INTO cdc_relay.request (slot, system_id, kind, n, route_name, routing_key, who, reason, job)
			SELECT job.slot, job.system_id, job.kind, page.n, job.route_name, job.routing_key, job.who, job.reason, job.job
			FROM page, job
			ORDER BY page.incarnation, page.commit_lsn, page.idx ON CONFLICT (slot, system_id, n) WHERE state = 'waiting' DO NOTHING RETURNING n),
		last AS (SELECT incarnation, commit_lsn, idx FROM page ORDER BY incarnation DESC, commit_lsn DESC, idx DESC LIMIT 1),
		full_page AS (SELECT count(*) = $5 AS yes, count(*) AS n FROM page),
		moved AS (UPDATE cdc_relay.bulk b SET asked = b.asked + m.n, skipped = b.skipped + f.n - m.n,
				state = CASE WHEN f.yes OR NOT $10 THEN 'asking' ELSE 'asked' END,
				in_dead_letters = b.in_dead_letters OR NOT f.yes,
				incarnation = CASE WHEN f.yes THEN (SELECT incarnation FROM last) ELSE 0 END,
				commit_lsn = CASE WHEN f.yes THEN (SELECT commit_lsn FROM last) ELSE '0/0' END,
				idx = CASE WHEN f.yes THEN (SELECT idx FROM last) ELSE -1 END
			FROM job, full_page f, (SELECT count(*) AS n FROM made) m WHERE b.job = job.job)
		SELECT n FROM fence, full_page`, w.args[2:], &found)
	if err == nil && found < n && last {
		j.state = "asked"
	}
	return err
}
