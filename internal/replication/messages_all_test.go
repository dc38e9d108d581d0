//go:build testall

package replication

import (
	"regexp"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

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
