//go:build testall

package fault

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// What a relay does with deferred rows and dead letters when it is asked to, or when their time has
// come.

// An event waits for its next attempt, a day long. Whatever made the broker refuse it has passed:
// the relay does not know that, until somebody says so. Then it goes, and what follows it.
func TestDeferredRetryEndsABackoff(t *testing.T) {
	stand.KindRabbitMQ.OnRouted(t, func(s *stand.Stand) {
		s.Retry = "backoff: 24h, max_backoff: 24h"
		if s.Kafka != nil {
			s.Broker.Spoil([]byte(spoilt))
		} else {
			// the type of the header's value, which is then none that there is
			s.Broker.Spoil([]byte(spoilt + "S"))
		}
		s.WatchFlush()
		r := s.Start()
		var bad, n string
		s.Query([]any{&bad}, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload, headers)
			VALUES (gen_random_uuid(), 'order', 'a', 'placed', '{"key": "a", "seq": 1}', jsonb_build_object($1::text, 'x')) RETURNING id::text`, spoilt)
		behind := event(s, "a", 2, load.Kind{})
		s.AwaitRows(checker.Deferred, 2)
		attempts := func() (count int) {
			s.Query([]any{&n, &count}, `SELECT n::text, attempts FROM cdc_relay.retry WHERE convert_from(id, 'UTF8') = $1`, bad)
			return count
		}
		tomorrow := func() { // and not, as the jitter may have it, soon
			s.SQL(`UPDATE cdc_relay.retry SET next_attempt = now() + interval '24 h' WHERE next_attempt < now() + interval '1 h'`)
		}
		tomorrow()
		before := attempts()
		said := operated(s, "deferred", "retry", n, "--wait", "30s", "--reason", "perhaps")
		if said.Stdout != "deferred row "+n+" is to be tried now\n" {
			s.T.Errorf("it says %s", said.Stdout)
		}
		s.Until("one attempt more", func() bool { return attempts() == before+1 })
		tomorrow()
		s.Broker.Spoil(nil)
		s.Broker.Reset()
		s.Until("the broker to be back", func() bool { return metric(s, r, "outbox_sink_up") == 1 })
		if s.RowsIn(checker.Deferred) != 2 {
			s.T.Error("it was tried before its time")
		}
		operated(s, "deferred", "retry", n, "--wait", "30s", "--reason", "fixed")
		s.Must(s.Consumer.WaitIDs(s.Context(), []string{bad, behind}))
		s.Check(s.Repeats(1))
		var audited int
		s.Query([]any{&audited}, `SELECT count(*) FROM cdc_relay.audit WHERE action = 'retry' AND why IN ('perhaps', 'fixed')`)
		if audited != 2 {
			s.T.Errorf("the audit tells of %d retries, want 2", audited)
		}
		stopped(s, r, 0)
	})
}

// A dead letter that is redacted has no contents any more, in no table. It stays open, holds its
// place, and cannot be replayed.
func TestRedact(t *testing.T) {
	stand.KindKafka.OnRouted(t, func(s *stand.Stand) {
		s.WatchFlush()
		r := s.Start()
		const secret = "born on a Sunday"
		kind := s.Poison(1, 0)
		var dead string
		s.Query([]any{&dead}, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload, headers, traceparent, routing_key)
			VALUES (gen_random_uuid(), 'order', 'a', 'placed', jsonb_build_object('key', 'a', 'seq', 1, 'who', $1::text, 'fill', repeat('x', $2)),
				jsonb_build_object('who', $1::text), $1, coalesce(nullif($3, ''), 'order.placed')) RETURNING id::text`, secret, kind.Payload, kind.RoutingKey)
		s.AwaitRows(checker.Open, 1)
		holds := func() (has bool) {
			s.Query([]any{&has}, `SELECT EXISTS (SELECT FROM cdc_relay.dead_letter d WHERE to_jsonb(d)::text LIKE '%' || encode(convert_to($1, 'UTF8'), 'hex') || '%')`, secret)
			return has
		}
		if !holds() {
			s.T.Fatal("the dead letter does not have what is to be removed")
		}
		n := number(s, dead)
		operated(s, "dead-letters", "redact", n, "--wait", "30s", "--reason", "article 17")
		if holds() {
			s.T.Error("the dead letter still has its contents")
		}
		var key, state, audited string
		var redacted bool
		s.Query([]any{&key, &state, &redacted}, `SELECT convert_from(key, 'UTF8'), state, payload IS NULL AND headers IS NULL AND columns IS NULL AND traceparent IS NULL AND redacted_at IS NOT NULL
			FROM cdc_relay.dead_letter WHERE n = $1::text::bigint`, n)
		s.Query([]any{&audited}, `SELECT result || ': ' || why FROM cdc_relay.audit WHERE action = 'redact'`)
		if key != "a" || state != "open" || !redacted || audited != "redacted: article 17" {
			s.T.Errorf("the dead letter of key %s is %s, redacted %t; the audit says %s", key, state, redacted, audited)
		}
		if again := s.Command(append([]string{"dead-letters", "replay", n, "--wait", "30s"}, s.Antidote()...)...); again.Code != 1 || !strings.Contains(again.Stderr, "(redact)") {
			s.T.Errorf("a replay ends with %d: %s%s", again.Code, again.Stdout, again.Stderr)
		}
		s.Must(s.Consumer.WaitIDs(s.Context(), []string{event(s, "a", 2, load.Kind{})}))
		s.CheckHistory(checker.History{MaxDead: 1})
		stopped(s, r, 0)
	})
}

