//go:build testall

package dlq

import (
	"context"
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
