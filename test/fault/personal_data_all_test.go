//go:build testall

package fault

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/sentinel"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// What a row is about, its key, its payload and its headers, is nowhere but in the message and the
// tables: whatever fails. All tests of this package look for it (sentinel.Sentinel), in the log,
// the metrics, the status, the spans and what commands say; these have a key that is personal, too,
// and put it where it may leak most easily.

// person inserts a row all of which is personal.
func person(s *stand.Stand, n int, kind load.Kind) {
	s.T.Helper()
	insert(s, row{Kind: kind, key: fmt.Sprint(n, " ", sentinel.SentinelKey), seq: 1})
}

func TestNoPersonalData(t *testing.T) {
	stand.KindRabbitMQ.OnRouted(t, func(s *stand.Stand) {
		s.Retry = "backoff: 50ms, max_backoff: 200ms"
		s.SQL(`ALTER TABLE outbox DROP CONSTRAINT outbox_pkey, ALTER id DROP NOT NULL`)
		c := traced(s)
		r := s.Start()

		// No destination, too large, undecodable, and rows that PostgreSQL and a trigger refuse to
		// defer over what is in them.
		person(s, 1, s.ToLater(1, 0))
		s.AwaitRows(checker.Deferred, 1)
		person(s, 2, s.Poison(1, 0))
		s.SQL(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload, headers, destination)
			VALUES (NULL, 'order', $1, 'placed', jsonb_build_object('who', $2::text), jsonb_build_object('who', $3::text), $4)`,
			sentinel.SentinelKey, sentinel.SentinelPayload, sentinel.SentinelHeader, s.Usual())
		s.AwaitRows(checker.Open, 2)
		s.SQL(`ALTER TABLE cdc_relay.retry ADD CONSTRAINT numbers CHECK (convert_from(key, 'UTF8')::int > 0) NOT VALID`)
		s.SQL(`CREATE FUNCTION quotes() RETURNS trigger LANGUAGE plpgsql AS
			$$ BEGIN RAISE EXCEPTION 'bad %', convert_from(NEW.key, 'UTF8') USING ERRCODE = 'check_violation'; END $$`)
		s.SQL(`CREATE TRIGGER quotes BEFORE INSERT ON cdc_relay.retry FOR EACH ROW WHEN (convert_from(NEW.key, 'UTF8') LIKE '4 %') EXECUTE FUNCTION quotes()`)
		person(s, 3, s.ToLater(1, 0))
		person(s, 4, s.ToLater(1, 0))
		s.Until("rows to be refused", func() bool { return s.Metric(r, "cdc_relay_refused_rows") == 2 })
		s.Must(r.WaitLog(s.Context(), "invalid input syntax for type integer: … (SQLSTATE 22P02)"))
		s.Must(r.WaitLog(s.Context(), "… (SQLSTATE 23514), function "))
		operated(s, "status", "--admin", r.AdminSocket())
		status(s, r)

		// A broken connection, and what operators look at; only those who ask for contents are
		// shown them.
		s.Broker.Reset()
		deadLetter := ""
		s.Query([]any{&deadLetter}, `SELECT max(n)::text FROM cdc_relay.dead_letter`)
		operated(s, "check")
		if said := operated(s, "dead-letters", "show", deadLetter, "--json"); !strings.Contains(said.Stdout, sentinel.Sentinel) {
			s.T.Errorf("what an operator asks for is not shown: %s", said.Stdout)
		}
		if said := s.Command("dead-letters", "replay", deadLetter, "--wait", "10m"); said.Code == 0 {
			s.T.Errorf("the replay of what is no event ends with %d: %s", said.Code, said.Stdout)
		}

		// The ends: a table that does not fit any more, and a slot that was dropped.
		s.SQL(`ALTER TABLE cdc_relay.retry DROP CONSTRAINT numbers`)
		s.SQL(`DROP FUNCTION quotes() CASCADE`)
		s.Until("nothing to be refused", func() bool { return s.Metric(r, "cdc_relay_refused_rows") == 0 })
		s.SQL(`ALTER TABLE outbox RENAME COLUMN payload TO body`)
		s.SQL(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, body) VALUES (gen_random_uuid(), 'order', $1, 'placed', jsonb_build_object('who', $2::text))`,
			sentinel.SentinelKey, sentinel.SentinelPayload)
		s.Exits(r, 4, "public.outbox")
		s.Free()
		s.SQL(`ALTER TABLE outbox RENAME COLUMN body TO payload`)
		s.SQL(`SELECT pg_drop_replication_slot($1)`, s.Slot)
		last := s.Launch()
		s.Exits(last, 3, s.Slot)

		dead, err := c.WaitSpan(s.Context(), func(sp servers.Span) bool { return sp.Attributes["outbox.outcome"] == "dead_letter" })
		s.Must(err)
		for _, sp := range append(c.Spans(), dead) {
			if err := sentinel.Leak("a span", sp.Text); err != nil {
				s.T.Error(err)
			}
		}
	})
}

// A topic that is made from the ordering key is shown as its template, in the log, the status,
// spans and by check. Its keys are no Sentinel: the names of topics are there for all tests, whose
// relays may tell them.
func TestNoPersonalDataInTopics(t *testing.T) {
	stand.Parallel(t)
	const person = "s0mebody"
	keys := []string{"1-" + person, "2-" + person}
	s := stand.New(t, stand.SharedKafkaWith(t, stand.Topics{None: true, More: keys}))
	s.Kafka.Template = s.Kafka.Topic("{key}")
	c := traced(s)
	r := s.Start()
	for _, key := range keys {
		s.SQL(stand.Insert("outbox", "order", key))
	}
	status := ""
	s.Until("the topics to be paused", func() bool {
		status = statusText(s, r)
		return strings.Contains(status, s.Kafka.Template)
	})
	s.Must(r.WaitLog(s.Context(), s.Kafka.Template))
	s.AwaitRows(checker.Deferred, len(keys))
	for _, key := range keys {
		s.Must(s.Kafka.Cluster.CreateTopic(s.Context(), s.Kafka.Topic(key), 1, 1, nil))
	}
	s.AwaitEmpty()
	span, err := c.WaitSpan(s.Context(), func(servers.Span) bool { return true })
	s.Must(err)
	if got := span.Attributes["messaging.destination.name"]; got != s.Kafka.Template {
		t.Errorf("the span has the topic %q", got)
	}
	_, check, err := r.Get(s.Context(), "/api/v1/check")
	s.Must(err)
	for where, said := range map[string]string{"log": r.Log(), "status": status, "check": check} {
		if !strings.Contains(said, s.Kafka.Template) || strings.Contains(said, person) {
			t.Errorf("the %s has the topic otherwise than as its template: %s", where, said)
		}
	}
	stopped(s, r, 0)
}

func statusText(s *stand.Stand, r *runner.Relay) string {
	s.T.Helper()
	_, body, err := r.Get(s.Context(), "/api/v1/status")
	s.Must(err)
	return body
}
