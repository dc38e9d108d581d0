//go:build nightly

// The healthy hour: no alert fires.

package soak

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/common/model"

	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// TestHealthyHour has a Prometheus with the shipped alerts, as they are, watch a leader under load,
// its standby and a clean takeover now and then, for as long as faults are played by TestSoak: none
// may fire. In CI that is half a minute, in which next to none of them could: it shows there that
// this test works, and `make soak` gives it its hour.
func TestHealthyHour(t *testing.T) {
	s := &soak{Stand: stand.New(t, stand.SharedRabbitMQ(t))}
	s.relays = [2]*runner.Relay{s.Start(), s.Start()}
	stop := s.Load(200)
	rules, err := filepath.Abs("../../deploy/prometheus/cdc-relay.rules.yml")
	s.Must(err)
	p, err := servers.StartPrometheus(s.Context(), servers.PrometheusOptions{Interval: 5 * time.Second, RuleFiles: []string{rules}, Jobs: s.jobs()})
	s.Must(err)
	defer func() { s.Must(p.Close()) }()

	const rounds = 4
	for i := range rounds {
		s.pass(*duration / rounds)
		s.Until("events to flow", s.flows())
		// 5: the stop was cut, on a machine that does much else
		if code := s.relays[i%2].Stop(t); code != 0 && code != 5 {
			t.Errorf("a stop exits %d", code)
		}
		s.relays[i%2] = s.Start()
		s.Must(p.Scrape(s.Context(), s.jobs()))
	}
	s.Must(p.WaitScraped(s.Context()))
	for _, alert := range s.query(p, `group by (alertname) (last_over_time(ALERTS{alertstate="firing"}[1d]))`) {
		t.Errorf("%s fired, and nothing was wrong", alert.Metric["alertname"])
	}
	if seen := s.query(p, `sum(sum_over_time(cdc_relay_leader[1d])) > 0`); len(seen) == 0 {
		t.Error("Prometheus has seen no leader: this shows nothing")
	}
	stop()
	s.Check(-1)
}

// jobs are the relays as Prometheus is to scrape them.
func (s *soak) jobs() map[string][]string {
	return map[string][]string{"cdc-relay": {s.relays[0].Admin(), s.relays[1].Admin()}}
}

func (s *soak) query(p *servers.Prometheus, promql string) model.Vector {
	s.T.Helper()
	value, err := p.Query(s.Context(), promql, time.Now())
	s.Must(err)
	v, ok := value.(model.Vector)
	if !ok {
		s.T.Fatalf("%s is a %T", promql, value)
	}
	return v
}
