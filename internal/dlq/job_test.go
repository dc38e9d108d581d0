package dlq

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/event"
)

func (r *rig) start(b Bulk) Job {
	r.t.Helper()
	b.By = by
	j, err := r.admin.Start(r.ctx, b)
	r.must(err)
	return j
}

// asked is the rows that a job has made requests about, in the order of the requests.
func (r *rig) asked(job int64) string {
	r.t.Helper()
	return value[string](r, `SELECT coalesce(string_agg(kind || ' ' || n, ', ' ORDER BY id), '') FROM cdc_relay.request WHERE job = $1`, job)
}

func TestBulk(t *testing.T) {
	r := setup(t)
	a, b := r.put(sample{key: "1"}), r.put(sample{key: "2", state: Replayed})
	c, d := r.put(sample{key: "1", sealed: true}), r.put(sample{key: "1", class: "transient"})
	first := r.put(sample{of: Deferred, key: "3", dest: 7})
	r.put(sample{of: Deferred, key: "3", dest: 7})
	p, q := r.put(sample{of: Deferred, key: "1", backoff: true}), r.put(sample{of: Deferred, key: "1"})
	other := r.put(sample{of: Deferred, key: "2"})
	timed := r.put(sample{of: Deferred, key: "3", backoff: true})
	for _, x := range []struct {
		name string
		b    Bulk
		want string
	}{
		{"replay what is open and has its contents", Bulk{Kind: Replay, Route: event.Route{Name: []byte("x")}}, fmt.Sprintf("replay %d, replay %d", a, d)},
		{"discard what is open", Bulk{Kind: Discard, Filter: Filter{State: Open}}, fmt.Sprintf("discard %d, discard %d, discard %d", a, c, d)},
		{"by a filter", Bulk{Kind: Discard, Filter: Filter{Class: "transient", Error: "body of 5 bytes"}}, fmt.Sprintf("discard %d", d)},
		{"redact", Bulk{Kind: Redact}, fmt.Sprintf("redact %d, redact %d, redact %d", a, b, d)},
		{"retry what waits for its time, and the first of each destination", Bulk{Kind: Retry}, fmt.Sprintf("retry %d, retry %d, retry %d", first, p, timed)},
		{"dead_letter", Bulk{Kind: ToDeadLetter, Filter: Filter{Key: []byte("2")}}, fmt.Sprintf("dead_letter %d", other)},
		{"purge what is closed", Bulk{Kind: Purge}, fmt.Sprintf("purge %d", b)},
		{"purge what is open, when it is said", Bulk{Kind: Purge, Filter: Filter{State: Open}}, fmt.Sprintf("purge %d, purge %d, purge %d", a, c, d)},
		{"purge a key everywhere", Bulk{Kind: Purge, Filter: Filter{Key: []byte("1")}}, fmt.Sprintf("purge %d, purge %d, purge %d, purge %d, purge %d", p, q, a, c, d)},
		{"purge dead letters of a key and state", Bulk{Kind: Purge, Filter: Filter{Key: []byte("1"), State: Open}}, fmt.Sprintf("purge %d, purge %d, purge %d", a, c, d)},
	} {
		t.Run(x.name, func(t *testing.T) {
			inner := *r
			inner.t = t
			before := inner.contents()
			n, err := inner.admin.Match(inner.ctx, x.b)
			inner.must(err)
			if inner.contents() != before {
				t.Error("counting what matches has changed something")
			}
			j := inner.start(x.b)
			if j.Matched != n || j.State != JobRuns || j.Asked != 0 {
				t.Errorf("the job is %+v, want %d matched", j, n)
			}
			inner.expand()
			if got := inner.asked(j.ID); got != x.want {
				t.Errorf("it asks for %s, want %s", got, x.want)
			}
			inner.exec(`UPDATE cdc_relay.request SET state = CASE WHEN id % 2 = 0 THEN 'done' ELSE 'failed' END, done_at = now() WHERE job = $1`, j.ID)
			_, err = inner.leader().once(inner.ctx, time.Now())
			inner.must(err)
			j, err = inner.admin.Job(inner.ctx, j.ID)
			inner.must(err)
			if j.State != JobDone || j.EndedAt == nil || j.Asked != n || j.Done+j.Failed != n || j.Who != "ann" {
				t.Errorf("the job has ended as %+v, want %d of them", j, n)
			}
			if value[bool](&inner, `SELECT filter IS NOT NULL FROM cdc_relay.bulk WHERE job = $1`, j.ID) {
				t.Error("the filter of a job that has ended is kept: it may hold a key")
			}
			inner.exec(`DELETE FROM cdc_relay.request`)
		})
	}
	jobs, err := r.admin.Jobs(r.ctx, 3)
	r.must(err)
	if len(jobs) != 3 || jobs[0].ID < jobs[2].ID {
		t.Errorf("the jobs are %+v", jobs)
	}
}

