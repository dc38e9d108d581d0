//go:build testall

package dashboards

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/common/model"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
)

const (
	// allowed is how far a panel may be from what is so.
	allowed = 0.02
	// patience is how many scrapes a panel may need to show it.
	patience = 120
)

// fact is a number of a panel beside the one that database, broker or checker know.
type fact struct {
	panel, query, series string
	want                 func() float64
}

func TestPanels(t *testing.T) {
	all := boards(t)
	s := setStage(t)
	s.play(func() {
		// All are there before there was an event: no counter begins only with its first increment,
		// which rate() and increase() would not see.
		s.filled(all, false, later...)
	}, func() {
		s.agree(all, []fact{
			{"Deferred", "A", "", func() float64 { return s.number(`SELECT count(*) FROM cdc_relay.retry`) }},
			// the routing keys of the usual rows, and the mirror's exchange
			{"Paused", "A", "", func() float64 { return 4 }},
			{"Refused rows", "A", "", func() float64 { return 0 }},
		})
	})
	v := s.CheckHistory(checker.History{MaxDuplicates: -1, MaxDead: -1})
	// The mirror tries a missing exchange again after a minute at the latest.
	s.Until("the dead letters to be mirrored", func() bool { return s.queued("dead") >= float64(len(v.Dead)) })
	s.idle()

	dead := float64(len(v.Dead))
	published := float64(v.Committed) - dead
	is := func(n float64) func() float64 { return func() float64 { return n } }
	slots := func(expr string) func() float64 {
		return func() float64 { return s.number(`SELECT ` + expr + ` FROM pg_replication_slots`) }
	}
	const over = "Events of this time range"
	s.agree(all, []fact{
		{over, "A", "published", is(published)},
		{over, "A", "dlq", is(dead)},
		{"Payload of this time range", "A", "", func() float64 {
			return s.number(`SELECT sum(octet_length(payload::text)) FROM outbox WHERE id::text NOT IN (SELECT convert_from(id, 'UTF8') FROM cdc_relay.dead_letter)`)
		}},
		{"Deferred", "A", "", is(0)},
		{"Dead letters", "A", "", is(dead)},
		{"Died and mirrored in this time range", "A", "", func() float64 { return s.deadLetters(`true`) }},
		{"Died and mirrored in this time range", "B", "", func() float64 { return s.queued("dead") }},
		{"Retries of this time range", "B", "", func() float64 { return s.deadLetters(`class = 'transient'`) }},
		{"Rejections of this time range", "A", "permanent invalid", func() float64 { return s.deadLetters(`reason = 'invalid'`) }},
		{"Rejections of this time range", "A", "transient broker_exception", func() float64 {
			return s.number(`SELECT sum(attempts) FROM cdc_relay.dead_letter WHERE class = 'transient'`)
		}},
		{"Rejections of this time range", "A", "destination unroutable", func() float64 { return s.brokerCounts("messages_unroutable_returned_total") }},
		{"Confirms of this time range", "A", "returned", func() float64 { return s.brokerCounts("messages_unroutable_returned_total") }},
		{"Confirms of this time range", "A", "ack", is(published + dead)},
		{"Slots", "A", "", slots(`count(*)`)},
		{"Read by nobody", "A", "", slots(`count(*) FILTER (WHERE NOT active)`)},
		{"Furthest behind, WAL", "A", "", slots(`max(pg_current_wal_lsn() - confirmed_flush_lsn)`)},
		{"Most WAL kept", "A", "", slots(`max(pg_current_wal_lsn() - restart_lsn)`)},
		{"Least room left", "A", "", slots(`min(safe_wal_size)`)},
		{"Spilled in this time range", "A", s.Slot, func() float64 {
			return s.number(`SELECT spill_bytes FROM pg_stat_replication_slots WHERE slot_name = $1`, s.Slot)
		}},
	})
	s.end(all)
	for _, byName := range []bool{false, true} {
		s.filled(all, byName)
	}
}

// later are the panels that have nothing to say before the first event, or before a relay has
// stopped.
var later = []string{"p99, commit to confirm", "Confirmed within 1 s", "Latency, commit to confirm", "Last confirm", "Relays that have stopped"}

// filled waits until every query brings something, but those of these panels. (A scrape for which a
// busy machine takes more than a second counts as none, and what it was to tell is not there until
// the next one.)
func (s *stage) filled(all []*board, byName bool, but ...string) {
	s.T.Helper()
	var empty []error
	for range patience {
		empty = nil
		s.answers(all, byName, func(p *panel, _ target, err error) {
			if !slices.Contains(but, p.Title) {
				empty = append(empty, err)
			}
		})
		if len(empty) == 0 {
			return
		}
		s.scraped()
	}
	s.T.Fatal(errors.Join(empty...))
}

// idle returns when nothing changes any more, and Prometheus knows.
func (s *stage) idle() {
	s.T.Helper()
	s.Until("nothing to be in flight", func() bool { return s.Metric(s.relay, "outbox_backlog") == 0 })
	for range 3 {
		s.scraped()
	}
}

// now is the time of the last scrape of the relay that leads: up to there increase() knows, beyond
// it guesses. After a scrape without an answer there is none.
func (s *stage) now() (at time.Time) {
	s.T.Helper()
	s.Until("the relay to be scraped", func() bool {
		value, err := s.metrics.Query(s.Context(), fmt.Sprintf(`max(timestamp(outbox_leader{instance=%q}))`, s.relays[0]), time.Now())
		s.Must(err)
		vector, ok := value.(model.Vector)
		if !ok || len(vector) != 1 {
			return false
		}
		at = time.UnixMilli(int64(math.Round(float64(vector[0].Value) * 1000)))
		return true
	})
	return at
}

// agree waits until each panel shows what is so, and tells of those that do not. Some counts are
// taken every 10 s.
func (s *stage) agree(all []*board, facts []fact) {
	s.T.Helper()
	// and has counted all: else the panels are not wrong, but asked about the wrong relay
	s.Leads(s.relay)
	for waited := 0; len(facts) > 0; waited++ {
		facts = slices.DeleteFunc(facts, func(f fact) bool {
			v, err := s.choose(all[0], false, s.start, s.now())
			s.Must(err)
			v.chosen["slot"] = ".+"
			v.chosen["instance"] = s.asked
			want := f.want()
			got, err := s.shown(all, f.panel, f.query, f.series, v)
			said := fmt.Sprintf("panel %q, query %s %s: %g, and it is %g (%v)", f.panel, f.query, f.series, got, want, err)
			ok := err == nil && math.Abs(got-want) <= allowed*math.Abs(want)
			switch {
			case ok:
				s.T.Log(said)
			case waited == patience:
				s.T.Error(said)
				return true
			}
			return ok
		})
		s.scraped()
	}
}

// answers runs every query of every panel, and reports those that fail.
func (s *stage) answers(all []*board, byName bool, fault func(*panel, target, error)) {
	s.T.Helper()
	for _, b := range all {
		v, err := s.choose(b, byName, s.start, s.now())
		if err != nil {
			fault(&panel{}, target{}, err)
			continue
		}
		for _, p := range b.Panels {
			for _, q := range p.Targets {
				if _, err := s.ask(q, v); err != nil {
					fault(p, q, fmt.Errorf("%s, panel %q: %w", b.Title, p.Title, err))
				}
			}
		}
	}
}
