//go:build testall

package dashboards

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// TestOnKafka runs every query on a Prometheus that has scraped a relay whose sink is Kafka: none
// is an error, and only that about relays that have stopped is empty. What RabbitMQ alone has is 0
// there, and not away.
func TestOnKafka(t *testing.T) {
	pg, err := pgserver.Start(t.Context(), pgserver.Options{NoFsync: true, Settings: map[string]string{"max_slot_wal_keep_size": "256MB"}})
	must(t, err)
	t.Cleanup(func() { must(t, pg.Close()) })
	s := &stage{Stand: stand.On(t, pg, stand.SharedKafka(t)), start: time.Now()}
	s.relay = s.Start()
	s.relays = []string{address(s.relay)}
	s.metrics, err = servers.StartPrometheus(t.Context(), servers.PrometheusOptions{Interval: interval, Jobs: s.jobs()})
	must(t, err)
	t.Cleanup(func() { must(t, s.metrics.Close()) })
	s.scraped()
	stop := s.Load(50)
	s.More(100)

	all := boards(t)
	var empty []string
	for range patience {
		empty = nil
		s.answers(all, false, func(p *panel, q target, err error) {
			if p.Title != "" && !errors.Is(err, errEmpty) {
				t.Fatal(err)
			}
			empty = append(empty, p.Title+" "+q.RefID) // or a variable that offers nothing yet
		})
		if slices.Equal(empty, []string{"Relays that have stopped A"}) {
			break
		}
		s.scraped()
	}
	if len(empty) != 1 {
		t.Fatalf("empty are %q", empty)
	}
	stop()
	s.scraped()
	v, err := s.choose(all[0], false, s.start, s.now())
	must(t, err)
	v.chosen["slot"] = ".+"
	if n, err := s.shown(all, "Confirms of this time range", "A", "ack", v); err != nil || n < 50 {
		t.Errorf("%g events were confirmed, and a hundred have arrived: %v", n, err)
	}
}
