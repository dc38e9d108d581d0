// An outbox without a table: logical messages with a prefix, alone and in addition to a table.

package replication

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/check"
	"github.com/cdc-relay/cdc-relay/internal/replication/replicationtest"
	"github.com/cdc-relay/cdc-relay/internal/replication/setup"
)

// relayMessages configures the prefix, and keys for what is in the table.
func (b *bench) relayMessages() {
	one := func(name string) decode.Names { return decode.Names{Any: []string{name}} }
	b.cfg.Messages = decode.Messages{Prefix: "orders", Mapping: decode.Mapping{ID: one("id"), Key: one("key"), Payload: one("payload")}}
	for i := range b.cfg.Tables {
		b.cfg.Tables[i].Mapping.Key = one("payload")
	}
}

// message is the SQL that emits an event.
func message(id, key string) string {
	return fmt.Sprintf(`SELECT pg_logical_emit_message(true, 'orders', jsonb_build_object('id', '%s', 'key', '%s', 'payload', '{"n": 1}'::jsonb)::text);`, id, key)
}

// counting counts what is skipped, by reason.
func (b *bench) counting() (counted func(reason string) int) {
	var mu sync.Mutex
	counts := map[string]int{}
	b.cfg.Hooks.Skipped = func(reason string) {
		mu.Lock()
		defer mu.Unlock()
		counts[reason]++
	}
	return func(reason string) int {
		mu.Lock()
		defer mu.Unlock()
		return counts[reason]
	}
}

// Messages and rows are events in the order in which they were written, and none of a transaction,
// or a part of it, that was rolled back. One that is not transactional is counted, warned of once,
// and not relayed.
func TestMessages(t *testing.T) {
	b := shared(t)
	b.relayMessages()
	skipped := b.counting()
	r := b.streaming()
	b.exec(`BEGIN; ` + message("a", "1") + `INSERT INTO outbox VALUES ('b', '1'); SELECT pg_logical_emit_message(true, 'others', 'x');
		SAVEPOINT s; ` + message("undone", "1") + `ROLLBACK TO s; ` + message("c", "1") + ` INSERT INTO outbox VALUES ('d', '1'); COMMIT`)
	b.exec(`BEGIN; ` + message("never", "1") + ` SELECT pg_logical_emit_message(false, 'orders', '{"id": "plain", "key": "1", "payload": 1}'); ROLLBACK`)
	b.exec(`SELECT pg_logical_emit_message(false, 'orders', '{"id": "plain", "key": "1", "payload": 1}')`)
	b.exec(message("e", "1"))
	r.waitSeen("e")
	r.endClean()
	b.wantSeen("a", "b", "c", "d", "e")
	most := r.sessions() // a second session may read all again, and counts it again
	events := b.current().All()
	for i, want := range []uint32{0, 1, 3, 4, 0} {
		if ev := events[i]; ev.Position.Index != want || ev.Key != "1" || ev.Fault != "" {
			t.Errorf("event %s: %+v, want index %d, key 1", ev.Id, ev, want)
		}
	}
	if events[0].Payload != `{"n": 1}` {
		t.Errorf("payload %s", events[0].Payload)
	}
	if plain, others := skipped(decode.NonTransactional), skipped("message"); plain < 2 || plain > 2*most || others < 1 || others > most {
		t.Errorf("counted %d that are not transactional, %d of another prefix; want 2 and 1 in each of %d sessions at most", plain, others, most)
	}

	r = b.streaming()
	b.exec(message("f", "1"))
	r.waitSeen("f")
	before := skipped(decode.NonTransactional)
	b.exec(`SELECT pg_logical_emit_message(false, 'orders', '{}')`)
	await.Until(t, "it to be counted", func() bool { return skipped(decode.NonTransactional) > before })
	r.endClean()
	b.wantSeen("f")
	warned := b.logs.FilterMessageSnippet("not transactional").All()
	if len(warned) != 2 || !strings.Contains(fmt.Sprint(warned[0].ContextMap()["fix"]), "pg_logical_emit_message(true, 'orders'") {
		t.Errorf("warned %v, want once in each of two processes", warned)
	}
}

// A message that cannot be read is an event with a fault and its whole text, and stops nothing.
func TestMessageThatCannotBeRead(t *testing.T) {
	b := shared(t)
	b.relayMessages()
	r := b.streaming()
	b.exec(`SELECT pg_logical_emit_message(true, 'orders', 'no JSON')`)
	b.exec(`SELECT pg_logical_emit_message(true, 'orders', '\xff00'::bytea)`)
	b.exec(`SELECT pg_logical_emit_message(true, 'orders', '{"id": "half", "payload": {}}')`)
	b.exec(message("good", "1"))
	r.waitSeen("half", "good")
	r.endClean()
	for i, want := range []replicationtest.Recorded{
		{Fault: "not a JSON object", Raw: "no JSON"},
		{Fault: "not UTF-8", Raw: `{"message:hex":"ff00"}`},
		{Fault: `no member "key"`, Raw: `{"id": "half", "payload": {}}`, Id: "half"},
	} {
		if got := b.current().All()[i]; !strings.Contains(got.Fault, want.Fault) || got.Raw != want.Raw || got.Id != want.Id {
			t.Errorf("event %d is %+v, want %+v", i, got, want)
		}
	}
}

