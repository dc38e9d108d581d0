//go:build testall

package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
)

// In a database that is not UTF-8 a row with text that cannot be converted is a dead letter, which
// the commands show with its bytes. The rows around it, of its key, are delivered.
func TestDeadLetterOfAnotherEncoding(t *testing.T) {
	t.Parallel()
	r := on(t, servers.SharedPostgres(t).DatabaseOf(t, "WIN1252"))
	r.exec(load.OutboxTable)
	relay := r.start()
	r.exec(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) SELECT gen_random_uuid(), 'order', U&'gr\00fcn\20ac', U&'f\00fcr', jsonb_build_object('n', n,
		U&'\00e4', CASE n WHEN 2 THEN convert_from('\x6181', 'WIN1252') ELSE U&'\00f6' END) FROM generate_series(1, 3) n`)
	eventually(t, func() string {
		if out := relay.Stdout(); strings.Count(out, "\n") != 2 {
			return "delivered is: " + out
		}
		return ""
	})
	for i, line := range strings.Split(strings.TrimSpace(relay.Stdout()), "\n") {
		var got struct {
			Key, Type string
			Payload   json.RawMessage
		}
		must(t, json.Unmarshal([]byte(line), &got))
		if want := fmt.Sprintf(`{"n":%d,"ä":"ö"}`, 2*i+1); got.Key != "grün€" || strings.ReplaceAll(string(got.Payload), " ", "") != want {
			t.Errorf("delivered is %s, want %s of key grün€", line, want)
		}
	}
	rows := decoded[rowsPage](t, r.ok("dead-letters", "list", "--json")).Items
	if len(rows) != 1 || rows[0].Reason != "undecodable" || rows[0].Key != "grün€" || !strings.Contains(rows[0].Error, `column "payload" of public.outbox`) {
		t.Fatalf("dead letters: %+v", rows)
	}
	number := fmt.Sprint(rows[0].N)
	want := `"payload:hex":"` + fmt.Sprintf("%x", `{"n": 2, "`+"\xe4"+`": "a`+"\x81"+`"}`) + `"`
	if out := r.ok("dead-letters", "show", number); !strings.Contains(out, want) || !strings.Contains(out, "für") {
		t.Errorf("no %s in\n%s", want, out)
	}
	r.refused(1, "dead-letters replay "+number, "undecodable")
	if code := relay.Stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
}
