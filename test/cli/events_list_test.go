package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/dlq"
)

// The events of a key are listed with their states and without payloads. What was not searched ends
// with exit 1 and the index to make.
func TestEventsList(t *testing.T) {
	look := aRetryTable.join(t)
	t.Parallel()
	r := look()
	var list dlq.EventList
	out := r.ok("events", "list", "--key", "k1", "--json")
	must(t, json.Unmarshal([]byte(out), &list))
	if len(list.Items) == 0 || !list.Complete || strings.Contains(out, "payload") {
		t.Errorf("of k1 it lists %s", out)
	}
	for i := range list.Items {
		e := &list.Items[i]
		if *e.Key != "k1" || e.N == 0 || i > 0 && list.Items[i-1].CommittedAt.Before(*e.CommittedAt) {
			t.Errorf("item %d is %+v", i, e)
		}
	}
	text := r.ok("events", "list", "--key", "k1", "--state", "dead-letter", "--limit", "1")
	if !strings.HasPrefix(text, "AT (UTC)") || !strings.Contains(text, "dead letter") || !strings.Contains(text, "there are older ones") {
		t.Errorf("as text it is\n%s", text)
	}
	if got := r.ok("events", "list", "--key", "nobody's"); got != "none\n" {
		t.Errorf("of nobody's key it lists %s", got)
	}
	r.refused(2, "events list", "--key is missing")
	r.refused(2, "events list --key k1 --state open", "--state", "delivered")
	r.refused(2, "events list --key k1 --every 3s", "--every", "--follow")
	r.refused(2, "events list --key k1 --limit 0", "--limit")
	r.refused(2, "events list --key k1 --from 9x", "--from")

	groups := r.ok("dead-letters", "list", "--group", "reason")
	if !strings.HasPrefix(groups, "COUNT  OLDEST (UTC)") || !strings.Contains(groups, "too_large") {
		t.Errorf("by reason there are\n%s", groups)
	}
	if got := r.ok("deferred", "list", "--group", "destination"); !strings.Contains(got, "deferred retry DESTINATION") {
		t.Errorf("by destination there are\n%s", got)
	}
	for _, by := range []string{"reason", "type"} {
		if got := r.ok("deferred", "list", "--group", by); strings.Contains(got, "deferred retry DESTINATION") {
			t.Errorf("by %s there are\n%s", by, got)
		}
	}
	r.refused(2, "dead-letters list --group key", "--group")
	r.refused(2, "dead-letters list --group reason --key k1", "--group")
	r.refused(2, "deferred retry orders --all", "orders", "--all")
}

// A large table without an index is not read.
func TestEventsListNamesTheIndex(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.ok("init")
	r.exec(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) SELECT gen_random_uuid(), 'a', 'k', 't', to_jsonb(repeat('x', 900)) FROM generate_series(1, 20000)`)
	res := r.command("events", "list", "--key", "k")
	if res.Code != 1 || !strings.Contains(strings.Join(strings.Fields(res.Stderr), " "), `CREATE INDEX CONCURRENTLY ON public.outbox ("aggregateid"`) {
		t.Errorf("exit %d, %s", res.Code, res.Stderr)
	}
}
