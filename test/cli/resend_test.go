package cli

import (
	"fmt"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

// resent is a relay at work, whose events were delivered, and a queue that has missed them.
type resent struct {
	*brokered
	relay *runner.Relay
	late  *amqp.Channel
}

// withLateQueue has rows of keys a and b, n of each in turns, each in a transaction of its own.
func withLateQueue(t *testing.T, n int) *resent {
	t.Helper()
	b := withBroker(t)
	r := &resent{b, b.start(), b.channel(t)}
	for i := range n {
		for _, key := range []string{"a", "b"} {
			r.write(key, i+1)
		}
	}
	must(t, r.consumer.WaitCount(await.Context(t), 2*n))
	for _, exchange := range []string{"late", "unbound"} {
		must(t, r.late.ExchangeDeclare(exchange, "fanout", true, false, false, false, nil))
	}
	_, err := r.late.QueueDeclare("late", true, false, false, false, nil)
	must(t, err)
	must(t, r.late.QueueBind("late", "", "late", false, nil))
	return r
}

func (r *resent) write(key string, seq int) {
	r.t.Helper()
	r.exec(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES (gen_random_uuid(), 'order', $1, 'created', jsonb_build_object('key', $1::text, 'seq', $2::int))`, key, seq)
}

// ofKey are the sequence numbers of a key in the late queue, of its next n messages: each is a
// repeat.
func (r *resent) ofKey(n int) map[string]string {
	r.t.Helper()
	got := map[string]string{}
	for i := 0; i < n; {
		d, more, err := r.late.Get("late", true)
		must(r.t, err)
		if !more {
			eventually(r.t, func() string {
				if q, err := r.late.QueueDeclarePassive("late", true, false, false, false, nil); err != nil || q.Messages == 0 {
					return fmt.Sprintf("%d of %d messages, %v: %s", i, n, err, r.relay.Log())
				}
				return ""
			})
			continue
		}
		i++
		if _, is := d.Headers["cdc_replay"]; !is {
			r.t.Errorf("a repeat without cdc_replay: %v", d.Headers)
		}
		var key string
		var seq int
		text := strings.NewReplacer(`"`, "", "{", "", "}", "", ",", " ", ":", " ").Replace(string(d.Body))
		if _, err := fmt.Sscanf(strings.Join(strings.Fields(text), " "), "key %s seq %d", &key, &seq); err != nil {
			r.t.Fatalf("%s: %v", d.Body, err)
		}
		got[key] += fmt.Sprint(seq, " ")
	}
	return got
}

func (r *resent) wantInOrder(n int, got map[string]string, keys ...string) {
	r.t.Helper()
	want := ""
	for i := range n {
		want += fmt.Sprint(i+1, " ")
	}
	for _, key := range keys {
		if got[key] != want {
			r.t.Errorf("key %s: %q, want %q", key, got[key], want)
		}
	}
	if len(got) != len(keys) {
		r.t.Errorf("keys %v, want %v", got, keys)
	}
}

// accept accepts what a start ends with, and starts the relay.
func (r *resent) accept() {
	r.t.Helper()
	for line := range strings.Lines(r.command("run").Stderr) {
		if _, after, found := strings.Cut(line, "cdc-relay accept "); found {
			r.ok("accept", strings.Trim(strings.Fields(after)[0], "`;,.\""), "--reason", "a test")
			break
		}
	}
	r.relay = r.start()
}

// A queue that was bound late gets what was delivered before, in the order of each key.
func TestResend(t *testing.T) {
	t.Parallel()
	r := withLateQueue(t, 10)
	if got := r.ok("resend", "--from", "1h", "--order-by", "created_at", "--dry-run"); got != "20 rows would be sent again; nothing was changed\norder: column \"created_at\"\nnote: table public.outbox: --from and --to go by column \"created_at\"\n" {
		t.Errorf("a dry run says %q", got)
	}
	got := r.ok("resend", "--from", "1h", "--exchange", "late", "--order-by", "created_at", "--reason", "bound late", "--wait", "60s")
	if !strings.HasSuffix(got, ": 20 of 20 done\n") {
		t.Errorf("resend says %q", got)
	}
	r.wantInOrder(10, r.ofKey(20), "a", "b")

	r.ok("resend", "--key", "b", "--exchange", "late", "--order-by", "created_at", "--rate", "1000/s", "--wait", "60s")
	r.wantInOrder(10, r.ofKey(10), "b")
	ids := ask[[]string](r.rig, `SELECT array_agg(id::text) FROM outbox WHERE payload->>'seq' = '1'`)
	r.ok("resend", "--id", ids[0], "--id", ids[1], "--exchange", "late", "--unordered", "--wait", "60s")
	r.wantInOrder(1, r.ofKey(2), "a", "b")
	r.ok("resend", "--where", "(payload->>'seq')::int <= 2 AND aggregateid = 'a'", "--exchange", "late", "--order-by", "created_at", "--wait", "60s")
	r.wantInOrder(2, r.ofKey(2), "a")

	r.write("a", 11) // newer events go on, and are none
	must(t, r.consumer.WaitCount(await.Context(t), 21))
	if d := r.consumer.Deliveries()[20]; d.Replay || d.Seq != 11 {
		t.Errorf("the new event came as %+v", d)
	}
	if n := ask[int](r.rig, `SELECT (SELECT count(*) FROM cdc_relay.retry) + (SELECT count(*) FROM cdc_relay.dead_letter)`); n != 0 {
		t.Errorf("%d rows are left", n)
	}
	audit := ask[string](r.rig, `SELECT string_agg(who || '|' || action || '|' || why || '|' || result, E'\n' ORDER BY seq) FROM cdc_relay.audit WHERE action = 'resend'`)
	if want := "postgres|resend|bound late|job 1: 20 rows copied into the retry table, 0 were held"; !strings.HasPrefix(audit, want) {
		t.Errorf("the audit says %q, want %q", audit, want)
	}
	if got := r.ok("resend", "--key", "none of them"); got != "nothing to resend: no row matches\n" {
		t.Errorf("without a row it says %q", got)
	}
}

// A resend whose destination does not take it waits in the retry table, is left out by the next,
// and is taken back by a cancel; a leader that dies in between changes nothing of that.
func TestResendCancelled(t *testing.T) {
	t.Parallel()
	r := withLateQueue(t, 3)
	said := r.ok("resend", "--key", "a", "--exchange", "unbound", "--order-by", "created_at", "--wait", "0")
	var job int
	_, err := fmt.Sscanf(said, "job %d: ", &job)
	must(t, err)
	waits := func(n int) func() string {
		return func() string {
			if got := ask[int](r.rig, `SELECT count(*) FROM cdc_relay.retry WHERE resend = $1`, job); got != n {
				return fmt.Sprintf("%d copies wait, want %d", got, n)
			}
			return ""
		}
	}
	eventually(t, waits(3))
	r.write("a", 4) // a newer event of the key does not wait for them
	must(t, r.consumer.WaitCount(await.Context(t), 7))
	if got := r.ok("resend", "--where", "aggregateid = 'a' AND (payload->>'seq')::int < 4", "--exchange", "unbound", "--order-by", "created_at", "--wait", "60s"); !strings.HasSuffix(got, ": 0 of 3 done, 3 left out, because they wait already or are dead letters\n") {
		t.Errorf("with copies that wait it says %q", got)
	}
	// copies that go elsewhere hold nothing up here
	r.ok("resend", "--where", "true", "--exchange", "late", "--order-by", "created_at", "--wait", "60s")
	if got := r.ofKey(7); got["a"] != "1 2 3 4 " || got["b"] != "1 2 3 " {
		t.Errorf("%q", got)
	}
	r.relay.Kill()
	r.relay = r.start()
	eventually(t, waits(3))
	if got := r.ok("dead-letters", "job", fmt.Sprint(job), "--cancel"); !strings.HasPrefix(got, fmt.Sprintf("job %d was cancelled", job)) {
		t.Errorf("cancel says %q", got)
	}
	eventually(t, waits(0))
	must(t, r.late.QueueBind("late", "", "unbound", false, nil))
	r.ok("resend", "--key", "b", "--exchange", "unbound", "--order-by", "created_at", "--wait", "60s")
	r.wantInOrder(3, r.ofKey(3), "b")
}

// What is wrong with a choice is one sentence, and nothing is changed.
func TestResendRefusals(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.refused(1, "resend --key a", "cdc-relay init") // no relay has been here
	relay := r.start()
	r.insert(2)
	eventually(t, func() string { return wantLines(relay, 2) })
	r.exec(`CREATE ROLE ` + r.slot + `_owner; GRANT CREATE ON SCHEMA public TO ` + r.slot + `_owner; SET ROLE ` + r.slot + `_owner;
		CREATE FUNCTION theirs(text) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT true'; CREATE DOMAIN their_text AS text CHECK (theirs(VALUE)); CREATE VIEW their_view AS SELECT 1 AS one;
		CREATE TABLE their_table (one int); CREATE INDEX ON their_table (theirs(one::text)); GRANT SELECT ON their_table TO PUBLIC`)
	t.Cleanup(func() { r.exec(`DROP OWNED BY ` + r.slot + `_owner CASCADE; DROP ROLE ` + r.slot + `_owner`) })
	for _, c := range []struct {
		args  []string
		words []string
	}{
		{[]string{"--id", "seven"}, []string{"--id is \"seven\"", "invalid input syntax for type uuid"}},
		{[]string{"--where", "true"}, []string{"order unknown", "--order-by created_at"}},
		{[]string{"--where", "nothing = 1"}, []string{"the WHERE is not a condition", "column \"nothing\" does not exist"}},
		{[]string{"--where", "true) OR (true"}, []string{"the WHERE is not a condition"}},
		{[]string{"--where", "true; DROP TABLE outbox"}, []string{"the WHERE is not a condition"}},
		{[]string{"--where", "1 / (aggregateid::int - 1) > 0", "--unordered"}, []string{"the WHERE fails at a row", "division by zero"}},
		{[]string{"--where", "public.theirs(type)"}, []string{"uses function public.theirs(text) of role", "rights of the relay"}},
		{[]string{"--where", "type = 'x'::public.their_text"}, []string{"uses type public.their_text of role"}},
		{[]string{"--where", "aggregateid::int IN (SELECT one FROM public.their_view)"}, []string{"uses view public.their_view of role"}},
		{[]string{"--key", "1", "--table", "public.other"}, []string{"public.other is not in source.tables"}},
		{[]string{"--key", "1", "--order-by", "nothing"}, []string{"has no column \"nothing\""}},
		{[]string{"--gap", "7"}, []string{"no open gap 7", "none is open"}},
	} {
		refusal(t, r.command(append([]string{"resend"}, c.args...)...), 2, c.words...)
	}
	refusal(t, r.command("resend", "--where", "aggregateid::int IN (SELECT one FROM public.their_table)"), 1, "table public.their_table", "cannot be read without function public.theirs(text)")
	if n := ask[int](r, `SELECT count(*) FROM cdc_relay.bulk`); n != 0 {
		t.Errorf("%d jobs", n)
	}
	r.exec(`ALTER TABLE outbox DROP COLUMN tx CASCADE`)
	r.refused(2, "resend --unsent", "has no column for the transaction that wrote a row", "--where")
	if got := r.ok("resend", "--key", "1", "--dry-run"); !strings.HasPrefix(got, "1 row would be sent again") {
		t.Errorf("without the column a dry run says %q", got)
	}
}

// --unsent sends what the slot will not, and no row that it has sent or will send.
func TestResendUnsent(t *testing.T) {
	t.Parallel()
	b := withBroker(t)
	b.insert(3) // from before the slot
	b.ok("init", "--no-backfill")
	r := &resent{brokered: b, relay: b.start()}
	r.write("a", 1)
	must(t, r.consumer.WaitCount(await.Context(t), 1))
	r.relay.Stop(t)
	r.exec(`ALTER PUBLICATION ` + r.slot + ` DROP TABLE outbox`)
	r.write("a", 2)
	r.write("a", 3)
	r.exec(`ALTER PUBLICATION ` + r.slot + ` ADD TABLE outbox`)
	r.accept()
	r.write("a", 4)
	r.exec(`UPDATE outbox SET type = 'changed'`)
	must(t, r.consumer.WaitCount(await.Context(t), 2))
	if got := r.ok("resend", "--unsent", "--order-by", "created_at", "--dry-run"); !strings.Contains(got, "table public.outbox: 3 rows whose transactions the table had before the slot") {
		t.Errorf("a dry run does not name the rows from before: %q", got)
	}
	// the last row may not be recorded yet: then it is counted, and not sent
	if got := r.ok("resend", "--unsent", "--order-by", "created_at", "--wait", "60s"); !strings.Contains(got, ": 2 of ") {
		t.Errorf("resend says %q", got)
	}
	must(t, r.consumer.WaitCount(await.Context(t), 4))
	seqs := ""
	for _, d := range r.consumer.Deliveries() {
		seqs += fmt.Sprint(d.Seq, " ", d.Replay, " ")
	}
	if seqs != "1 false 4 false 2 true 3 true " {
		t.Errorf("delivered: %s", seqs)
	}
	if got := r.ok("resend", "--unsent", "--wait", "60s"); got != "nothing to resend: no row matches\n" {
		t.Errorf("once more it says %q", got)
	}
	r.exec(`UPDATE outbox SET tx = NULL WHERE payload->>'seq' = '4'`)
	if got := r.ok("resend", "--unsent", "--dry-run"); !strings.Contains(got, "table public.outbox: 1 rows that do not say which transaction") {
		t.Errorf("a dry run does not name the row without a transaction: %q", got)
	}
}

// A gap is sent while the relay runs, or closed by an operator's word, and check names it.
func TestResendGap(t *testing.T) {
	t.Parallel()
	b := withBroker(t)
	r := &resent{brokered: b, relay: b.start()}
	r.write("a", 1)
	must(t, r.consumer.WaitCount(await.Context(t), 1))
	for gap, close := range []bool{false, true} {
		r.relay.Stop(t)
		r.write("a", 10*gap+2)
		r.write("a", 10*gap+3)
		r.advanceSlot()
		r.accept()
		named := fmt.Sprintf("gap %d, accepted at ", gap+1)
		if said := r.command("check"); !strings.Contains(said.Stdout, named) {
			t.Fatalf("check does not name %q: %s", named, said.Stdout)
		}
		if close {
			r.ok("resend", "--gap", fmt.Sprint(gap+1), "--none", "--reason", "sent by hand")
		} else if got := r.ok("resend", "--gap", fmt.Sprint(gap+1), "--order-by", "created_at", "--wait", "60s"); !strings.HasSuffix(got, ": 2 of 2 done\n") {
			t.Errorf("resend says %q", got)
		}
		if said := r.command("check"); strings.Contains(said.Stdout, named) {
			t.Errorf("check still names %q", named)
		}
	}
	r.write("a", 4)
	must(t, r.consumer.WaitCount(await.Context(t), 4))
	if n := len(r.consumer.Deliveries()); n != 4 {
		t.Errorf("%d deliveries, want 4", n)
	}
}
