package cli

import (
	"path/filepath"
	"strings"
	"testing"
)

// located is what events show says of an event.
func (r *rig) located(id string) string { return r.ok("events", "show", id) }

// A relay that runs says that an event is delivered as soon as it is, and of one that it cannot
// send that it is in flight. Nobody reads what is committed after it has ended.
func TestEventsShowOfARelay(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.admin = ", socket: " + filepath.Join(t.TempDir(), "s")
	relay := r.start()
	r.insert(1)
	id := ask[string](r, `SELECT id::text FROM outbox`)
	eventually(t, func() string { return wantLines(relay, 1) })
	eventually(t, func() string { // the line was written a moment before the relay knows that
		if got := r.located(id); !hasAll(got, []string{"state       delivered: the broker has confirmed it", "row         in public.outbox\n"}) {
			return got
		}
		return ""
	})
	if code := relay.Stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
	r.exec(`INSERT INTO outbox (id, aggregatetype, aggregateid, type) VALUES ($1, 'a', 'k', 't')`, ofOutbox)
	eventually(t, func() string { // the server takes a moment to see that the relay has gone
		if got := r.located(ofOutbox); !strings.Contains(got, "state       not seen: its row is committed, and no relay leads") {
			return got
		}
		return ""
	})
}
