package cli

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
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

// The view is created by init, and by the SQL that init prints, which the server takes as it is.
// The queries of the documentation run on it.
func TestStatusView(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.exec(`DROP TABLE outbox`)
	cmd := exec.CommandContext(await.Context(t), "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", r.db)
	cmd.Stdin = strings.NewReader(r.ok("init", "--print", "--outbox-table", "--status-view"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("psql: %v: %s", err, out)
	}
	r.insert(2)
	board := func() (results []string) {
		t.Helper()
		queries := regexp.MustCompile(`(?ms)^SELECT [^;]*cdc_relay\.outbox_status[^;]*;`).FindAllString(document(t, "docs/dead-letters.md"), -1)
		if len(queries) != 2 {
			t.Fatalf("docs/dead-letters.md has %d queries of the view, want 2", len(queries))
		}
		for _, q := range queries {
			results = append(results, ask[string](r, `SELECT string_agg(concat_ws(' ', table_name, status), ', ') FROM (`+strings.TrimSuffix(q, ";")+`) q`))
		}
		return results
	}
	const want = "[public.outbox new public.outbox new, public.outbox new]"
	if got := fmt.Sprint(board()); got != want {
		t.Errorf("made by what is printed, the board shows %s, want %s", got, want)
	}
	r.exec(`DROP VIEW cdc_relay.outbox_status`)
	r.ok("init", "--status-view", "--no-slot")
	if got := fmt.Sprint(board()); got != want {
		t.Errorf("made by init, the board shows %s, want %s", got, want)
	}
	r.ok("dead-letters", "list") // the commands accept the view
	r.exec(`DROP TABLE outbox CASCADE`)
	r.refused(1, "init --status-view --no-slot", "cannot create the view cdc_relay.outbox_status: table public.outbox is not there")
	r.source = "  tables: []\n  message_prefix: outbox\n"
	r.refused(2, "init --status-view", "--status-view has no effect: source.tables names no table")
}
