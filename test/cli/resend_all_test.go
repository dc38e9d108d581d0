//go:build testall

package cli

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
)

// jobOf starts a resend that is not waited for, and waits until its rows are copied.
func (r *resent) jobOf(copies int, args ...string) int {
	r.t.Helper()
	var job int
	_, err := fmt.Sscanf(r.ok(append([]string{"resend", "--wait", "0"}, args...)...), "job %d: ", &job)
	must(r.t, err)
	r.copied(job, copies)
	return job
}

func (r *resent) copied(job, copies int) {
	r.t.Helper()
	eventually(r.t, func() string {
		got := ask[string](r.rig, `SELECT state || ' ' || asked || ' ' || result FROM cdc_relay.bulk WHERE job = $1`, job)
		if got != fmt.Sprintf("sending %d ", copies) && got != fmt.Sprintf("done %d ", copies) {
			return fmt.Sprintf("job %d is %q, want %d copies: %s", job, got, copies, r.relay.Log())
		}
		return ""
	})
}

// withGap is a relay at work, and two rows of key a in an accepted gap.
func withGap(t *testing.T) *resent {
	t.Helper()
	b := withBroker(t)
	r := &resent{brokered: b, relay: b.start()}
	r.late = b.channel(t)
	r.write("a", 1)
	must(t, r.consumer.WaitCount(await.Context(t), 1))
	r.relay.Stop(t)
	r.write("a", 2)
	r.write("a", 3)
	r.advanceSlot()
	r.accept()
	return r
}

func (r *resent) queue(name string) {
	r.t.Helper()
	must(r.t, r.late.ExchangeDeclare(name, "fanout", true, false, false, false, nil))
	_, err := r.late.QueueDeclare(name, true, false, false, false, nil)
	must(r.t, err)
	must(r.t, r.late.QueueBind(name, "", name, false, nil))
}

// A gap is closed when all of it was copied to where its rows belong, and by nothing else.
func TestResendGapStaysOpen(t *testing.T) {
	t.Parallel()
	r := withGap(t)
	isOpen := func(after string) {
		t.Helper()
		if said := r.command("check"); !strings.Contains(said.Stdout, "gap 1, accepted at") {
			t.Errorf("after %s check does not name the gap: %s", after, said.Stdout)
		}
	}
	r.refused(2, "resend --gap 1 --table public.outbox --order-by created_at", "a gap is sent again as a whole")
	// whoever may ask in SQL
	r.exec(`INSERT INTO cdc_relay.bulk (slot, system_id, kind, filter, in_dead_letters, matched, reason)
		SELECT slot, system_id, 'resend', convert_to('{"gap": 1, "key": "bm9uZQ==", "unordered": true}', 'UTF8'), false, 1, '' FROM cdc_relay.slots`)
	eventually(t, func() string {
		return ask[string](r.rig, `SELECT coalesce(nullif(state, 'failed'), '') FROM cdc_relay.bulk`)
	})
	isOpen("a part of it was asked for")

	r.queue("late")
	if got := r.ok("resend", "--key", "a", "--order-by", "created_at", "--exchange", "late", "--wait", "60s"); !strings.HasSuffix(got, ": 3 of 3 done\n") {
		t.Errorf("resend says %q", got)
	}
	if got := r.ok("resend", "--unsent", "--order-by", "created_at", "--dry-run"); !strings.HasPrefix(got, "2 rows would be sent again") {
		t.Errorf("of rows that went elsewhere a dry run says %q", got)
	}
	isOpen("its rows went elsewhere")

	job := r.jobOf(2, "--gap", "1", "--order-by", "created_at", "--exchange", "unbound")
	r.ok("dead-letters", "job", fmt.Sprint(job), "--cancel")
	r.empty()
	isOpen("its copies were taken back")

	// Copies that wait for another destination are no reason to leave rows out.
	r.jobOf(3, "--key", "a", "--order-by", "created_at", "--exchange", "unbound")
	if got := r.ok("resend", "--gap", "1", "--order-by", "created_at", "--wait", "60s"); !strings.HasSuffix(got, ": 2 of 2 done\n") {
		t.Errorf("resend says %q", got)
	}
	must(t, r.consumer.WaitCount(await.Context(t), 3))
	r.queue("unbound")
	r.ok("deferred", "retry", "--all") // the exchange was missing
	r.empty()
	if n := len(r.consumer.Deliveries()); n != 3 {
		t.Errorf("%d deliveries where the rows of the gap belong, want 3", n)
	}
}