// A replay of many leaves out what was too large to read, unless its filter names that.
func TestBulkReplayOfLargeRows(t *testing.T) {
	r := setup(t)
	small, large := r.put(sample{key: "1"}), r.put(sample{key: "1", id: "large"})
	r.exec(`UPDATE cdc_relay.dead_letter SET left_out = 'public.outbox', class = 'permanent', reason = 'row_too_large' WHERE n = $1`, large)
	for _, x := range []struct {
		b    Bulk
		want string
	}{
		{Bulk{Kind: Replay}, fmt.Sprintf("replay %d", small)},
		{Bulk{Kind: Replay, Filter: Filter{Key: []byte("1")}}, fmt.Sprintf("replay %d", small)},
		{Bulk{Kind: Replay, Filter: Filter{Error: "row_too_large"}}, fmt.Sprintf("replay %d", large)},
		{Bulk{Kind: Replay, Filter: Filter{ID: []byte("large")}}, fmt.Sprintf("replay %d", large)},
		{Bulk{Kind: Discard}, fmt.Sprintf("discard %d, discard %d", small, large)},
	} {
		j := r.start(x.b)
		r.expand()
		if got := r.asked(j.ID); got != x.want {
			t.Errorf("%+v asks for %s, want %s", x.b, got, x.want)
		}
		r.exec(`UPDATE cdc_relay.request SET state = 'failed', done_at = now() WHERE job = $1`, j.ID)
	}
}

func TestBulkThatIsRefused(t *testing.T) {
	admin := New(nil, "s")
	for _, b := range []Bulk{
		{Kind: Replay, Filter: Filter{State: Discarded}},
		{Kind: Retry, Filter: Filter{State: Open}},
		{Kind: Replay, Rate: -1},
		{Kind: Replay, Rate: MaxRate + 1},
		{Kind: Purge, Filter: Filter{Class: "x"}},
	} {
		var bad *BadInput
		if _, err := admin.Start(t.Context(), b); !errors.As(err, &bad) {
			t.Errorf("%+v: %v", b, err)
		}
	}
}

