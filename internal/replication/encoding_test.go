// Databases whose encoding is not UTF-8.

package replication

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
)

// Rows, names and prefixes arrive in UTF-8, as the server would have sent them. The server lets in
// text that it cannot convert: a row with such a value is an event with a fault and all its bytes,
// and what comes after it goes on, of its key too. A column that is no part of an event is not
// looked at, nor are other tables.
func TestDatabaseOfAnotherEncoding(t *testing.T) {
	t.Parallel()
	for encoding, c := range map[string]struct{ word, bad string }{
		"SQL_ASCII": {"grün", "fc"},
		"WIN1252":   {"grün€", "81"},
		"EUC_JP":    {"注文ｱ", "a2af"},
	} {
		t.Run(encoding, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, servers.OwnPostgres(t).DatabaseOf(t, encoding))
			b.exec(`SET client_encoding = 'UTF8'`)
			b.exec(fmt.Sprintf(`DROP TABLE outbox; CREATE TABLE "%[1]s" (id text PRIMARY KEY, "%[1]s" text, payload text, note text); CREATE TABLE other (t text)`, c.word))
			b.exec(fmt.Sprintf(`CREATE PUBLICATION "%[1]s" FOR TABLE "%[1]s", other`, c.word))
			b.cfg.Publication = c.word
			b.cfg.Tables[0].Name = c.word
			b.cfg.Tables[0].Mapping.Key = decode.Names{Any: []string{c.word}}
			b.cfg.Messages = decode.Messages{Prefix: c.word, Mapping: b.cfg.Tables[0].Mapping}
			r := b.streaming()

			// convert_from leaves what is in the database's own encoding as it is
			b.exec(strings.NewReplacer("WORD", c.word, "BAD", fmt.Sprintf(`convert_from('\x%s', current_setting('server_encoding'))`, c.bad)).Replace(`BEGIN;
				INSERT INTO "WORD" VALUES ('WORD 1', 'WORD', 'a WORD b');
				INSERT INTO other VALUES (BAD);
				INSERT INTO "WORD" VALUES ('bad', 'WORD', 'a' || BAD || 'b', 'WORD');
				SELECT pg_logical_emit_message(true, BAD, '');
				SELECT pg_logical_emit_message(true, 'WORD', convert_to('{"id": "WORD 2", "WORD": "WORD", "payload": "WORD"}', 'UTF8'));
				INSERT INTO "WORD" VALUES ('WORD 3', 'WORD', '', BAD);
				COMMIT`))
			r.waitSeen(c.word + " 3")
			r.endClean()
			b.wantSeen(c.word+" 1", "bad", c.word+" 2", c.word+" 3")
			all := b.current().All()
			for i, want := range []struct {
				payload string
				index   uint32
			}{{"a " + c.word + " b", 0}, {"", 2}, {`"` + c.word + `"`, 4}, {"", 5}} {
				if ev := all[i]; ev.Key != c.word || ev.Payload != want.payload || ev.Position.Index != want.index || (ev.Fault != "") != (i == 1) {
					t.Errorf("event %d: %+v, want payload %q, index %d", i, ev, want.payload, want.index)
				}
			}
			raw := fmt.Sprintf(`{"id":"bad","%[1]s":"%[1]s","payload:hex":"61%[2]s62","note":"%[1]s"}`, c.word, c.bad)
			if ev := all[1]; ev.Raw != raw || !strings.Contains(ev.Fault, `column "payload" of public.`+c.word) {
				t.Errorf("the fault is %s, of the row %s; want %s", ev.Fault, ev.Raw, raw)
			}
			if n := r.sessions(); n != 1 {
				t.Errorf("%d sessions, want one", n)
			}
		})
	}
}