// However many resends wait for their destination, the next one copies its rows.
func TestResendBehindMany(t *testing.T) {
	t.Parallel()
	r := withLateQueue(t, 2)
	r.jobOf(1, "--key", "a", "--where", "payload->>'seq' = '1'", "--exchange", "unbound")
	r.exec(`WITH jobs AS (
			INSERT INTO cdc_relay.bulk (slot, system_id, kind, filter, in_dead_letters, matched, asked, reason, state)
			SELECT slot, system_id, 'resend', '{}', false, 1, 1, '', 'sending' FROM cdc_relay.slots, generate_series(1, 100) RETURNING job)
		INSERT INTO cdc_relay.retry
		SELECT (jsonb_populate_record(r, jsonb_build_object('n', nextval('cdc_relay.row_number'), 'idx', job, 'resend', job))).* FROM cdc_relay.retry r, jobs`)
	if got := r.ok("resend", "--key", "b", "--exchange", "late", "--order-by", "created_at", "--wait", "60s"); !strings.HasSuffix(got, ": 2 of 2 done\n") {
		t.Errorf("the next resend says %q", got)
	}
}

// What the slot is still to send is not sent before: a copy would pass older events of its key.
func TestResendBehindTheSlot(t *testing.T) {
	t.Parallel()
	r := withLateQueue(t, 1)
	r.relay.Stop(t)
	r.exec(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) SELECT gen_random_uuid(), 'order', 'z', 'created', jsonb_build_object('key', 'z', 'seq', i) FROM generate_series(1, 12000) i`)
	for i := 2; i <= 6; i++ {
		r.write("a", i)
	}
	r.ok("resend", "--where", "aggregateid = 'a' AND (payload->>'seq')::int IN (3, 5)", "--order-by", "created_at", "--wait", "0")
	r.relay = r.start()
	must(t, r.consumer.WaitCount(await.Context(t), 2+12000+5))
	seen, last := "", int64(0)
	for _, d := range r.consumer.Deliveries() {
		if d.Key == "a" {
			seen += fmt.Sprint(d.Seq, " ")
			if d.Seq > last+1 {
				t.Errorf("%d came before %d: %s", d.Seq, last+1, seen)
			}
			last = max(last, d.Seq)
		}
	}
}

// A leader that is frozen in the middle of a copy holds nothing up: neither the next leader, which
// copies the rows, nor the vacuum of the database.
func TestResendFrozen(t *testing.T) {
	t.Parallel()
	r := withLateQueue(t, 3)
	r.exec(`CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN IF NEW.resend IS NOT NULL AND NOT pg_try_advisory_xact_lock_shared(7) THEN PERFORM pg_advisory_xact_lock_shared(7); END IF; RETURN NEW; END';
		CREATE TRIGGER slow BEFORE INSERT ON cdc_relay.retry FOR EACH ROW EXECUTE FUNCTION slow()`)
	conn, err := pgx.Connect(await.Context(t), r.db)
	must(t, err)
	defer conn.Close(context.WithoutCancel(await.Context(t)))
	_, err = conn.Exec(await.Context(t), `SELECT pg_advisory_lock(7)`)
	must(t, err)
	var job int
	_, err = fmt.Sscanf(r.ok("resend", "--from", "1h", "--order-by", "created_at", "--exchange", "late", "--wait", "0"), "job %d: ", &job)
	must(t, err)
	becomes(r.rig, true, `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)`)
	must(t, r.relay.Freeze())
	_, err = conn.Exec(await.Context(t), `SELECT pg_advisory_unlock(7)`)
	must(t, err)
	r.exec(`SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1 AND active`, r.slot)
	frozen := r.relay
	r.relay = r.start()
	r.copied(job, 6)
	must(t, frozen.Thaw())
	r.wantInOrder(3, r.ofKey(6), "a", "b")
}

func (r *resent) empty() {
	r.t.Helper()
	becomes(r.rig, 0, `SELECT count(*) FROM cdc_relay.retry`)
}

// A copy that waits can be taken back, so it holds no row that recover has to send.
func TestRecoverBesideCopies(t *testing.T) {
	t.Parallel()
	r := withGap(t)
	r.exec(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload, created_at) SELECT gen_random_uuid(), 'order', 'z', 'created', jsonb_build_object('key', 'z', 'seq', i), '2001-01-01' FROM generate_series(1, 200) i`)
	must(t, r.consumer.WaitCount(await.Context(t), 201))
	job := r.jobOf(203, "--where", "true", "--order-by", "created_at", "--rate", "1/s")
	r.relay.Stop(t)
	r.released()
	r.exec(`SELECT pg_drop_replication_slot($1)`, r.slot)
	r.ok("recover", "--unordered")
	r.relay = r.start()
	r.ok("dead-letters", "job", fmt.Sprint(job), "--cancel")
	r.empty()
	seen := ""
	for _, d := range r.consumer.Deliveries() {
		if d.Key == "a" {
			seen += fmt.Sprint(d.Seq, " ")
		}
	}
	if !strings.Contains(seen, "2") || !strings.Contains(seen, "3") {
		t.Errorf("delivered of key a: %s; check says %s", seen, r.command("check").Stdout)
	}
}