// A bulk request means what was there when it was written, also when the leader comes to it only
// later: no row that was deferred, died or was closed since. A key is purged of what the tables had
// of it then, wherever that is by now.
func TestBulkMeansWhatWasThere(t *testing.T) {
	r := setup(t)
	for _, x := range []struct {
		name string
		b    Bulk
		want string // a row of each kind, by the names below
	}{
		{"replay", Bulk{Kind: Replay}, "open"},
		{"discard", Bulk{Kind: Discard}, "open"},
		{"redact", Bulk{Kind: Redact}, "open, closing, closed"},
		{"redact what is closed", Bulk{Kind: Redact, Filter: Filter{State: Discarded}}, "closed"},
		{"purge what is open", Bulk{Kind: Purge, Filter: Filter{State: Open}}, "open"},
		{"purge what is closed", Bulk{Kind: Purge}, "closed"},
		{"purge dead letters of a key and state", Bulk{Kind: Purge, Filter: Filter{Key: []byte("42"), State: Discarded}}, "closed"},
		{"purge a key everywhere", Bulk{Kind: Purge, Filter: Filter{Key: []byte("42")}}, "deferred, open, closing, closed, dying"},
		{"retry", Bulk{Kind: Retry}, "deferred"},
		{"dead_letter", Bulk{Kind: ToDeadLetter}, "deferred"},
	} {
		t.Run(x.name, func(t *testing.T) {
			inner := *r
			inner.t = t
			r := &inner
			rows := map[int64]string{
				r.put(sample{of: Deferred, backoff: true}): "deferred",
				r.put(sample{}): "open",
			}
			closing, closed := r.put(sample{}), r.put(sample{state: Discarded})
			dying := r.put(sample{of: Deferred, backoff: true})
			rows[closing], rows[closed], rows[dying] = "closing", "closed", "dying"
			j := r.start(x.b)
			r.exec(`UPDATE cdc_relay.dead_letter SET state = 'discarded', closed_at = now() WHERE n = $1`, closing)
			r.die(dying)
			later := time.Now().Add(time.Minute)
			rows[r.put(sample{at: later})] = "new dead letter"
			rows[r.put(sample{at: later, state: Discarded})] = "new closed dead letter"
			rows[r.put(sample{at: later, of: Deferred, backoff: true})] = "new row"
			r.expand()
			var got []string
			for _, asked := range strings.Split(r.asked(j.ID), ", ") {
				n, err := strconv.ParseInt(strings.TrimPrefix(asked, string(x.b.Kind)+" "), 10, 64)
				r.must(err)
				got = append(got, rows[n])
			}
			if got := strings.Join(got, ", "); got != x.want {
				t.Errorf("it asks for %s, want %s", got, x.want)
			}
			r.exec(`DELETE FROM cdc_relay.request`)
			r.exec(`DELETE FROM cdc_relay.retry`)
			r.exec(`DELETE FROM cdc_relay.dead_letter`)
		})
	}
}

// die makes a dead letter of a deferred row, as retry's Apply does.
func (r *rig) die(n int64) {
	r.t.Helper()
	const columns = `slot, system_id, incarnation, commit_lsn, idx, n, ordering_group, exchange_or_topic, dest, hash, keyed, ordered, attempts, bytes,
		deferred_at, first_failed_at, failed_at, class, reason, error, destination, route_name, routing_key,
		commit_time, event_time, id, aggregate, key, type, payload_kind, payload`
	r.exec(`WITH gone AS (DELETE FROM cdc_relay.retry WHERE n = $1 RETURNING *)
		INSERT INTO cdc_relay.dead_letter (`+columns+`) SELECT `+columns+` FROM gone`, n)
}

func TestCancel(t *testing.T) {
	r := setup(t)
	for range 5 {
		r.put(sample{})
	}
	j := r.start(Bulk{Kind: Discard, Rate: 1})
	l := r.leader()
	jobs, err := l.jobs(r.ctx)
	r.must(err)
	r.must(l.advance(r.ctx, &jobs[0], 3))
	r.carryOut(value[int64](r, `SELECT min(id) FROM cdc_relay.request`), RequestDone, "")
	for range 2 { // again: it stays as it is
		j, err = r.admin.Cancel(r.ctx, j.ID, Requester{Who: "eve", Why: "enough"})
		r.must(err)
		if j.State != JobCancelled || j.Asked != 3 || j.Done != 1 || j.Cancelled != 2 || j.EndedAt == nil {
			t.Errorf("the job is %+v", j)
		}
	}
	// A leader that has read the job before does not make more of it.
	jobs[0].place = place{incarnation: 1, commit: value[string](r, `SELECT commit_lsn::text FROM cdc_relay.bulk`), index: 0}
	r.must(l.advance(r.ctx, &jobs[0], 3))
	r.expand()
	if got := value[int](r, `SELECT count(*) FROM cdc_relay.request`); got != 3 {
		t.Errorf("there are %d requests", got)
	}
	if got := value[string](r, `SELECT who || ' ' || action || ' ' || why || ' ' || result FROM cdc_relay.audit`); got != fmt.Sprint("eve cancel enough job ", j.ID) {
		t.Errorf("the audit says %s", got)
	}
	var missing *NotFound
	if _, err := r.admin.Cancel(r.ctx, 99, by); !errors.As(err, &missing) || err.Error() != fmt.Sprintf("there is no job 99 of slot %q", r.slot) {
		t.Errorf("a job that is not there: %v", err)
	}
}

