//go:build testall

package cli

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

func TestBulkRequests(t *testing.T) {
	t.Parallel()
	o := withDeadLetters(t, "")
	o.bad("7", 12)
	if got := o.ok("dead-letters", "replay", "--all", "--routing-key", "order.fixed", "--error", "null_in_template", "--rate", "100/s"); got != "job 1: 12 of 12 done\n" {
		t.Errorf("a bulk replay says %q", got)
	}
	must(t, o.consumer.WaitCount(await.Context(t), 12))
	if got := o.ok("dead-letters", "replay", "--all"); got != "nothing to replay: no row matches\n" {
		t.Errorf("again it says %q", got)
	}
	o.bad("8", 3)
	res := o.command("dead-letters", "replay", "--all", "--wait", "90s")
	if refusal(t, res, 1, "job 2: replay failed for 3 dead letters"); !strings.HasPrefix(res.Stdout, "job 2: 0 of 3 done, 3 failed\nfailed: dead letter ") || !strings.HasSuffix(res.Stdout, ": null_in_template: routing key has a NULL in its template\n") || strings.Count(res.Stdout, "\n") != 2 {
		t.Errorf("a bulk replay that fails says %q", res.Stdout)
	}
	if got := o.ok("dead-letters", "job", "1", "--cancel"); got != "nothing to cancel: already ended\njob 1: 12 of 12 done\n" {
		t.Errorf("cancelling what has ended says %q", got)
	}
}

// The mirror: a queue of one's own, bound as in the documents, gets a copy of each dead letter.
// What is tried again: TestMirrorWithoutItsDestination of internal/dlq.
func TestMirror(t *testing.T) {
	t.Parallel()
	b := withBroker(t)
	conn, err := amqp.Dial(b.vhost)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	must(t, err)
	must(t, ch.ExchangeDeclare("outbox.dlx", "direct", true, false, false, false, nil))
	_, err = ch.QueueDeclare("outbox.dlq", true, false, false, false, nil)
	must(t, err)
	must(t, ch.QueueBind("outbox.dlq", "outbox.dlq", "outbox.dlx", false, nil))
	b.exec(`ALTER TABLE outbox ALTER type DROP NOT NULL, ADD COLUMN region text`)
	b.more = "dead_letters: {mirror: {exchange: outbox.dlx, routing_key: outbox.dlq}}\noutbox: {headers: {region: region}}\n"
	o := &operated{b, b.start()}
	o.exec(`INSERT INTO outbox (id, aggregatetype, aggregateid, payload) VALUES ('11111111-1111-1111-1111-111111111111', 'order', '7', '{"n": 1}')`)
	var d amqp.Delivery
	eventually(t, func() string {
		var ok bool
		d, ok, err = ch.Get("outbox.dlq", true)
		must(t, err)
		if !ok {
			return "the queue is empty"
		}
		return ""
	})
	position := ask[string](o.rig, `SELECT lpad(to_hex((commit_lsn - '0/0'::pg_lsn)::bigint), 16, '0') || '-' || lpad(idx::text, 8, '0') FROM cdc_relay.dead_letter`)
	if string(d.Body) != `{"n": 1}` || d.ContentType != "application/json" || d.MessageId != "11111111-1111-1111-1111-111111111111" || d.Headers["cdc_replay"] != nil {
		t.Errorf("the copy is %+v", d)
	}
	for name, want := range map[string]any{
		"event_id": "11111111-1111-1111-1111-111111111111", "event_key": "7", "failure_class": "permanent", "attempts": int64(1), "cdc_position": position,
		"original_destination": "outbox.events", "aggregate_id": "7",
	} {
		if got := d.Headers[name]; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("header %s is %v, want %v", name, got, want)
		}
	}
	if reason, _ := d.Headers["failure_reason"].(string); !strings.HasPrefix(reason, "null_in_template: ") {
		t.Errorf("failure_reason is %q", reason)
	}
	for _, name := range []string{"failed_at", "first_failed_at"} {
		if _, err := time.Parse(time.RFC3339Nano, fmt.Sprint(d.Headers[name])); err != nil {
			t.Errorf("header %s: %v", name, err)
		}
	}
	eventually(t, func() string {
		if ask[bool](o.rig, `SELECT mirrored_at IS NULL FROM cdc_relay.dead_letter`) {
			return "it is not noted as mirrored"
		}
		return mirrored(t, o.relay, 1, 0)
	})
	if code := o.relay.Stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
}

