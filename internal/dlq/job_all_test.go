//go:build testall

package dlq

import (
	"context"
	"fmt"
	"testing"
	"time"
)

func TestBulkThatMatchesNothing(t *testing.T) {
	r := setup(t)
	r.put(sample{})
	before := r.contents()
	for _, f := range []Filter{{Key: []byte("nobody's")}, {Error: "never said"}, {State: Replaying}} {
		if j := r.start(Bulk{Kind: Replay, Filter: f}); j.ID != 0 || j.Matched != 0 || j.State != JobDone {
			t.Errorf("%+v makes a job: %+v", f, j)
		}
	}
	if r.contents() != before {
		t.Error("something was written")
	}
}

func TestOldJobsAreForgotten(t *testing.T) {
	r := setup(t)
	r.put(sample{})
	j, young := r.start(Bulk{Kind: Discard}), r.start(Bulk{Kind: Discard})
	r.exec(`UPDATE cdc_relay.bulk SET state = 'done', closed_at = now() - CASE job WHEN $1 THEN interval '61 minutes' ELSE interval '59 minutes' END`, j.ID)
	calls := 0
	l := r.leader()
	l.cfg.Expire = func(context.Context) (int, error) { calls++; return 2 - calls, nil }
	for range 3 {
		_, err := l.once(r.ctx, time.Now())
		r.must(err)
	}
	jobs, err := r.admin.Jobs(r.ctx, 10)
	r.must(err)
	if len(jobs) != 1 || jobs[0].ID != young.ID || calls != 2 {
		t.Errorf("%d calls, left are %+v", calls, jobs)
	}
}

// A dead letter's replay is refused after a job was asked for. It is the same dead letter, and was
// there; but not one whose last refusal said that.
func TestBulkAndAReplayRefusedSince(t *testing.T) {
	r := setup(t)
	replay := r.request(Replay, r.put(sample{class: "transient", reason: "nacked", words: "no"}))
	var jobs []Job
	for _, f := range []Filter{{Error: "too_large"}, {Error: "body of 5 bytes"}, {Class: "permanent"}} {
		r.put(sample{}) // so that there is one
		jobs = append(jobs, r.start(Bulk{Kind: Discard, Filter: f}))
	}
	r.exec(`DELETE FROM cdc_relay.dead_letter WHERE n > $1`, replay.N)
	r.exec(`UPDATE cdc_relay.dead_letter SET class = 'permanent', reason = 'too_large', error = 'body of # bytes'`)
	r.carryOut(replay.ID, RequestFailed, "too_large: body of 5 bytes")
	again := r.start(Bulk{Kind: Discard, Filter: Filter{Error: "too_large"}})
	r.expand()
	for _, j := range jobs {
		if got := r.asked(j.ID); got != "" {
			t.Errorf("job %d asks for %s", j.ID, got)
		}
	}
	if got := r.asked(again.ID); got != fmt.Sprint("discard ", replay.N) {
		t.Errorf("one that was asked for since asks for %s", got)
	}
}

// A row about which somebody asked already is left to that request.
func TestBulkBesideARequest(t *testing.T) {
	r := setup(t)
	a, b := r.put(sample{}), r.put(sample{})
	r.request(Redact, a)
	j := r.start(Bulk{Kind: Discard})
	r.expand()
	j, err := r.admin.Job(r.ctx, j.ID)
	r.must(err)
	if got := r.asked(j.ID); got != fmt.Sprint("discard ", b) || j.Asked != 1 || j.Skipped != 1 {
		t.Errorf("it asks for %s: %+v", got, j)
	}
}

func TestPagesOfABulk(t *testing.T) {
	r := setup(t)
	for range 7 {
		r.put(sample{of: Deferred, key: "1"})
		r.put(sample{key: "1"})
	}
	j := r.start(Bulk{Kind: Purge, Filter: Filter{Key: []byte("1")}})
	l := r.leader()
	for range 100 {
		jobs, err := l.jobs(r.ctx)
		r.must(err)
		if jobs[0].state != "asking" {
			break
		}
		r.must(l.advance(r.ctx, &jobs[0], 3))
	}
	if got := r.asked(j.ID); got != "purge 1, purge 3, purge 5, purge 7, purge 9, purge 11, purge 13, purge 2, purge 4, purge 6, purge 8, purge 10, purge 12, purge 14" {
		t.Errorf("it asks for %s", got)
	}
}

