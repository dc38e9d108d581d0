//go:build testall

package alerts

import (
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/common/model"

	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
)

// This file asks Prometheus itself when an alert fired. Its times are those of its evaluations,
// however late the machine was with them.

// inTime fails for an alert that fired before it had been so for the stated time, or not at the
// first evaluation after that.
func (s *scene) inTime(p *servers.Prometheus, alert, job string, stated time.Duration) {
	s.t.Helper()
	firing := s.samples(p, "ALERTS", alert, job, `alertstate="firing"`)[0].Timestamp
	// One at each evaluation, pending or firing; the value is since when. It may have been pending
	// before, and not for long enough.
	active := s.samples(p, "ALERTS_FOR_STATE", alert, job, "")
	at := slices.IndexFunc(active, func(x model.SamplePair) bool { return x.Timestamp == firing })
	if at < 0 {
		s.t.Errorf("%s of %s fires at %v and is active at %v", alert, job, firing, active)
		return
	}
	first := slices.IndexFunc(active, func(x model.SamplePair) bool { return x.Value == active[at].Value })
	since := active[first].Timestamp
	if firing.Sub(since) < stated {
		s.t.Errorf("%s of %s fired after %v, before the stated %v", alert, job, firing.Sub(since), stated)
	}
	if at > first && active[at-1].Timestamp.Sub(since) >= stated {
		s.t.Errorf("%s of %s was still pending after %v, the stated time is %v", alert, job, active[at-1].Timestamp.Sub(since), stated)
	}
	s.t.Logf("%s: %s fired after %v and %d evaluations; stated: %v", job, alert, firing.Sub(since), at-first, stated)
}

// samples are those of the one series of an alert, as they are stored.
func (s *scene) samples(p *servers.Prometheus, metric, alert, job, more string) []model.SamplePair {
	s.t.Helper()
	value, err := p.Query(s.t.Context(), selector(metric, alert, job, more)+"[1h]", time.Now())
	must(s.t, err)
	all, ok := value.(model.Matrix)
	if !ok || len(all) != 1 || len(all[0].Values) == 0 {
		s.t.Fatalf("%s of %s for %s: %v; want one series", metric, alert, job, value)
	}
	return all[0].Values
}

func selector(metric, alert, job, more string) string {
	return fmt.Sprintf("%s{alertname=%q, job=%q, %s}", metric, alert, job, more)
}
