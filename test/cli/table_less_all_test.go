//go:build testall

package cli

import (
	"fmt"
	"strings"
	"testing"
)

// Messages and rows of one key arrive in the order in which their transaction wrote them.
func TestLogicalMessagesAmongRows(t *testing.T) {
	t.Parallel()
	b, take := withMessages(t, "[outbox]")
	relay := b.start()
	const transactions, pairs = 5, 20
	for i := range transactions {
		var sql strings.Builder
		sql.WriteString("BEGIN;")
		for j := range pairs {
			fmt.Fprintf(&sql, `SELECT pg_logical_emit_message(true, 'outbox', '{"id": "m", "aggregatetype": "order", "aggregateid": "1", "type": "t", "payload": %d}');
				INSERT INTO outbox VALUES (gen_random_uuid(), 'order', '1', 't', '%d');`, i*1000+2*j, i*1000+2*j+1)
		}
		sql.WriteString("COMMIT")
		b.exec(sql.String())
	}
	last := ""
	for i := range transactions {
		for j := range 2 * pairs {
			d := next(t, take)
			if want := fmt.Sprint(i*1000 + j); string(d.Body) != want {
				t.Fatalf("got %s, want %s", d.Body, want)
			}
			if position := header(d, "cdc_position"); position <= last {
				t.Fatalf("position %s comes after %s", position, last)
			} else {
				last = position
			}
		}
	}
	relay.Stop(t)
}
