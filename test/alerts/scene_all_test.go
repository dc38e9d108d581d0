//go:build testall

package alerts

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/rabbitserver"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// The pipelines, by what is to happen to them. Each is a job of its own.
const (
	// a leader under load and a standby; the others are one relay that has nothing to do
	well       = "well"
	noExchange = "no-exchange"
	poisoned   = "poisoned"
	killed     = "killed"
	cut        = "cut-from-postgres"
	unfit      = "publication-changed"
)

// scene is pipelines on one PostgreSQL and one RabbitMQ of their own.
type scene struct {
	t         *testing.T
	broker    *rabbitserver.Rabbit
	pipelines map[string]*pipeline
}

type pipeline struct {
	*stand.Stand
	relays []*runner.Relay
}

// fault is what happens to a pipeline, and the alerts that must tell of it: each for how long it
// has to be so.
type fault struct {
	job   string
	do    func(*scene, *pipeline)
	fires map[string]time.Duration
	may   []string // fire as well
}

var faults = []fault{
	{noExchange, func(_ *scene, p *pipeline) {
		p.SQL(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, destination) VALUES (gen_random_uuid(), 'order', 'k', 'placed', $1)`, p.Later())
	}, map[string]time.Duration{"CdcRelayDestinationPaused": time.Minute}, nil},
	{poisoned, func(_ *scene, p *pipeline) {
		p.SQL(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, routing_key) VALUES (gen_random_uuid(), 'order', 'k', 'placed', $1)`,
			p.Poison(0, 0).RoutingKey)
		// that of the copies
	}, map[string]time.Duration{"CdcRelayDeadLetters": time.Minute, "CdcRelayMirrorFails": 0}, []string{"CdcRelayDestinationPaused"}},
	{killed, func(s *scene, p *pipeline) {
		must(s.t, p.relays[0].Kill())
	}, map[string]time.Duration{"CdcRelayGone": 2 * time.Minute}, nil},
	{cut, func(_ *scene, p *pipeline) {
		p.Postgres.Cut()
	}, map[string]time.Duration{"CdcRelayNoLeader": time.Minute, "CdcRelayStreamDown": time.Minute}, nil},
	{unfit, func(_ *scene, p *pipeline) {
		p.SQL(fmt.Sprintf(`ALTER PUBLICATION %s DROP TABLE outbox`, p.Slot))
	}, map[string]time.Duration{"CdcRelayNoLeader": time.Minute, "CdcRelayStopped": 0}, nil},
}

// brokerStops: what is written then cannot go, and keeps WAL until the slot is near its limit.
var brokerStops = fault{well, func(s *scene, p *pipeline) {
	must(s.t, s.broker.Stop(s.t.Context()))
	p.SQL(stand.Insert("outbox", "order", "last"))
	s.until("WAL near the limit", func() bool {
		p.SQL(`SELECT pg_logical_emit_message(false, 'filler', repeat('x', 1000000)) FROM generate_series(1, 4)`)
		var share float64
		p.Query([]any{&share}, `SELECT kept / (kept + safe_wal_size) FROM pg_replication_slots, LATERAL (SELECT (pg_current_wal_lsn() - restart_lsn)::float8 AS kept) k
			WHERE slot_name = $1`, p.Slot)
		return share > 0.75
	})
}, map[string]time.Duration{"CdcRelayBrokerDown": time.Minute, "CdcRelaySlotNearLimit": time.Minute}, nil}

// unread is what the same WAL does to a slot that nobody reads since its relay has stopped: that
// relay tells of it.
var unread = fault{unfit, nil, map[string]time.Duration{"CdcRelaySlotNearLimit": time.Minute}, nil}

func newScene(t *testing.T) *scene {
	t.Helper()
	ctx := t.Context()
	pg, err := pgserver.Start(ctx, pgserver.Options{NoFsync: true, Settings: map[string]string{"max_slot_wal_keep_size": "128MB"}})
	must(t, err)
	t.Cleanup(func() { must(t, pg.Close()) })
	broker, err := rabbitserver.Start(ctx, rabbitserver.Options{})
	must(t, err)
	t.Cleanup(func() { must(t, broker.Close()) })
	s := &scene{t: t, broker: broker, pipelines: map[string]*pipeline{}}
	for _, job := range []string{well, noExchange, poisoned, killed, cut, unfit} {
		p := &pipeline{Stand: stand.On(t, pg, stand.OnRabbitMQ(broker))}
		switch job {
		case poisoned:
			p.DeadLetters = "mirror: {exchange: nowhere}"
			p.Route()
		case noExchange:
			p.Route()
		}
		s.pipelines[job] = p
	}
	// All databases are there: making them writes more WAL than a slot may keep.
	binary := runner.Build(t)
	for job, p := range s.pipelines {
		p.relays = []*runner.Relay{runner.Start(t, binary, p.Config(), "--hold-on-fatal")}
		p.Leads(p.relays[0])
		if job == well {
			p.relays = append(p.relays, p.Start())
		}
	}
	return s
}

// jobs are what Prometheus is to scrape.
func (s *scene) jobs() map[string][]string {
	jobs := map[string][]string{}
	for job, p := range s.pipelines {
		for _, r := range p.relays {
			jobs[job] = append(jobs[job], r.Admin())
		}
	}
	return jobs
}

func (s *scene) relays() (n int) {
	for _, p := range s.pipelines {
		n += len(p.relays)
	}
	return n
}

func (s *scene) until(what string, ok func() bool) {
	s.t.Helper()
	s.pipelines[well].Until(what, ok)
}

// play makes a fault.
func (s *scene) play(f fault) {
	s.t.Helper()
	f.do(s, s.pipelines[f.job])
}

// awaitFiring waits until each alert of a fault fires, and fails for one that did not do so in its
// time.
func (s *scene) awaitFiring(p *servers.Prometheus, f fault) {
	s.t.Helper()
	for want, stated := range f.fires {
		s.until(want+" to fire for "+f.job, func() bool {
			return len(vector(s.t, p, "last_over_time("+selector("ALERTS", want, f.job, `alertstate="firing"`)+"[1h])")) > 0
		})
		s.inTime(p, want, f.job, stated/faster)
	}
}

// onlyExpected fails for an alert that has fired and that no fault explains.
func (s *scene) onlyExpected(p *servers.Prometheus, faults []fault) {
	s.t.Helper()
	unexplained := fired(s.t, p)
	for _, f := range faults {
		unexplained[f.job] = slices.DeleteFunc(unexplained[f.job], func(alert string) bool {
			_, fires := f.fires[alert]
			return fires || slices.Contains(f.may, alert)
		})
	}
	for job, alerts := range unexplained {
		if len(alerts) > 0 {
			s.t.Errorf("%s: %s fired for nothing", job, strings.Join(alerts, ", "))
		}
	}
}
