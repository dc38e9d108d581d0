package replication

import (
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/replicationtest"
	"github.com/cdc-relay/cdc-relay/internal/replication/survey"
)

// A column is replaced as docs/postgresql.md says: the new one is added, old and new versions of
// the application write for a time, each its own, and in the end the old one is dropped. Every
// event has its key and its payload, whoever wrote it.
func TestColumnReplacedDuringARollout(t *testing.T) {
	b := shared(t)
	b.exec(`DROP TABLE outbox`)
	b.exec(`CREATE TABLE outbox (id text PRIMARY KEY, aggregateid text, payload jsonb)`)
	mapping := &b.cfg.Tables[0].Mapping
	mapping.Key = decode.Names{Any: []string{"customer_id", "aggregateid"}}
	mapping.Payload = decode.Names{Any: []string{"body", "payload"}}
	r := b.run()
	r.waitPhase(survey.Streaming)
	b.exec(`INSERT INTO outbox VALUES ('before', '42', '{"n": 1}')`)
	b.exec(`ALTER TABLE outbox ADD COLUMN customer_id bigint, ADD COLUMN body bytea`)
	b.exec(`INSERT INTO outbox (id, aggregateid, payload) VALUES ('old version', '42', '{"n": 2}')`)
	b.exec(`INSERT INTO outbox (id, customer_id, body) VALUES ('new version', 42, '{"n":3}')`)
	b.exec(`INSERT INTO outbox (id, aggregateid, payload, customer_id, body) VALUES ('both', '42', '{"n": 4}', 42, '{"n":4}')`)
	b.exec(`ALTER TABLE outbox DROP COLUMN aggregateid, DROP COLUMN payload`)
	b.exec(`INSERT INTO outbox (id, customer_id, body) VALUES ('after', 42, '{"n":5}')`)
	r.waitSeen("after")
	var got []string
	for _, e := range b.current().Events {
		got = append(got, e.Id+": "+e.Key+" "+e.Payload+e.Fault)
	}
	if want := []string{
		`before: 42 {"n": 1}`, `old version: 42 {"n": 2}`, `new version: 42 {"n":3}`, `both: 42 {"n":4}`, `after: 42 {"n":5}`,
	}; !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	r.endClean()
}

// A column that is used by default, where the table has it, is renamed under the relay. It stops
// before the first row without it, and what came before is settled and reported: so the next start
// goes on, with the new name too or without the column.
func TestDefaultColumnRenamedWhileRunning(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct {
		headers decode.Names
		sent    string
	}{
		"both names":         {decode.Names{Any: []string{"headers", "message_headers"}}, `{"tenant": "c"}`},
		"without the column": {decode.Names{Any: []string{"headers"}, Optional: true}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := shared(t)
			b.exec(`ALTER TABLE outbox ADD COLUMN headers jsonb`)
			headers := &b.cfg.Tables[0].Mapping.Headers
			*headers = decode.Names{Any: []string{"headers"}, Optional: true}
			r := b.settledRun("a")
			b.exec(`INSERT INTO outbox VALUES ('b', '{}', '{"tenant": "b"}')`)
			r.waitSeen("b")
			b.exec(`ALTER TABLE outbox RENAME headers TO message_headers`)
			b.exec(`INSERT INTO outbox VALUES ('c', '{}', '{"tenant": "c"}')`)
			stop := replicationtest.WantStop(t, r.wait(), event.ExitMapping, "mapping")
			if !strings.Contains(stop.What, `headers_column: column "headers" is gone`) || !strings.Contains(stop.Fix, "`headers_column: [headers, ...]`") {
				t.Errorf("%s; the fix: %s", stop.What, stop.Fix)
			}
			if events := b.current().Events; len(events) != 2 || events[1].Headers != `{"tenant": "b"}` {
				t.Errorf("passed: %+v", events)
			}
			*headers = want.headers
			r = b.run()
			r.waitSeen("c")
			if events := b.current().Events; len(events) != 1 || events[0].Headers != want.sent {
				t.Errorf("passed: %+v, want c alone with the headers %s", events, want.sent)
			}
			r.endClean()
		})
	}
}
