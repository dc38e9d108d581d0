//go:build testall

package python

import (
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
)

// A message that is delivered twice has its effect once. One that can never succeed becomes a
// dead letter at once, unchanged, and so does another event under an id that was processed. One
// that fails for a while comes back from the retry queues, and one that fails each time becomes a
// dead letter after the last of them.
func TestConsumerInPython(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	// Attempts are counted outside of transactions, which roll back: a sequence does that.
	r.exec(`CREATE SEQUENCE attempts;
		CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF NEW.message_id = 'never' OR NEW.message_id = 'later' AND nextval('attempts') <= 2 THEN RAISE EXCEPTION 'no mail today'; END IF;
			RETURN NEW;
		END $$;
		CREATE TRIGGER fail BEFORE INSERT ON notifications FOR EACH ROW EXECUTE FUNCTION fail()`)
	p := r.start()
	r.publish("never", order("1"))
	r.publish("later", order("2"))
	r.publish("twice", order("3"))
	r.publish("twice", order("3"))
	r.publish("poison", `{"id": "4"}`)
	r.publish("twice", order("9"))
	r.publish("twice", order("3"), "other")
	r.publish("text", order(`"nothing"`)) // no number for the database

	d := r.dead()
	if d.MessageId != "poison" || string(d.Body) != `{"id": "4"}` || d.Type != "OrderPlaced" || d.Headers["aggregate_id"] != "7" {
		t.Errorf("the first dead letter is %+v", d)
	}
	check(t, d, "permanent", 1)
	d = r.dead()
	if d.MessageId != "twice" || string(d.Body) != order("9") {
		t.Errorf("the second dead letter is %+v", d)
	}
	check(t, d, "permanent", 1)
	if d = r.dead(); d.MessageId != "twice" || d.Headers["tenant"] != "üother" {
		t.Errorf("the third dead letter is %+v", d)
	}
	if d = r.dead(); d.MessageId != "text" {
		t.Errorf("the fourth dead letter is %+v", d)
	}
	check(t, d, "permanent", 1)
	r.processed("later")
	d = r.dead()
	if d.MessageId != "never" {
		t.Errorf("the fifth dead letter is %+v", d)
	}
	check(t, d, "transient", 3)
	for _, id := range []string{"twice", "later"} {
		if n := r.effects(id); n != 1 {
			t.Errorf("message %s has %d effects", id, n)
		}
	}
	await.Must(t, p.Signal(syscall.SIGTERM))
	await.Until(t, "the end", func() bool { return !p.Running() })
	log := processes.ReadLog(p.LogPath)
	for line, want := range map[string]int{"connected: consuming": 1, "INFO ended": 1, "message twice: duplicate": 1, "message later: retry": 2, "message never: retry": 2} {
		if n := strings.Count(log, line); n != want {
			t.Errorf("%q is %d times in the log, want %d:\n%s", line, n, want, log)
		}
	}
}

// The payload of the README's own event, as its quick start writes it, has its effect.
func TestEventOfTheQuickStart(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	readme, err := os.ReadFile("../../../README.md")
	await.Must(t, err)
	event := regexp.MustCompile(`'order', '\d+', 'created', '(\{.*?\})'`).FindSubmatch(readme)
	if event == nil {
		t.Fatal("the quick start inserts no order")
	}
	r.start()
	r.publish("one", strings.ReplaceAll(string(event[1]), `\"`, `"`))
	r.processed("one")
	if n := r.count("SELECT count(*) FROM notifications WHERE message_id = 'one' AND order_id = '7' AND total::text = '12.50'"); n != 1 {
		t.Errorf("%d notifications", n)
	}
}

// check compares what a dead letter says of its end.
func check(t *testing.T, d amqp.Delivery, class string, attempts int) {
	t.Helper()
	h := d.Headers
	if h["failure_class"] != class || h["consumer_service"] != service || h["failure_reason"] == "" || h["first_failed_at"] == nil || h["failed_at"] == nil {
		t.Errorf("dead letter %s has the headers %v", d.MessageId, h)
	}
	switch n := h["attempts"].(type) {
	case int32:
		attempts -= int(n)
	case int64:
		attempts -= int(n)
	}
	if attempts != 0 {
		t.Errorf("dead letter %s has %v attempts", d.MessageId, h["attempts"])
	}
}

// The consumer is killed when its transaction has committed and its acknowledgement has not
// arrived. The broker delivers the message again, and the next consumer finds it processed.
func TestKilledBetweenCommitAndAck(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	first := r.start()
	r.proxy.Hold(netproxy.Up)
	r.publish("one", order("1"))
	r.processed("one")
	await.Must(t, first.Kill())
	r.proxy.Reset() // with what it had sent
	r.proxy.Release(netproxy.Up)
	second := r.start()
	r.publish("two", order("2"))
	r.processed("two")
	for _, id := range []string{"one", "two"} {
		if n := r.effects(id); n != 1 {
			t.Errorf("message %s has %d effects", id, n)
		}
	}
	if log := processes.ReadLog(second.LogPath); !strings.Contains(log, "message one: duplicate") {
		t.Errorf("the second consumer was not given the message again:\n%s", log)
	}
}