// A former leader makes no requests, closes no job, and gets the error.
func TestFencedLeader(t *testing.T) {
	r := setup(t)
	r.put(sample{})
	l := r.leader()
	asking := r.start(Bulk{Kind: Discard})
	jobs, err := l.jobs(r.ctx)
	r.must(err)
	r.exec(`UPDATE cdc_relay.slots SET epoch = epoch + 1`)
	before := r.contents()
	_, err = l.jobs(r.ctx)
	wantFenced(t, err)
	wantFenced(t, l.advance(r.ctx, &jobs[0], 10))
	jobs[0].state, jobs[0].waiting = "asked", 0
	wantFenced(t, l.advance(r.ctx, &jobs[0], 10))
	wantFenced(t, l.forgetOldJobs(r.ctx))
	wantFenced(t, l.Run(r.ctx))
	if r.contents() != before {
		t.Error("it has changed something")
	}
	r.expand() // by the new one
	if got := r.asked(asking.ID); got != "discard 1" {
		t.Errorf("the new leader asks for %s", got)
	}
}

func wantFenced(t *testing.T, err error) {
	t.Helper()
	var stop *event.Stop
	if !errors.As(err, &stop) || stop.Reason != "fenced" || stop.Code != event.ExitFailure {
		t.Errorf("got %v, want that it is fenced", err)
	}
}

// beside makes a statement while another session has made one of its own and not committed it yet,
// and commits that when the first waits for it, or is through.
func (r *rig) beside(other string, do func() error) error {
	r.t.Helper()
	tx, err := r.pool.Begin(r.ctx)
	r.must(err)
	_, err = tx.Exec(r.ctx, other)
	r.must(err)
	done := make(chan error, 1)
	go func() { done <- do() }()
	await.Until(r.t, "the statement to wait", func() bool {
		return len(done) > 0 || value[bool](r, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`)
	})
	r.must(tx.Commit(r.ctx))
	return <-done
}

// What became of a job's requests is counted until all of them have ended, and not again.
func TestEndedJobsAreCountedOnce(t *testing.T) {
	r := setup(t)
	r.put(sample{key: "1"})
	job := r.start(Bulk{Kind: Discard})
	done := func() string {
		t.Helper()
		jobs, err := r.admin.Jobs(r.ctx, 10)
		r.must(err)
		return fmt.Sprintf("%d %s %d/%d", len(jobs), jobs[0].State, jobs[0].Done, jobs[0].Asked)
	}
	r.expand()
	if got := done(); got != "1 running 0/1" {
		t.Errorf("at first: %s", got)
	}
	r.exec(`UPDATE cdc_relay.request SET state = 'done', done_at = now() WHERE job = $1`, job.ID)
	if got := done(); got != "1 running 1/1" {
		t.Errorf("with its request done: %s", got)
	}
	r.exec(`UPDATE cdc_relay.bulk SET state = 'cancelled', closed_at = now() WHERE job = $1`, job.ID)
	r.exec(`UPDATE cdc_relay.request SET state = 'waiting', done_at = NULL WHERE job = $1`, job.ID)
	if got := done(); got != "1 cancelled 0/1" {
		t.Errorf("cancelled while its request is carried out: %s", got)
	}
	r.exec(`UPDATE cdc_relay.request SET state = 'done', done_at = now() WHERE job = $1`, job.ID)
	for range 2 {
		if got := done(); got != "1 cancelled 1/1" {
			t.Errorf("at its end: %s", got)
		}
		r.exec(`DELETE FROM cdc_relay.request`) // which a count would see
	}
}
