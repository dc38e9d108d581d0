// What observation costs: the relay's processor time per event with all that operators
// switch on, against without.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
)

// scrapeEvery is how often the metrics are fetched, with their exemplars.
const scrapeEvery = time.Second

// watched has runs of the relay without and with everything take turns: metrics of all slots that
// are scraped every second, and one event of a hundred traced. run is one of them, with nil for
// without.
func (s *stand) watched(ctx context.Context, name string, pairs int, run func(context.Context, *watcher) (float64, error), show func(float64) string) (_ result, err error) {
	collector, err := servers.LaunchCollector()
	if err != nil {
		return result{}, err
	}
	defer func() {
		if closed := collector.Close(); err == nil {
			err = closed
		}
	}()
	p, err := s.turns(ctx, pairs, func(ctx context.Context) (float64, error) { return run(ctx, nil) }, func(ctx context.Context) (float64, error) {
		w := &watcher{env: []string{
			"OTEL_EXPORTER_OTLP_ENDPOINT=" + collector.URL(), "OTEL_TRACES_SAMPLER=parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG=0.01",
			"CDC_RELAY_ADMIN__SLOT_METRICS=all",
		}}
		defer w.all.Wait()
		return run(ctx, w)
	}, show)
	if err != nil {
		return result{}, err
	}
	if len(collector.Spans()) == 0 {
		return result{}, fmt.Errorf("no span has come: nothing was traced")
	}
	r := p.result(name, "×", show)
	r.must, r.aim = 1.05, 1.02
	return r, nil
}

// watchedName is the row's on a load of which span counts.
func watchedName(span, load string) string {
	return "CPU of the relay per event, user and system, " + span + ", metrics of all slots scraped every second and 1 % of the events traced ÷ without: " + load
}

// watcher scrapes a relay and collects its spans.
type watcher struct {
	env []string
	all sync.WaitGroup
}

// look scrapes the relay until it has ended.
func (w *watcher) look(relay *runner.Relay) {
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
	l := runSpec{keys: keyset{count: 1000}, events: s.size.events, rowsPerTx: 100, ordering: "pipelined", queue: "classic", connections: 2}
	name := watchedName("start included", "RabbitMQ, 1,000 even keys, `pipelined`, 100-row transactions")
	r, err := s.watched(ctx, name, s.size.pairs, func(ctx context.Context, w *watcher) (float64, error) {
		s.watch = w
		defer func() { s.watch = nil }()
		r, err := s.relayBacklog(ctx, l)
		return float64(r.cost.publisher) / 1e3, err
	}, microseconds)
	return []result{r}, err
}

// watchedKafka measures it on Kafka, on live rows: so many a second, in transactions of rowsPerTx.
// A backlog shows nothing there: an event of it costs less than a microsecond, and up to half of
// that again by how the reader's coalesced reads happen to fall. Live rows cost more or less, too,
// by how busy the machine is; so what is compared is a relay with the one next to it.
func (s *kafkaStand) watchedKafka(ctx context.Context, rowsPerTx, rate, pairs int) (_ []result, err error) {
	if err := s.warmUp(ctx); err != nil {
		return nil, err
	}
	a := &abreast{kafkaStand: s, rate: rate, l: runSpec{
		keys: keyset{count: 1000}, ordering: "key", events: int(s.size.steady.Seconds()) * rate, rowsPerTx: rowsPerTx, payload: 200, partitions: 12,
	}}
	if err := a.open(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, a.close(ctx)) }()
	var micros [2][]float64 // of the runs with
	var rates []float64
	name := watchedName("while it streams", fmt.Sprintf("Kafka, live %s/s, %s, ÷ that of a relay beside it that is never looked at", thousands(rate), a.l))
	r, err := s.watched(ctx, name, pairs, func(ctx context.Context, w *watcher) (float64, error) {
		found, err := a.run(ctx, w)
		for i, f := range found {
			if w != nil {
				micros[i] = append(micros[i], float64(f.cost.publisher)/1e3)
			}
			rates = append(rates, f.rate)
		}
		return float64(found[1].cost.publisher) / float64(found[0].cost.publisher), err
	}, quotient)
	r.void = r.void || median(rates) < 0.95*float64(rate) // another load than the row says
	r.note = fmt.Sprintf("%s beside %s; committed at %s", microseconds(median(micros[1])), microseconds(median(micros[0])), perSecond(median(rates)))
	return []result{r}, err
}