// A relay of messages alone needs no table and nothing in its publication, and none of the checks
// about them is in its way.
func TestMessagesAlone(t *testing.T) {
	b := shared(t)
	b.relayMessages()
	b.cfg.Tables = nil
	b.exec(`INSERT INTO outbox VALUES ('before', '{}')`) // nobody asks about it
	b.exec(message("before", "1"))
	list, err := check.Run(await.Context(t), b.cfg)
	if err != nil || slices.ContainsFunc(list, func(f check.Finding) bool { return f.Level == check.LevelFail || f.Name == "tables" }) {
		t.Errorf("check before the first start: %+v, %v", list, err)
	}
	b.wantStop(setup.Init(await.Context(t), b.cfg, setup.InitOptions{OutboxTable: true}), event.ExitUsage, "config")
	for range 2 {
		b.init(setup.InitOptions{})
	}
	b.wantText("0", `SELECT count(*)::text FROM pg_publication_tables WHERE pubname = 'p'`)
	r := b.streaming()
	b.exec(`BEGIN; INSERT INTO outbox VALUES ('row', '{}'); ` + message("a", "1") + ` UPDATE outbox SET payload = '[]'; COMMIT`)
	r.waitSeen("a")
	// What an alteration hides is no message.
	b.exec(`ALTER PUBLICATION p SET (publish = '')`)
	r.waitChecked()
	b.exec(message("b", "1"))
	r.waitSeen("b")
	await.Until(t, "all to be reported", func() bool { return b.confirmedFlush() >= b.current().OwnWatermark() })
	r.endClean()
	b.wantSeen("a", "b")
	f := b.wantLine(check.LevelWarn, "messages", `"orders"`, "every login of this database can forge events")
	b.exec(strings.NewReplacer("as a superuser, in this database: ", "", "<role that writes events>", "CURRENT_USER").Replace(f.Fix))
	list, err = check.Run(await.Context(t), b.cfg)
	if err != nil || slices.ContainsFunc(list, func(f check.Finding) bool {
		return f.Level != check.LevelOK && f.Name != "wal senders" && f.Name != "audit"
	}) ||
		!slices.ContainsFunc(list, func(f check.Finding) bool { return f.Name == "messages" && strings.Contains(f.Detail, `"orders"`) }) {
		t.Errorf("check beside the slot: %+v, %v", list, err)
	}

	r = b.streaming()
	b.exec(message("c", "1"))
	r.waitSeen("c")
	b.wantSeen("c")
	// before PostgreSQL 18 the next row of any table would end the slot
	b.exec(`DROP PUBLICATION p`)
	b.wantStop(r.wait(), event.ExitOperator, "publication")
	b.waitNoWalsender()
	await.Must(t, setup.Teardown(await.Context(t), b.cfg, false))
	b.wantCount("0 slots, 0 publications, 0 schemas")
}

// What a relay reads again after a crash has the positions that it had, also when the prefix was
// configured in between: the rows of a transaction stay what they were, its messages join them.
func TestPrefixConfiguredLater(t *testing.T) {
	b := shared(t)
	b.held = true
	r := b.streaming()
	b.exec(`BEGIN; ` + message("a", "1") + `INSERT INTO outbox VALUES ('b', '1'); ` + message("c", "1") + `INSERT INTO outbox VALUES ('d', '1'); COMMIT`)
	r.waitSeen("b", "d")
	rows := b.current().All()
	r.cut() // nothing was confirmed
	if err := r.end(); err == nil {
		t.Fatal("a clean stop, with nothing settled")
	}
	b.held = false
	b.relayMessages()
	b.delivers("a", "b", "c", "d")
	both := b.current().All()
	if len(both) != 4 || both[1].Position != rows[0].Position || both[3].Position != rows[1].Position ||
		both[0].Position.Index != 0 || both[2].Position.Index != 2 {
		t.Errorf("the rows were at %v and %v, then: %+v", rows[0].Position, rows[1].Position, both)
	}
}

// What waits in a slot may be nowhere else: a message, or a row that was deleted at once. The fix
// that drops the slot shows it first, also what the publication no longer sends.
func TestFixShowsWhatWaitsInTheSlot(t *testing.T) {
	b := shared(t)
	b.relayMessages()
	b.goesOn("a")
	b.exec(message("a message", "1"))
	b.insert("a row")
	b.exec(`DELETE FROM outbox; DROP PUBLICATION p`)
	stop := b.wantStop(b.run().wait(), event.ExitOperator, "publication")
	b.waitFree()
	// as it is stored: the server may not be able to convert it
	look := regexp.MustCompile(`SET client_encoding = 'SQL_ASCII'|SELECT pg_copy_logical_replication_slot[^;]*|SELECT \* FROM pg_logical_slot_peek_changes[^;]*`).FindAllString(stop.Fix, -1)
	if len(look) != 3 {
		t.Fatalf("no statements that show it in: %s", stop.Fix)
	}
	b.exec(look[0])
	b.exec(look[1])
	var shown string
	b.scan(&shown, `SELECT string_agg(data, ' ') FROM (`+look[2]+`) changes`)
	for _, id := range []string{"a message", "a row"} {
		if !strings.Contains(shown, id) {
			t.Errorf("it does not show %s: %s", id, shown)
		}
	}
	b.runFix(stop)
	b.goesOn("b")
}