// A timestamp without time zone is the time that the event has: UTC. One that is NULL or infinite
// is none.
func TestResendByPlainTimestamp(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.exec(`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET timezone = ''America/New_York''', current_database()); END $$`)
	r.exec(`ALTER TABLE outbox ALTER created_at TYPE timestamp, ALTER created_at DROP NOT NULL`)
	for _, more := range []string{"", "outbox: {timestamp: created_at}"} {
		r.more = more
		relay := r.start()
		r.exec(`TRUNCATE outbox`)
		r.insert(3)
		dry := func(args ...string) string {
			return r.ok(append([]string{"resend", "--from", "2001-01-01T12:00:00Z", "--dry-run"}, args...)...)
		}
		r.exec(`UPDATE outbox SET created_at = '2001-01-01 12:00:01'`)
		got := dry("--to", "2001-01-01T12:00:02Z")
		if !strings.HasPrefix(got, "3 rows") || strings.Contains(got, "is taken for UTC") != (more == "") {
			t.Errorf("%q: a dry run says %q", more, got)
		}
		if got := dry("--to", "2001-01-01T12:00:01Z"); !strings.HasPrefix(got, "0 rows") {
			t.Errorf("%q: of earlier rows a dry run says %q", more, got)
		}
		for _, none := range []string{"NULL", "'infinity'"} {
			r.exec(`UPDATE outbox SET created_at = ` + none + ` WHERE id = (SELECT min(id::text)::uuid FROM outbox)`)
			r.refused(2, "resend --from 1h", "the time of 1 row")
		}
		relay.Stop(t)
		r.released()
	}
	r.exec(`CREATE DOMAIN moment AS timestamptz; ALTER TABLE outbox ALTER created_at DROP DEFAULT, ALTER created_at TYPE moment USING now()`)
	for _, r.more = range []string{"", "outbox: {timestamp: created_at}"} {
		if got := r.ok("resend", "--from", "1h", "--order-by", "created_at", "--dry-run"); !strings.HasPrefix(got, "3 rows") {
			t.Errorf("by a domain a dry run says %q", got)
		}
	}
	for _, kind := range []string{"date", "bigint"} { // an event has no time of them
		r.exec(`ALTER TABLE outbox ALTER created_at TYPE ` + kind + ` USING NULL`)
		r.more = ""
		r.refused(2, "resend --from 1h", "the time of 3 rows is not known")
		r.more = "outbox: {timestamp: created_at}"
		r.refused(4, "resend --from 1h", "timestamp: column \"created_at\" has type")
	}
}