// waiting are the sessions that wait for a lock.
const waiting = "FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"

// A session that ends in the middle of a message is the database's fault: the consumer connects
// again, and the message has spent no attempt.
func TestDatabaseIsLost(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.start()
	r.exec("BEGIN; LOCK TABLE notifications")
	r.publish("one", order("1"))
	await.Until(t, "the handler to wait", func() bool { return r.count("SELECT count(*) "+waiting) == 1 })
	if n := r.count("SELECT count(pg_terminate_backend(pid)) " + waiting); n != 1 {
		t.Fatalf("%d sessions were ended", n)
	}
	r.exec("COMMIT")
	r.processed("one")
	if n := r.effects("one"); n != 1 {
		t.Errorf("the message has %d effects", n)
	}
	await.Until(t, "its outcome", func() bool { return strings.Contains(processes.ReadLog(p.LogPath), "message one: success") })
	if log := processes.ReadLog(p.LogPath); strings.Contains(log, "message one: retry") {
		t.Errorf("an attempt was spent:\n%s", log)
	}
}

// A message whose handler ends the session each time would hold up all others: it spends an attempt
// in the end, and the next one is processed.
func TestMessageEndsSessions(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.exec(`CREATE FUNCTION leave() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW; END $$;
		CREATE TRIGGER leave BEFORE INSERT ON notifications FOR EACH ROW WHEN (NEW.message_id = 'bad') EXECUTE FUNCTION leave()`)
	p := r.start()
	r.publish("bad", order("1"))
	r.publish("good", order("2"))
	r.processed("good")
	if log := processes.ReadLog(p.LogPath); !strings.Contains(log, "message bad: retry") || r.effects("bad") != 0 {
		t.Errorf("the bad message has %d effects:\n%s", r.effects("bad"), log)
	}
}

// PostgreSQL answers COMMIT of a failed transaction with a rollback and no error: a handler that
// catches the failure and goes on would lose its effect, acknowledged.
func TestHandlerThatHidesAnError(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	out, err := r.python("-c", `
import pika, psycopg, consumer
def handle(db, message, body):
    try:
        db.execute("SELECT 1/0")
    except psycopg.Error:
        pass
consumer.handle = handle
with psycopg.connect(consumer.DATABASE, autocommit=True) as db:
    print(consumer.process(db, pika.BasicProperties(message_id="one"), b""))
`).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "RuntimeError: handle went on") {
		t.Errorf("process says %s, %v", out, err)
	}
	if n := r.count("SELECT count(*) FROM processed_messages"); n != 0 {
		t.Errorf("%d messages count as processed", n)
	}
}

// What a handler commits by SQL is there, and its record too: another attempt would be a duplicate
// of a message that has its effect in part.
func TestHandlerThatEndsTheTransaction(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	out, err := r.python("-c", `
import pika, psycopg, consumer
def handle(db, message, body):
    db.execute("COMMIT")
    raise OSError("and fails")
consumer.handle = handle
with psycopg.connect(consumer.DATABASE, autocommit=True) as db:
    consumer.process(db, pika.BasicProperties(message_id="one"), b"")
`).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "consumer.Permanent: handle ended the transaction") {
		t.Errorf("process says %s, %v", out, err)
	}
}

// A server that would forget what was acknowledged is refused at the start: after a crash, or
// because a trigger keeps the records out of the table.
func TestForgetfulDatabaseIsRefused(t *testing.T) {
	t.Parallel()
	for name, statement := range map[string]string{
		"asynchronous": `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET synchronous_commit = off', current_database()); END $$`,
		"unlogged":     "ALTER TABLE processed_messages SET UNLOGGED",
		"trigger": `CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
			CREATE TRIGGER nothing BEFORE INSERT ON processed_messages FOR EACH ROW EXECUTE FUNCTION nothing()`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.exec(statement)
			out, err := r.python("-c", "import consumer; consumer.connect()").CombinedOutput()
			if err == nil || !strings.Contains(string(out), "it would forget") {
				t.Errorf("connect says %s, %v", out, err)
			}
		})
	}
}

// A duplicate writes to the WAL, so that its COMMIT waits for a synchronous standby, and a new
// message bounds the time that its transaction may be idle.
func TestStandbyAndFrozenProcess(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	out, err := r.python("-c", `
import pika, consumer
def handle(db, message, body):
    print("idle", db.execute("SHOW idle_in_transaction_session_timeout").fetchone()[0])
consumer.handle = handle
db = consumer.connect()
assert db.execute("SHOW idle_in_transaction_session_timeout").fetchone()[0] == "0"
print(consumer.process(db, pika.BasicProperties(message_id="one"), b""))
record = consumer.record
def written(*args):
    first = record(*args)
    print("written", db.execute("SELECT pg_current_xact_id_if_assigned() IS NOT NULL").fetchone()[0])
    return first
consumer.record = written
print(consumer.process(db, pika.BasicProperties(message_id="one"), b""))
`).CombinedOutput()
	if want := "idle 1min\nsuccess\nwritten True\nduplicate\n"; err != nil || string(out) != want {
		t.Errorf("process says %s, %v, want %s", out, err, want)
	}
}
