// What it costs to be looked at: the relay's processor time per event with all that operators switch on, against without.
package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv"
)

// scrapeEvery is how often the metrics are fetched, with their exemplars.
const scrapeEvery = time.Second

// watched has runs of the relay without and with everything take turns: metrics of all slots that are scraped every second, and
// one event of a hundred traced.
func (s *stand) watched(ctx context.Context, name string, pairs int, run func(context.Context) (ran, error)) (_ []result, err error) {
	collector, err := devenv.LaunchCollector()
	if err != nil {
		return nil, err
	}
	defer func() {
		if closed := collector.Close(); err == nil {
			err = closed
		}
	}()
	micros := func(ctx context.Context) (float64, error) {
		r, err := run(ctx)
		return float64(r.cost.publisher) / 1e3, err
	}
	p, err := s.turns(ctx, pairs, micros, func(ctx context.Context) (float64, error) {
		s.watch = &watcher{env: []string{
			"OTEL_EXPORTER_OTLP_ENDPOINT=" + collector.URL(), "OTEL_TRACES_SAMPLER=parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG=0.01",
			"CDC_RELAY_ADMIN__SLOT_METRICS=all",
		}}
		defer func() {
			s.watch.all.Wait()
			s.watch = nil
		}()
		return micros(ctx)
	}, microseconds)
	if err != nil {
		return nil, err
	}
	if len(collector.Spans()) == 0 {
		return nil, fmt.Errorf("no span has come: nothing was traced")
	}
	r := p.result("CPU of the relay per event, user and system, start included, metrics of all slots scraped every second and 1 % of the events traced ÷ without: "+name, "×", microseconds)
	r.must, r.aim = 1.05, 1.02
	return []result{r}, nil
}

// watcher is what looks at a relay.
type watcher struct {
	env []string
	all sync.WaitGroup
}

// look scrapes the relay until it has ended.
func (w *watcher) look(relay *devenv.Relay) {
	client := &http.Client{Timeout: 5 * time.Second}
	defer client.CloseIdleConnections()
	tick := time.NewTicker(scrapeEvery)
	defer tick.Stop()
	for range tick.C {
		if !relay.Running() {
			return
		}
		req, err := http.NewRequest(http.MethodGet, relay.Admin()+"/metrics", nil)
		if err != nil {
			return
		}
		req.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
		if resp, err := client.Do(req); err == nil { // else it has just ended, or just begun
			_, _ = io.Copy(io.Discard, resp.Body) //nolint:errcheck // likewise
			resp.Body.Close()
		}
	}
}

// watchedRabbit measures it on RabbitMQ.
func (s *rabbitStand) watchedRabbit(ctx context.Context) ([]result, error) {
	l := load{keys: keyset{count: 1000}, events: s.size.events, rowsPerTx: 100, ordering: "pipelined", queue: "classic", connections: 2}
	return s.watched(ctx, "RabbitMQ, 1,000 even keys, `pipelined`, 100-row transactions", s.size.pairs, func(ctx context.Context) (ran, error) {
		return s.relayBacklog(ctx, l)
	})
}

// watchedKafka measures it on Kafka.
func (s *kafkaStand) watchedKafka(ctx context.Context) ([]result, error) {
	if err := s.warmUp(ctx); err != nil {
		return nil, err
	}
	// A run is one of seconds, and there are more of them than elsewhere: an event costs less than a microsecond here, and up to
	// half of that again by how the reader's gulps happen to fall.
	d := &drain{kafkaStand: s, l: s.sized(load{rowsPerTx: 100, payload: 200, partitions: 12}, s.size.profile)}
	return s.watched(ctx, "Kafka, "+d.l.String(), s.size.tails, func(ctx context.Context) (ran, error) {
		if err := d.fill(ctx); err != nil {
			return ran{}, err
		}
		return d.relay(ctx)
	})
}