// sleeps waits until a query of the database sleeps, or none does.
func (r *rig) sleeps(yes bool) {
	r.t.Helper()
	eventually(r.t, func() string {
		if ask[bool](r, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database())`) != yes {
			return fmt.Sprintf("a query sleeps: %t", !yes)
		}
		return ""
	})
}

// asked is a job as a program stores it that asks in SQL.
func (r *rig) asked(where string) {
	r.t.Helper()
	r.exec(`INSERT INTO cdc_relay.bulk (slot, system_id, kind, filter, in_dead_letters, matched, reason, condition)
		SELECT slot, system_id, 'resend', convert_to('{"unordered": true}', 'UTF8'), false, 3, '', $1 FROM cdc_relay.slots`, where)
}

const endless = "pg_sleep(1000) IS NOT NULL"

// A resend that is cancelled, and a process that ends while it reads, leave no query behind, and
// hold up nobody.
func TestResendEndedWhileReading(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	relay := r.start()
	r.insert(3)
	eventually(t, func() string { return wantLines(relay, 3) })
	r.asked(endless)
	r.sleeps(true)
	r.ok("dead-letters", "job", "1", "--cancel")
	r.sleeps(false)
	if got := r.ok("resend", "--key", "2", "--aggregate", "order", "--unordered", "--wait", "60s"); !strings.HasSuffix(got, ": 1 of 1 done\n") {
		t.Errorf("the next resend says %q", got)
	}
	file := filepath.Join(t.TempDir(), "cdc-relay.yaml")
	must(t, os.WriteFile(file, []byte(r.yaml()), 0o600))
	for _, signal := range []os.Signal{syscall.SIGINT, syscall.SIGKILL} {
		count := exec.CommandContext(await.Context(t), r.binary, "resend", "--where", endless, "--unordered", "-c", file)
		must(t, count.Start())
		r.sleeps(true)
		must(t, count.Process.Signal(signal))
		if err := count.Wait(); err == nil {
			t.Error("it succeeds although it was interrupted")
		}
		r.sleeps(false)
	}
	r.asked(endless)
	r.sleeps(true)
	must(t, relay.Kill())
	r.sleeps(false)
}

// What a job copies is what it has counted: rows that are deleted meanwhile do not fail it.
func TestResendBesideDeletes(t *testing.T) {
	t.Parallel()
	r := withLateQueue(t, 2)
	conn, err := pgx.Connect(await.Context(t), r.db)
	must(t, err)
	defer conn.Close(context.WithoutCancel(await.Context(t)))
	_, err = conn.Exec(await.Context(t), `SELECT pg_advisory_lock(7)`)
	must(t, err)
	r.asked("pg_advisory_xact_lock_shared(7) IS NOT NULL") // it waits in the middle of the count
	_, err = conn.Exec(await.Context(t), `DO $$ BEGIN
			WHILE NOT EXISTS (SELECT FROM pg_locks JOIN pg_database d ON d.oid = database WHERE locktype = 'advisory' AND NOT granted AND datname = current_database()) LOOP
				PERFORM pg_sleep(0.01);
			END LOOP;
			DELETE FROM outbox;
		END $$`)
	must(t, err)
	_, err = conn.Exec(await.Context(t), `SELECT pg_advisory_unlock(7)`)
	must(t, err)
	r.copied(1, 4)
}