// What was closed longer ago than dead_letters.keep is purged without being asked for; what is open
// never is, and is told to be old.
func TestClosedDeadLettersArePurgedByAge(t *testing.T) {
	stand.KindRabbitMQ.OnRouted(t, func(s *stand.Stand) {
		s.DeadLetters = "keep: 1h"
		s.WatchFlush()
		r := s.Start()
		var deadLetters []string
		for i := range 4 {
			deadLetters = append(deadLetters, event(s, fmt.Sprint("k", i), 1, s.Poison(1, 0)))
		}
		s.AwaitRows(checker.Open, len(deadLetters))
		replayed, discarded, fresh, open := deadLetters[0], deadLetters[1], deadLetters[2], deadLetters[3]
		operated(s, append([]string{"dead-letters", "replay", number(s, replayed), "--wait", "30s"}, s.Antidote()...)...)
		operated(s, "dead-letters", "discard", number(s, discarded), "--wait", "30s")
		operated(s, "dead-letters", "discard", number(s, fresh), "--wait", "30s")
		s.CheckHistory(checker.History{MaxDead: 1})
		stopped(s, r, 0)
		arrived, _ := s.Consumer.Count()
		s.SQL(`UPDATE cdc_relay.dead_letter SET died_at = now() - interval '3 hours'`)
		s.SQL(`UPDATE cdc_relay.dead_letter SET closed_at = now() - interval '2 hours' WHERE convert_from(id, 'UTF8') = ANY ($1)`, []string{replayed, discarded})
		r = s.Start()
		aged(s, r, "outbox_dead_letters_oldest_age_seconds", 3*time.Hour)
		s.Until("old dead letters to be emptied", func() (gone bool) {
			s.Query([]any{&gone}, `SELECT NOT EXISTS (SELECT FROM cdc_relay.dead_letter WHERE closed_at < now() - interval '1 hour'
				AND (state <> 'purged' OR num_nonnulls(id, key, aggregate, payload, headers, columns, route_name) > 0))`)
			return gone
		})
		var states string
		s.Query([]any{&states}, `SELECT string_agg(state, ' ' ORDER BY state) FROM cdc_relay.dead_letter WHERE convert_from(id, 'UTF8') = ANY ($1) AND payload IS NOT NULL`, []string{fresh, open})
		if states != "discarded open" {
			s.T.Errorf("of the other dead letters are left: %s", states)
		}
		counted(s, r, "outbox_dead_letters", 1)
		s.Must(s.Consumer.WaitIDs(s.Context(), []string{event(s, "k0", 2, load.Kind{})}))
		s.Must(s.Consumer.Drain(s.Context()))
		if now, _ := s.Consumer.Count(); now != arrived+1 {
			s.T.Errorf("%d events have arrived since, want one", now-arrived)
		}
		stopped(s, r, 0)
	})
}