// The rate is that of requests that are made, whatever time passed before: no leader for an hour is
// no hour's worth at once.
func TestRate(t *testing.T) {
	l := NewLeader(LeaderConfig{})
	now := time.Now()
	j := &job{id: 1, rate: 10}
	if n := l.allowance(j, now); n != 2 {
		t.Errorf("at first %d, want a tick's worth", n)
	}
	sum := 0
	for range 50 {
		now = now.Add(100 * time.Millisecond)
		sum += max(l.allowance(j, now), 0)
	}
	if sum != 50 {
		t.Errorf("%d in five seconds, want 50", sum)
	}
	if n := l.allowance(j, now.Add(time.Hour)); n != 10 {
		t.Errorf("%d after an hour, want a second's worth", n)
	}
	j.waiting = 10
	if n := l.allowance(j, now.Add(2*time.Hour)); n > 0 {
		t.Errorf("%d while ten wait, want none", n)
	}
	slow := &job{id: 2, rate: 1}
	sum = 0
	for range 100 {
		now = now.Add(100 * time.Millisecond)
		sum += max(l.allowance(slow, now), 0)
	}
	if sum < 9 || sum > 11 {
		t.Errorf("%d in ten seconds at one per second", sum)
	}
	if n := l.allowance(&job{id: 3}, now); n != pageSize {
		t.Errorf("without a rate %d, want a page", n)
	}
	if n := l.allowance(&job{id: 3, waiting: maxAhead}, now); n > 0 {
		t.Errorf("with all waiting that may: %d, want none", n)
	}
}

// What an operator may write in the place of a filter ends that job alone. The others go on, and so
// does the purge by age.
func TestBrokenFilter(t *testing.T) {
	r := setup(t)
	n := r.put(sample{})
	for _, filter := range []string{`'{'`, `'[]'`, "NULL"} {
		r.exec(`INSERT INTO cdc_relay.bulk (slot, system_id, kind, filter, reason, matched, in_dead_letters) VALUES ($1, $2, 'purge', `+filter+`, '', 1, true)`, r.slot, r.system())
	}
	good := r.start(Bulk{Kind: Discard})
	l, expired := r.leader(), 0
	l.cfg.Expire = func(context.Context) (int, error) { expired++; return 0, nil }
	_, err := l.once(r.ctx, time.Now())
	r.must(err)
	if got := r.asked(good.ID); got != fmt.Sprint("discard ", n) || expired != 1 {
		t.Errorf("asked %q, expired %d times", got, expired)
	}
	if got := value[string](r, `SELECT string_agg(job || ' ' || state, ', ' ORDER BY job) FROM cdc_relay.bulk WHERE closed_at IS NOT NULL`); got != "1 cancelled, 2 cancelled, 3 cancelled" {
		t.Errorf("the jobs are %s", got)
	}
	const line = "(the relay) cancel its filter cannot be read job "
	r.wantAudit(line + "1 t, " + line + "2 t, " + line + "3 t")
}

// The statement of a former leader meets the next one's raise of the epoch: it waits for that, and
// then changes nothing.
func TestLeaderFencedMeanwhile(t *testing.T) {
	r := setup(t)
	r.put(sample{})
	j := r.start(Bulk{Kind: Discard})
	const raise = `UPDATE cdc_relay.slots SET epoch = epoch + 1`
	l := r.leader()
	jobs, err := l.jobs(r.ctx)
	r.must(err)
	wantFenced(t, r.beside(raise, func() error { return l.advance(r.ctx, &jobs[0], 10) }))
	m := r.mirror(&broker{})
	wantFenced(t, r.beside(raise, func() error { return m.confirm(r.ctx, []int64{1}) }))
	if got := r.asked(j.ID); got != "" || value[bool](r, `SELECT mirrored_at IS NOT NULL FROM cdc_relay.dead_letter`) {
		t.Errorf("it has asked for %q, or noted the dead letter", got)
	}
}

// A job is cancelled while a page of it is asked for: what the operator was told is cancelled has
// no request that waits.
func TestCancelledMeanwhile(t *testing.T) {
	r := setup(t)
	r.put(sample{})
	j := r.start(Bulk{Kind: Discard})
	l := r.leader()
	jobs, err := l.jobs(r.ctx)
	r.must(err)
	r.must(r.beside(`UPDATE cdc_relay.bulk SET state = 'cancelled', closed_at = now(), filter = NULL`, func() error { return l.advance(r.ctx, &jobs[0], 10) }))
	j, err = r.admin.Job(r.ctx, j.ID)
	r.must(err)
	if got := r.asked(j.ID); got != "" || j.State != JobCancelled {
		t.Errorf("it asks for %s: %+v", got, j)
	}
}

// The answer to a page was lost, and it is asked for again when its requests have been carried out:
// they are made once.
func TestPageIsAskedForOnce(t *testing.T) {
	r := setup(t)
	for range 5 {
		r.put(sample{})
	}
	j := r.start(Bulk{Kind: Redact})
	l := r.leader()
	jobs, err := l.jobs(r.ctx)
	r.must(err)
	again := jobs[0]
	r.must(l.advance(r.ctx, &jobs[0], 3))
	r.exec(`UPDATE cdc_relay.request SET state = 'done', done_at = now()`)
	r.must(l.advance(r.ctx, &again, 3))
	r.expand()
	if got := r.asked(j.ID); got != "redact 1, redact 2, redact 3, redact 4, redact 5" {
		t.Errorf("it asks for %s", got)
	}
}
