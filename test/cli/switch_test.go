package cli

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
)

// switching is a rig whose relays are started with one broker and then with the other, while events
// are deferred. Its events are numbered within their key.
type switching struct {
	*brokered
	kafka *kafkaserver.Kafka
	topic string
	next  map[string]int
}

func newSwitching(t *testing.T) *switching {
	t.Helper()
	s := &switching{brokered: withBroker(t), kafka: servers.SharedKafka(t), next: map[string]int{}}
	s.topic = s.kafka.Topic(t, 3)
	s.ok("init")
	return s
}

// rabbit and toKafka choose the broker of the next relay, and where it sends events.
func (s *switching) rabbit(exchange string) {
	s.sink = fmt.Sprintf("  rabbitmq: {url: '%s', exchange: '%s'}", s.vhost, exchange)
}

func (s *switching) toKafka(topic string) {
	s.sink = fmt.Sprintf("  kafka: {brokers: ['%s'], topic: '%s'}", strings.Join(s.kafka.Brokers(), "','"), topic)
}

// write commits the next n events of each key.
func (s *switching) write(n int, keys ...string) {
	s.t.Helper()
	for range n {
		for _, key := range keys {
			s.next[key]++
			s.exec(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)
				VALUES (gen_random_uuid(), 'order', $1, 'placed', jsonb_build_object('key', $1::text, 'seq', $2::int))`, key, s.next[key])
		}
	}
}

// deferred waits until so many events are deferred.
func (s *switching) deferred(n int) {
	s.t.Helper()
	becomes(s.rig, n, `SELECT count(*)::int FROM cdc_relay.retry WHERE slot = $1`, s.slot)
}

// died makes the last deferred event of a key a dead letter, and returns its number.
func (s *switching) died(key string) (n string) {
	s.t.Helper()
	n = ask[string](s.rig, `SELECT max(n)::text FROM cdc_relay.retry WHERE slot = $1 AND key = $2::text::bytea`, s.slot, key)
	s.ok("deferred", "dead-letter", n, "--reason", "a test", "--wait", "60s")
	return n
}

// stopped ends a relay in order.
func (s *switching) stopped(relay *runner.Relay) {
	s.t.Helper()
	ended(s.t, relay)
	s.released()
}

// arrived waits until Kafka has n events, and returns their numbers by key, in order.
func (s *switching) arrived(n int) map[string][]int {
	s.t.Helper()
	k := &topical{rig: s.rig, kafka: s.kafka}
	all := map[string][]int{}
	for _, r := range k.records(s.topic, n) {
		var e struct {
			Key string
			Seq int
		}
		must(s.t, json.Unmarshal(r.Value, &e))
		all[e.Key] = append(all[e.Key], e.Seq)
	}
	return all
}

// consumed waits until RabbitMQ's consumer has n events, and returns their numbers by key, in
// order.
func (s *switching) consumed(n int) map[string][]int {
	s.t.Helper()
	must(s.t, s.consumer.WaitCount(await.Context(s.t), n))
	all := map[string][]int{}
	for _, d := range s.consumer.Deliveries() {
		all[d.Key] = append(all[d.Key], int(d.Seq))
	}
	return all
}

// logged checks that a relay has said something in one line, once, and that the page has it.
func (s *switching) logged(relay *runner.Relay, words ...string) {
	s.t.Helper()
	shownIn(s.t, document(s.t, "docs/dead-letters.md"), words[0])
	var lines []string
	for line := range strings.Lines(relay.Log()) {
		if strings.Contains(line, words[0]) {
			lines = append(lines, line)
		}
	}
	if len(lines) != 1 || !hasAll(lines[0], words) {
		s.t.Errorf("the log has %q, want one line with %q", lines, words)
	}
}

func (s *switching) same(what string, got, want map[string][]int) {
	s.t.Helper()
	if !maps.EqualFunc(got, want, slices.Equal) {
		s.t.Errorf("%s has %v, want %v", what, got, want)
	}
}

// TestSwitchOfTheBroker: what was deferred for an exchange goes to the topic of the new
// configuration, each key in order and before its newer events, and back. What operators asked to
// be sent to a place of the old broker is not taken for one of the new.
func TestSwitchOfTheBroker(t *testing.T) {
	t.Parallel()
	s := newSwitching(t)
	s.rabbit("missing")
	relay := s.start()
	s.write(4, "a", "b")
	s.deferred(8)
	named, dead := s.died("a"), s.died("b")
	s.stopped(relay)
	s.write(1, "a", "b")
	s.ok("resend", "--key", "a", "--order-by", "created_at", "--exchange", "x", "--wait", "0")
	s.ok("dead-letters", "replay", named, "--exchange", "x", "--reason", "a test")
	s.ok("dead-letters", "replay", "--all", "--key", "b", "--exchange", "x", "--reason", "a test")

	s.toKafka(s.topic)
	relay = s.start()
	s.same("the topic", s.arrived(8), map[string][]int{"a": {1, 2, 3, 5}, "b": {1, 2, 3, 5}})
	s.logged(relay, "deferred events and dead letters had no place at this kind of broker: they go where the templates say now", `"events":8,"from":"rabbitmq","to":"kafka"`)
	s.logged(relay, "jobs that named a place at the other broker are cancelled: request them again", `"jobs":2,"from":"rabbitmq","to":"kafka"`)
	said := "it names a place of rabbitmq, and the relay sends to kafka now: request it again"
	if got := ask[string](s.rig, `SELECT string_agg(state || ': ' || result, '') FROM cdc_relay.request WHERE kind = 'replay'`); got != "failed: "+said {
		t.Errorf("the replay to an exchange is %s", got)
	}
	if got := ask[string](s.rig, `SELECT (SELECT string_agg(state, '') FROM cdc_relay.bulk) || ' ' || count(*) FROM cdc_relay.audit WHERE $1 IN (why, result)`, said); got != "cancelledcancelled 3" {
		t.Errorf("the job and the audit of both are %s", got)
	}
	s.ok("dead-letters", "replay", named, "--reason", "a test", "--wait", "60s")
	s.same("the topic", s.arrived(9), map[string][]int{"a": {1, 2, 3, 5, 4}, "b": {1, 2, 3, 5}})
	s.stopped(relay)

	s.toKafka(s.topic + ".missing")
	relay = s.start()
	s.write(2, "a", "c")
	s.deferred(4)
	s.stopped(relay)
	s.write(1, "a")
	s.rabbit("outbox.events")
	relay = s.start()
	s.same("the queue", s.consumed(5), map[string][]int{"a": {6, 7, 8}, "c": {1, 2}})
	s.ok("dead-letters", "replay", dead, "--reason", "a test", "--wait", "60s")
	s.same("the queue", s.consumed(6), map[string][]int{"a": {6, 7, 8}, "b": {4}, "c": {1, 2}})
	s.deferred(0)
	s.stopped(relay)
	s.same("the topic", s.arrived(9), map[string][]int{"a": {1, 2, 3, 5, 4}, "b": {1, 2, 3, 5}})
}

// TestOtherTemplatesOfTheSameBroker: deferred events keep the exchange that they were given, which
// may be gone for ever. The start says so once, and the commands that it names send them elsewhere.
func TestOtherTemplatesOfTheSameBroker(t *testing.T) {
	t.Parallel()
	s := newSwitching(t)
	s.rabbit("missing")
	relay := s.start()
	s.write(3, "a")
	s.deferred(3)
	s.stopped(relay)
	s.rabbit("outbox.events")
	relay = s.start()
	s.logged(relay, "the templates have changed: deferred events and dead letters keep the place that they had", `"events":3`, "cdc-relay deferred dead-letter", "cdc-relay dead-letters replay NUMBER --exchange --routing-key")
	s.write(1, "a")
	s.same("the queue", s.consumed(1), map[string][]int{"a": {4}})
	s.stopped(relay)
	relay = s.start()
	if log := relay.Log(); strings.Contains(log, "keep the place") {
		t.Errorf("it is said again: %s", log)
	}
	s.deferred(3)
	s.ok("deferred", "dead-letter", "--all", "--destination", "missing", "--reason", "the exchange is gone", "--wait", "60s")
	s.ok("dead-letters", "replay", "--all", "--exchange", "outbox.events", "--reason", "the exchange is gone", "--wait", "60s")
	s.same("the queue", s.consumed(4), map[string][]int{"a": {4, 1, 2, 3}})
	s.stopped(relay)
}
