//go:build testall

package cli

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

// rows inserts rows of a type and key, numbered on from those before.
func (r *rig) rows(typ, key string, from, to int) {
	r.t.Helper()
	r.exec(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)
		SELECT gen_random_uuid(), 'order', $1, $2, jsonb_build_object('n', i) FROM generate_series($3::int, $4::int) i`, key, typ, from, to)
}

// steered has rows whose type names an exchange or topic that is there and is not allowed. The
// relay sends nothing there and says so; the rows wait, in the order of their key, with those
// behind them, and nothing else waits, not even when all that comes is not allowed. A relay with
// the right pattern delivers them in order; after a rollback rows wait again.
func (r *rig) steered(allowed, forbidden, destination, key string, sink func(patterns string) string, bodies func(name string, n int) []string, more string) {
	t := r.t
	t.Helper()
	r.more = more
	r.sink = sink(fmt.Sprintf("[%q]", allowed[:len(allowed)-1]+"*"))
	r.ok("init")
	relay := r.start()
	r.rows(forbidden, "a", 1, 3) // nothing else is confirmed meanwhile
	paused := deferred(t, relay, 3).Broker.Paused[0]
	if paused.Destination != destination || paused.Reason != "not_allowed" || !strings.HasSuffix(paused.Error, " is not allowed by "+key) {
		t.Errorf("paused is %+v", paused)
	}
	r.rows(allowed, "b", 1, 2)
	r.rows(allowed, "a", 1, 1) // another exchange or topic: another ordering group
	bodies(allowed, 3)
	if n := ask[string](r, `SELECT string_agg(DISTINCT class || '/' || reason, ' ') FROM cdc_relay.retry WHERE class <> ''`); n != "destination/not_allowed" {
		t.Errorf("the rows say %q", n)
	}
	eventually(t, func() string { // it is probed, and not sent
		if v := scrape(t, relay).values[`outbox_rejections_total{class="destination",reason="not_allowed"}`]; v < 2 {
			return fmt.Sprintf("%g refusals", v)
		}
		return ""
	})
	bodies(forbidden, 0)
	if code := relay.Stop(t); code != 0 {
		t.Fatalf("exit %d", code)
	}

	r.released()
	wrong := r.sink
	r.sink = sink(fmt.Sprintf("[%q, %q]", allowed, forbidden))
	relay = r.start()
	r.rows(forbidden, "a", 4, 5)
	if got, want := strings.Join(bodies(forbidden, 5), " "), `{"n": 1} {"n": 2} {"n": 3} {"n": 4} {"n": 5}`; got != want {
		t.Errorf("what arrived is %s, want %s", got, want)
	}
	eventually(t, func() string { return drained(t, relay) })
	r.sink = wrong // rolled back
	relay.Stop(t)
	r.released()
	relay = r.start()
	r.rows(forbidden, "a", 6, 6)
	deferred(t, relay, 1)
	relay.Stop(t)
}

func TestRowsSteerOnlyAsAllowed(t *testing.T) {
	t.Parallel()
	b := withBroker(t)
	ch := b.channel(t)
	for _, name := range []string{"public.events", "internal.events"} {
		must(t, ch.ExchangeDeclare(name, "fanout", true, false, false, false, nil))
		_, err := ch.QueueDeclare(name, true, false, false, false, nil)
		must(t, err)
		must(t, ch.QueueBind(name, "", name, false, nil))
	}
	bodies := func(name string, n int) []string { return b.bodies(ch, name, n) }
	b.steered("public.events", "internal.events", `exchange "internal.events"`, "sink.rabbitmq.allow.exchange", func(patterns string) string {
		return fmt.Sprintf("  rabbitmq: {url: '%s', exchange: '{type}', routing_key: x, allow: {exchange: %s}}", b.vhost, patterns)
	}, bodies, "delivery: {ordering: commit}\n")
}

// A row that names a queue in CC or BCC does not reach it by the default exchange, nor with any
// header that steers the broker; the relay counts what it left out. With allow_headers it does.
func TestHeadersSteerOnlyAsAllowed(t *testing.T) {
	t.Parallel()
	b := withBroker(t)
	ch := b.channel(t)
	for _, name := range []string{"usual", "admin"} {
		_, err := ch.QueueDeclare(name, true, false, false, false, nil)
		must(t, err)
	}
	sink := "  rabbitmq: {url: '" + b.vhost + "', exchange: '', routing_key: usual"
	run := func(more string) *runner.Relay {
		b.sink = sink + more + "}"
		relay := b.start()
		b.exec(`INSERT INTO outbox VALUES (gen_random_uuid(), 'order', '1', 'created', '1', '{"CC": ["admin"], "x-delay": 9000}'), (gen_random_uuid(), 'order', '2', 'created', '2', '{"BCC": "admin"}')`)
		return relay
	}
	relay := run("")
	b.bodies(ch, "usual", 2)
	eventually(t, func() string {
		m := scrape(t, relay)
		for _, name := range []string{"CC", "BCC", "x-delay"} {
			if v := m.values[`outbox_headers_dropped_total{header="`+name+`"}`]; v != 1 {
				return fmt.Sprintf("%s is counted %g times", name, v)
			}
		}
		return ""
	})
	b.bodies(ch, "admin", 0)
	relay.Stop(t)
	b.released()

	relay = run(", allow_headers: [CC, BCC], allow: {routing_key: [usual, admin]}")
	b.bodies(ch, "usual", 4)
	b.bodies(ch, "admin", 2)
	relay.Stop(t)
}
