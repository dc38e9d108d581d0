// An outbox without a table: logical messages with a prefix, alone and in addition to a table.

package replication

import (
	"fmt"
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
	// which other tests share
	ofServer := []string{"wal senders", "commit times", "audit", "open transactions"}
	if err != nil || slices.ContainsFunc(list, func(f check.Finding) bool {
		return f.Level != check.LevelOK && !slices.Contains(ofServer, f.Name)
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
