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
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
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

// looked waits until the leader has looked at operators' jobs a few times.
func (r *resent) looked() {
	r.t.Helper()
	looks := func() int {
		return ask[int](r.rig, `SELECT seq_scan + idx_scan FROM pg_stat_user_tables WHERE relid = 'cdc_relay.bulk'::regclass`)
	}
	before := looks()
	eventually(r.t, func() string {
		if n := looks() - before; n < 4 {
			return fmt.Sprintf("it has looked %d times", n)
		}
		return ""
	})
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
	r.exec(`SELECT pg_replication_slot_advance($1, pg_current_wal_lsn())`, r.slot)
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

// A row that could not be sent elsewhere, because it is too large now, stays in the table for as
// long as its dead letter is open.
func TestResendLeftOutIsKept(t *testing.T) {
	t.Parallel()
	b := withBroker(t)
	r := &resent{brokered: b, relay: b.start(), late: b.channel(t)}
	for _, key := range []string{"large", "small"} {
		r.exec(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES (gen_random_uuid(), 'order', $1, 'created',
			jsonb_build_object('key', $1::text, 'seq', 1, 'x', repeat('x', CASE $1 WHEN 'large' THEN 100000 ELSE 1 END)))`, key)
	}
	must(t, r.consumer.WaitCount(await.Context(t), 2))
	r.queue("late")
	r.relay.Stop(t)
	r.source = "  max_event_bytes: 64KiB"
	r.relay = r.start()
	r.command("resend", "--key", "large", "--exchange", "late", "--wait", "30s")
	eventually(t, func() string {
		if n := ask[int](r.rig, `SELECT count(*) FROM cdc_relay.dead_letter WHERE state = 'open'`); n != 1 {
			return fmt.Sprintf("%d dead letters", n)
		}
		return ""
	})
	r.relay.Stop(t)
	r.more = "retention: {mode: delete, keep: 1s}"
	r.relay = r.start()
	eventually(t, func() string {
		if ask[bool](r.rig, `SELECT EXISTS (SELECT FROM outbox WHERE aggregateid = 'small')`) {
			return "retention has not deleted the other row"
		}
		return ""
	})
	if !ask[bool](r.rig, `SELECT EXISTS (SELECT FROM outbox WHERE aggregateid = 'large')`) {
		t.Error("retention has deleted the row of which an open dead letter has no values")
	}
}

// What is not known to be sent, and not sent by --unsent all the same, is named.
func TestUnsentNamesWhatIsLeftOut(t *testing.T) {
	t.Parallel()
	d, _ := onOwnDay(t)
	d.rig.more = ""
	d.sql(`INSERT INTO outbox (id) VALUES ({before}), ({unknown})`)
	d.rig.ok("init", "--no-backfill")
	d.start()
	d.sql(`UPDATE outbox SET tx = NULL WHERE id = {unknown}`)
	out := d.rig.ok("resend", "--unsent", "--dry-run")
	for _, want := range []string{"table public.outbox: 1 rows whose transactions the table had before the slot", "table public.outbox: 1 rows that do not say which transaction"} {
		if !strings.Contains(out, want) {
			t.Errorf("the dry run does not say %q: %s", want, out)
		}
	}
}

// A relay of a version whose record does not say what was there before the slot has accepted a gap.
// Its rows are the slot's for the next version, too.
func TestResendGapOfOlderRecord(t *testing.T) {
	t.Parallel()
	r := withGap(t)
	later := 0
	eventually(t, func() string { // the slot goes on, until its catalog_xmin is behind the gap
		later++
		r.write("b", later)
		r.exec(`CHECKPOINT`)
		if ask[bool](r.rig, `SELECT catalog_xmin::text::bigint <= (SELECT max(tx::text::bigint) FROM outbox WHERE payload->>'key' = 'a') FROM pg_replication_slots WHERE slot_name = $1`, r.slot) {
			return "catalog_xmin is not behind the gap"
		}
		return ""
	})
	r.relay.Stop(t)
	r.released()
	r.exec(`UPDATE cdc_relay.slots SET sends = (SELECT jsonb_set(sends, ARRAY['tables'], jsonb_object_agg(key, value - 'first')) FROM jsonb_each(sends->'tables'))`)
	r.relay = r.start()
	if got := r.ok("resend", "--gap", "1", "--order-by", "created_at", "--wait", "60s"); !strings.HasSuffix(got, ": 2 of 2 done\n") {
		t.Errorf("resend says %q", got)
	}
	must(t, r.consumer.WaitCount(await.Context(t), 3+later))
}

// A gap whose copies were taken back is open again.
func TestResendGapCancelled(t *testing.T) {
	t.Parallel()
	r := withGap(t)
	job := r.jobOf(2, "--gap", "1", "--order-by", "created_at", "--exchange", "unbound")
	r.ok("dead-letters", "job", fmt.Sprint(job), "--cancel")
	eventually(t, func() string {
		if n := ask[int](r.rig, `SELECT count(*) FROM cdc_relay.retry`); n > 0 {
			return fmt.Sprintf("%d copies", n)
		}
		return ""
	})
	if said := r.command("check"); !strings.Contains(said.Stdout, "gap 1, accepted at") {
		t.Errorf("check does not name the gap whose rows were taken back: %s", said.Stdout)
	}
	if got := r.ok("resend", "--gap", "1", "--order-by", "created_at", "--wait", "60s"); !strings.HasSuffix(got, ": 2 of 2 done\n") {
		t.Errorf("resend says %q", got)
	}
	must(t, r.consumer.WaitCount(await.Context(t), 3))
}

// A gap is closed only when all of it was copied.
func TestResendGapAsAWhole(t *testing.T) {
	t.Parallel()
	r := withGap(t)
	r.refused(2, "resend --gap 1 --table public.outbox --order-by created_at", "a gap is sent again as a whole")
	// whoever may ask in SQL
	r.exec(`INSERT INTO cdc_relay.bulk (slot, system_id, kind, filter, in_dead_letters, matched, reason)
		SELECT slot, system_id, 'resend', convert_to('{"gap": 1, "key": "bm9uZQ==", "unordered": true}', 'UTF8'), false, 1, '' FROM cdc_relay.slots`)
	eventually(t, func() string {
		return ask[string](r.rig, `SELECT coalesce(nullif(state, 'failed'), '') FROM cdc_relay.bulk`)
	})
	if n := ask[int](r.rig, `SELECT count(*) FROM cdc_relay.gap WHERE recovered_at IS NULL`); n != 1 {
		t.Errorf("%d gaps are open", n)
	}
}

// Copies that wait for another destination are no reason to leave rows out of a gap.
func TestResendGapBesideOtherCopies(t *testing.T) {
	t.Parallel()
	r := withGap(t)
	r.jobOf(3, "--key", "a", "--order-by", "created_at", "--exchange", "unbound")
	t.Log(r.ok("resend", "--gap", "1", "--order-by", "created_at", "--wait", "30s"))
	r.queue("unbound")
	r.ok("deferred", "retry", "--all") // the exchange was missing
	eventually(t, func() string {
		if n := ask[int](r.rig, `SELECT count(*) FROM cdc_relay.retry`); n > 0 {
			return fmt.Sprintf("%d copies", n)
		}
		return ""
	})
	if n := len(r.consumer.Deliveries()); n != 3 {
		t.Errorf("%d deliveries where the rows of the gap belong, want 3; check says %s", n, r.command("check").Stdout)
	}
}

// A copy that went elsewhere does not make its row one that was sent.
func TestResendElsewhereIsNotSent(t *testing.T) {
	t.Parallel()
	r := withGap(t)
	r.queue("late")
	if got := r.ok("resend", "--key", "a", "--order-by", "created_at", "--exchange", "late", "--wait", "60s"); !strings.HasSuffix(got, ": 3 of 3 done\n") {
		t.Errorf("resend says %q", got)
	}
	if got := r.ok("resend", "--unsent", "--order-by", "created_at", "--wait", "60s"); !strings.HasSuffix(got, ": 2 of 2 done\n") {
		t.Errorf("resend --unsent says %q", got)
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
	eventually(t, func() string {
		if !ask[bool](r.rig, `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)`) {
			return "the copy has not begun"
		}
		return ""
	})
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

// A resend that is asked for while a relay of the version before leads is carried out by the next
// one that can.
func TestResendUnderOldLeader(t *testing.T) {
	t.Parallel()
	r := withLateQueue(t, 3)
	r.relay.Stop(t)
	old := *r.rig
	old.binary = runner.BuildAt(t, "516ae2ba")
	r.relay = old.start()
	var job int
	_, err := fmt.Sscanf(r.ok("resend", "--key", "b", "--order-by", "created_at", "--exchange", "late", "--wait", "0"), "job %d: ", &job)
	must(t, err)
	r.write("a", 4)
	must(t, r.consumer.WaitCount(await.Context(t), 7))
	r.looked()
	r.relay.Stop(t)
	r.relay = r.start()
	r.copied(job, 3)
	r.wantInOrder(3, r.ofKey(3), "b")
}

// Copies that wait while a relay of the version before leads are sent, and in order.
func TestResendRolledBack(t *testing.T) {
	t.Parallel()
	r := withLateQueue(t, 3)
	job := r.jobOf(6, "--from", "1h", "--order-by", "created_at", "--exchange", "unbound")
	r.relay.Stop(t)
	old := *r.rig
	old.binary = runner.BuildAt(t, "516ae2ba")
	old.more = "delivery: {ordering: commit}\n"
	r.relay = old.start()
	r.write("a", 4)
	must(t, r.consumer.WaitCount(await.Context(t), 7))
	r.looked()
	r.relay.Stop(t)
	r.relay = r.start()
	if got := ask[string](r.rig, `SELECT state FROM cdc_relay.bulk WHERE job = $1`, job); got != "sending" {
		t.Errorf("the job is %s", got)
	}
	r.write("a", 5)
	must(t, r.consumer.WaitCount(await.Context(t), 8))
	must(t, r.late.QueueBind("late", "", "unbound", false, nil))
	r.wantInOrder(3, r.ofKey(6), "a", "b")
}

func (r *resent) empty() {
	r.t.Helper()
	eventually(r.t, func() string {
		if n := ask[int](r.rig, `SELECT count(*) FROM cdc_relay.retry`); n > 0 {
			return fmt.Sprintf("%d copies", n)
		}
		return ""
	})
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

// Commit times that are kept since a while ago are not those of older rows: no row is left out for
// that without a word.
func TestResendTrackedLater(t *testing.T) {
	t.Parallel()
	d, pg := onOwnDay(t)
	d.rig.more = "" // rows stay
	d.start()
	d.sql(`INSERT INTO outbox (id) VALUES ({a}), ({b})`)
	d.delivered()
	d.stop()
	d.rig.exec(`ALTER SYSTEM SET track_commit_timestamp = on`)
	_, err := pg.Stop("fast")
	must(t, err)
	must(t, pg.Start(await.Context(t)))
	d.start()
	d.sql(`INSERT INTO outbox (id) VALUES ({c})`)
	d.delivered()
	resend := []string{"resend", "--from", "1h", "--unordered", "--dry-run"}
	if got := d.rig.ok(resend...); !strings.HasPrefix(got, "3 rows") || !strings.Contains(got, `go by column "created_at", where no other time is known`) {
		t.Errorf("a dry run says %q", got)
	}
	d.rig.exec(`ALTER TABLE outbox DROP created_at`)
	for _, args := range [][]string{resend, resend[:4], append(resend, "--to", "30m")} {
		refusal(t, d.rig.command(args...), 2, "the time of 2 rows is not known", "--where")
	}
	if got := d.rig.ok(append(resend, "--where", d.fill(`id = {c}`))...); !strings.HasPrefix(got, "1 row would") {
		t.Errorf("of the row whose time is known a dry run says %q", got)
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
		SELECT slot, '', 'resend', convert_to('{"unordered": true}', 'UTF8'), false, 3, '', $1 FROM cdc_relay.slots`, where)
}

const endless = "pg_sleep(1000) IS NOT NULL"

// A resend that is cancelled ends what the server does for it, and holds up no other.
func TestResendCancelledWhileReading(t *testing.T) {
	t.Parallel()
	r := withLateQueue(t, 2)
	r.asked(endless)
	r.sleeps(true)
	r.ok("dead-letters", "job", "1", "--cancel")
	r.sleeps(false)
	if got := r.ok("resend", "--key", "b", "--exchange", "late", "--order-by", "created_at", "--wait", "60s"); !strings.HasSuffix(got, ": 2 of 2 done\n") {
		t.Errorf("the next resend says %q", got)
	}
}

// A process that ends while it reads leaves no query behind.
func TestResendEndedWhileReading(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	relay := r.start()
	r.insert(3)
	eventually(t, func() string { return wantLines(relay, 3) })
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