// mirrored says "" when the metrics tell of so many copies that were confirmed, and of so many, or
// more, that were refused: none is none.
func mirrored(t *testing.T, relay *runner.Relay, copies, refused float64) string {
	t.Helper()
	m := scrape(t, relay)
	done, failed := m.values["cdc_relay_dead_letters_mirrored_total"], m.values["cdc_relay_dead_letter_mirror_failures_total"]
	if done != copies || failed < refused || refused == 0 && failed > 0 {
		return fmt.Sprintf("%g copies are confirmed and %g refused by the metrics, want %g and %g", done, failed, copies, refused)
	}
	return ""
}

// After purge --key nothing in the relay's tables has the key, the payload, or anything made of
// them.
func TestPurgeOfAKey(t *testing.T) {
	t.Parallel()
	o := withDeadLetters(t, "dead_letters: {on_dead_letter: block}\n")
	o.bad("customer-17", 1)
	o.exec(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES (gen_random_uuid(), 'order', 'customer-17', 'created', '{"secret": true}')`)
	eventually(t, func() string {
		if got := ask[int](o.rig, `SELECT count(*) FROM cdc_relay.retry`); got != 1 {
			return fmt.Sprintf("%d rows wait behind the dead letters, want 1", got)
		}
		return ""
	})
	kept := o.bad("customer-18", 1)[0]
	if got := o.ok("dead-letters", "purge", "--key", "customer-17", "--reason", "GDPR 7"); got != "job 1: 2 of 2 done\n" {
		t.Errorf("it says %q", got)
	}
	eventually(t, func() string { // the job forgets its filter when it is closed
		for _, table := range []string{"retry", "dead_letter", "request", "bulk", "audit"} {
			rows := ask[string](o.rig, `SELECT coalesce(string_agg(to_jsonb(t)::text, ' '), '') FROM cdc_relay.`+table+` t WHERE to_jsonb(t)->>'n' IS DISTINCT FROM $1`, fmt.Sprint(kept))
			for _, text := range []string{"customer-17", "secret"} {
				if strings.Contains(rows, text) || strings.Contains(rows, fmt.Sprintf("%x", text)) || strings.Contains(rows, fmt.Sprintf("%x", encoded(text))) {
					return fmt.Sprintf("%s has %s: %s", table, text, rows)
				}
			}
		}
		return ""
	})
	if got := decoded[rowsPage](t, o.ok("dead-letters", "list", "--json")); len(got.Items) != 1 || got.Items[0].N != kept {
		t.Errorf("left are %+v", got)
	}
	// Its key is free again.
	o.exec(`INSERT INTO outbox (id, aggregatetype, aggregateid, type) VALUES ('11111111-1111-1111-1111-111111111111', 'order', 'customer-17', 'created')`)
	must(t, o.consumer.WaitIDs(await.Context(t), []string{"11111111-1111-1111-1111-111111111111"}))
}

// encoded is base64 of a text, as a filter is stored.
func encoded(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

func TestDeferredCommands(t *testing.T) {
	t.Parallel()
	o := withDeadLetters(t, "retry: {backoff: 1h, max_backoff: 1h}\n")
	o.sinkDown(t)
	o.insert(3)
	eventually(t, func() string {
		if got := decoded[rowsPage](t, o.ok("deferred", "list", "--json")); len(got.Items) != 3 {
			return fmt.Sprintf("deferred are %+v", got)
		}
		return ""
	})
	// One was refused. Of the others those that came when its exchange was paused already were not
	// sent, and have no fault of their own.
	page := decoded[rowsPage](t, o.ok("deferred", "list", "--json", "--class", "destination"))
	if len(page.Items) == 0 || page.Items[0].Reason != "no_exchange" {
		t.Fatalf("refused are %+v", page)
	}
	page = decoded[rowsPage](t, o.ok("deferred", "list", "--json", "--key", "2"))
	if len(page.Items) != 1 || page.Items[0].Destination != "outbox.events/order.created" {
		t.Fatalf("deferred are %+v", page)
	}
	n := fmt.Sprint(page.Items[0].N)
	if got := o.ok("deferred", "retry", n); got != "deferred row "+n+" is to be tried now\n" {
		t.Errorf("a retry says %q", got)
	}
	if got := o.ok("deferred", "dead-letter", n, "--reason", "given up"); got != "deferred row "+n+" is now a dead letter\n" {
		t.Errorf("giving it up says %q", got)
	}
	o.refused(1, "deferred show "+n, "it is a dead letter: cdc-relay dead-letters show "+n)
	if code, body := o.send("GET", "/api/v1/deferred?limit=1", ""); code != 200 || !strings.Contains(body, `"next":"`) {
		t.Errorf("/api/v1/deferred answers %d %s", code, body)
	}
}

// sinkDown removes the exchange.
func (o *operated) sinkDown(t *testing.T) {
	t.Helper()
	conn, err := amqp.Dial(o.vhost)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	must(t, err)
	must(t, ch.ExchangeDelete("outbox.events", false, false))
}
