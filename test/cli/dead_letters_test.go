package cli

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

// refusedRig is a rig whose database has dead letters 1 to n and deferred rows after them, one of
// each key "k0" to "k4" in turn. No relay has run: the rows are made here, as the tables describe
// them. Tests that change nothing share aRetryTable.
func refusedRig(t *testing.T, deadLetters, deferred int) *rig {
	t.Helper()
	r := newRig(t)
	r.refuse(deadLetters, deferred)
	return r
}

func (r *rig) refuse(deadLetters, deferred int) {
	r.t.Helper()
	r.ok("init")
	const columns = `slot, system_id, incarnation, commit_lsn, idx, n, ordering_group, exchange_or_topic, dest, hash, keyed, ordered, attempts, bytes, deferred_at, first_failed_at,
		failed_at, class, reason, error, destination, route_name, routing_key, commit_time, event_time, id, aggregate, key, type, payload_kind, payload`
	const values = `SELECT s.slot, s.system_id, 1, ('0/0'::pg_lsn + 1000 * i), 0, i, 1 * i, 1, 1, i, i > 0, true, 1, 10, at - interval '0', at + interval '0', date_trunc('second', at),
		CASE i % 2 WHEN 0 THEN 'permanent' ELSE 'destination' END, CASE i % 2 WHEN 0 THEN 'too_large' ELSE 'unroutable' END, CASE i % 2 WHEN 0 THEN 'over # bytes' ELSE 'NO_ROUTE' END, '', 'orders', 'eu.created', at, at,
		convert_to('e-' || i, 'UTF8'), 'order', convert_to('k' || i % 5, 'UTF8'), 'created', 0, convert_to('{"secret":' || i || '}', 'UTF8')`
	const from = ` FROM cdc_relay.slots s, generate_series($1::int, $2::int) i, LATERAL (SELECT '2026-11-20 12:00:00Z'::timestamptz + i * interval '1 s' AS at) a`
	r.exec(`INSERT INTO cdc_relay.dead_letter (`+columns+`, died_at) `+values+`, at`+from, 1, deadLetters)
	r.exec(`INSERT INTO cdc_relay.retry (`+columns+`, next_attempt) `+values+`, now() + interval '1 hour'`+from, deadLetters+1, deadLetters+deferred)
}

// contents is a fingerprint of all that these commands can change.
func (r *rig) contents() string {
	r.t.Helper()
	return ask[string](r, `SELECT (SELECT md5(string_agg(t::text, '' ORDER BY n)) FROM cdc_relay.dead_letter t) || coalesce((SELECT md5(string_agg(t::text, '' ORDER BY n)) FROM cdc_relay.retry t), '')
		|| (SELECT count(*) FROM cdc_relay.request) || ' ' || (SELECT count(*) FROM cdc_relay.bulk) || ' ' || (SELECT count(*) FROM cdc_relay.audit)`)
}

func decoded[T any](t *testing.T, out string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		t.Fatalf("%q is no JSON: %v", out, err)
	}
	return v
}

type rowsPage struct {
	Items []struct {
		N                             int64
		State, ID, Key, Class, Reason string
		Destination, Error, Position  string
		Attempts                      int
	}
	Next string
}

func TestDeadLettersList(t *testing.T) {
	look := aRetryTable.join(t)
	t.Parallel()
	r := look()
	want := `NUMBER  DIED (UTC)           STATE  ID   AGGREGATE  KEY  TYPE     DESTINATION        REASON      ATTEMPTS  ERROR
7       2026-11-20 12:00:07  open   e-7  order      k2   created  orders/eu.created  unroutable  1         NO_ROUTE
6       2026-11-20 12:00:06  open   e-6  order      k1   created  orders/eu.created  too_large   1         over # bytes
more: --cursor 1795176006000000-6
`
	if got := r.ok("dead-letters", "list", "--limit", "2", "--wide"); got != want {
		t.Errorf("the list is\n%swant\n%s", got, want)
	}
	shownIn(t, document(t, "docs/dead-letters.md"), want)
	if got := r.ok("dlq", "list", "--limit", "2", "--cursor", "1795176006000000-6"); !strings.Contains(got, "\n5 ") || !strings.Contains(got, "\n4 ") || strings.Contains(got, "\n6 ") {
		t.Errorf("the next page is\n%s", got)
	}
	for line, want := range map[string]string{
		"dead-letters list --key k1":                                   "[6 1] ",
		"dead-letters list --key-of 8":                                 "[3] ",
		"dead-letters list --id e-3 --aggregate order --type created":  "[3] ",
		"dead-letters list --class permanent --limit 2":                "[6 4] 1795176004000000-4",
		"dead-letters list --error too_large":                          "[6 4 2] ",
		"dead-letters list --destination orders/us.created":            "[] ",
		"dead-letters list --state replayed":                           "[] ",
		"dead-letters list --from 2026-11-20T12:00:06Z":                "[7 6] ",
		"dead-letters list --from 2026-11-20 --to 2026-11-21 --id e-1": "[1] ",
		"dead-letters list --from 9000d --id e-1":                      "[1] ",
		"deferred list --key k3":                                       "[8] ",
	} {
		page := decoded[rowsPage](t, r.ok(append(strings.Fields(line), "--json")...))
		ns := []int64{}
		for _, row := range page.Items {
			ns = append(ns, row.N)
		}
		if got := fmt.Sprint(ns, " ", page.Next); got != want {
			t.Errorf("%s gives %s, want %s", line, got, want)
		}
	}
	if got := r.ok("dead-letters", "list", "--key", "nobody's"); got != "none\n" {
		t.Errorf("a list of nothing is %q", got)
	}
}

func TestDeadLettersShow(t *testing.T) {
	look := aRetryTable.join(t)
	t.Parallel()
	r := look()
	out := r.ok("dead-letters", "show", "2")
	for _, want := range []string{"dead letter 2, open\n", "event       e-2, type created\n", "key         k2 of order\n", "refused     too_large (permanent): over # bytes\n", "payload     application/json, 12 B: {\"secret\":2}\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	type shown struct {
		N       int64
		Payload struct {
			Text   string
			Hidden bool
		}
	}
	if got := r.ok("deferred", "show", "8"); !strings.HasPrefix(got, "deferred row 8\nevent       e-8, ") {
		t.Errorf("the deferred row is shown as\n%s", got)
	}
	if got := r.ok("dead-letters", "show", "7"); !strings.Contains(got, "x… (--json has all of it)\n") || strings.Count(got, "x") > 4200 {
		t.Errorf("a long payload is shown as\n%s", got)
	}
	if got := decoded[shown](t, r.ok("dead-letters", "show", "7", "--json")); len(got.Payload.Text) != 5000 {
		t.Errorf("as JSON it has %d bytes of payload", len(got.Payload.Text))
	}
	if got := decoded[shown](t, r.ok("deferred", "show", "8", "--json")); got.N != 8 || got.Payload.Text != `{"secret":8}` {
		t.Errorf("the deferred row is %+v", got)
	}
	r.refused(1, "dead-letters show 8", "there is no dead letter 8 of slot", "it is deferred: cdc-relay deferred show 8")
	r.refused(1, "deferred show 17", "there is no deferred row 17")
	r.more = "admin: {show_payloads: false, listen: 127.0.0.1:0}"
	hiding := strings.Replace(r.yaml(), "admin: {listen: 127.0.0.1:0}\n", "", 1)
	for _, args := range [][]string{{"dead-letters", "show", "2"}, {"dead-letters", "show", "2", "--json"}, {"deferred", "show", "8"}} {
		res, err := runner.RunCommand(await.Context(t), r.binary, hiding, args...)
		must(t, err)
		if res.Code != 0 || strings.Contains(res.Stdout, "secret") || !strings.Contains(res.Stdout, "e-") {
			t.Errorf("%v with show_payloads: false: exit %d, %s%s", args, res.Code, res.Stdout, res.Stderr)
		}
	}
}

// While no relay runs, what is asked for is written down, and the command says so and does not
// wait.
func TestAskedForWhileNoRelayRuns(t *testing.T) {
	t.Parallel()
	r := refusedRig(t, 6, 3)
	r.dryRuns()
	asked := []struct{ line, want string }{
		{"dead-letters replay 1 --reason fixed", "replay of dead letter 1: request 1\nqueued, no relay running: carried out when one starts\n"},
		{"dead-letters replay 1", "replay of dead letter 1, already requested by WHO: request 1\nqueued, no relay running: carried out when one starts\n"},
		{"dead-letters discard 2 3", "discard of dead letter 2: request 3\ndiscard of dead letter 3: request 4\nqueued, no relay running: carried out when one starts\n"},
		{"dead-letters redact --id e-4", "redact of dead letter 4: request 5\nqueued, no relay running: carried out when one starts\n"},
		{"deferred retry 7", "retry of deferred row 7: request 6\nqueued, no relay running: carried out when one starts\n"},
		{"dead-letters redact --all --key k0", "job 1: redact of 1 dead letter is queued, no relay running: carried out when one starts\n`cdc-relay dead-letters job 1` shows progress; --cancel stops it\n"},
		{"deferred dead-letter --all --rate 5/s", "job 2: dead-letter of 3 deferred rows is queued, no relay running: carried out when one starts\n`cdc-relay dead-letters job 2` shows progress; --cancel stops it\n"},
		{"dead-letters purge --key k2", "job 3: purge of 2 rows is queued, no relay running: carried out when one starts\n`cdc-relay dead-letters job 3` shows progress; --cancel stops it\n"},
		{"dead-letters discard --all --key nobody", "nothing to discard: no row matches\n"},
	}
	shownIn(t, document(t, "docs/dead-letters.md"), asked[0].want)
	for _, c := range asked {
		who := ask[string](r, `SELECT coalesce((SELECT who FROM cdc_relay.request WHERE id = 1), '')`)
		if got := r.ok(strings.Fields(c.line)...); got != strings.ReplaceAll(c.want, "WHO", who) {
			t.Errorf("%s says\n%swant\n%s", c.line, got, c.want)
		}
	}
	if got := ask[string](r, `SELECT who || '|' || reason FROM cdc_relay.request WHERE id = 1`); got != "postgres|fixed" {
		t.Errorf("the request is by %s", got)
	}
	r.refused(1, "dead-letters discard --id nobody", "there is no dead letter of event \"nobody\"", "events show")
	r.refused(1, "dead-letters discard --id e-1", "discard 1: a replay of it waits already")
	r.refused(1, "dead-letters discard 1", "discard 1: a replay of it waits already (request 1")
	line := r.refused(1, "dead-letters discard 1 5 17", "discard was not done for 2 of 3 dead letters")
	if strings.Contains(line, "17") {
		t.Errorf("the last line is %s", line)
	}
	if got := decoded[struct{ Items []struct{ ID int64 } }](t, r.ok("dead-letters", "job", "--json")); len(got.Items) != 3 || got.Items[0].ID != 3 {
		t.Errorf("the jobs are %+v", got)
	}
	if got := r.ok("dead-letters", "job", "3", "--cancel"); got != "job 3 was cancelled: 0 of 2 done\n" {
		t.Errorf("cancelling says %q", got)
	}
	if got := decoded[struct{ State string }](t, r.ok("dead-letters", "job", "3", "--json")); got.State != "cancelled" {
		t.Errorf("the job is %s", got.State)
	}
	r.refused(1, "dead-letters job 99", "there is no job 99")
	r.refused(1, "dead-letters request 99", "there is no request 99")
	if got := r.ok("dead-letters", "request", "1"); !strings.HasPrefix(got, "replay of dead letter 1, requested by postgres at ") || !strings.HasSuffix(got, " (fixed): waiting\n") {
		t.Errorf("the request is told as %q", got)
	}
	if got := r.ok("dead-letters", "request", "6", "--cancel"); !strings.HasPrefix(got, "retry of deferred row 7, requested by postgres at ") || !strings.Contains(got, ": cancelled 20") {
		t.Errorf("cancelling a request says %q", got)
	}
	if got := decoded[struct{ State string }](t, r.ok("dead-letters", "request", "6", "--cancel", "--json")); got.State != "cancelled" {
		t.Errorf("the request is %s", got.State)
	}
	if got := decoded[rowsPage](t, r.ok("dead-letters", "list", "--state", "replaying", "--json")); len(got.Items) != 1 || got.Items[0].N != 1 || got.Items[0].State != "replaying" {
		t.Errorf("replaying are %+v", got)
	}
}

// dryRuns asks for what would be done: nothing is.
func (r *rig) dryRuns() {
	t := r.t
	t.Helper()
	r.exec(`UPDATE cdc_relay.dead_letter SET state = 'discarded', closed_at = '2026-11-21' WHERE n = 6`)
	before := r.contents()
	for _, c := range []struct {
		line, want string
		code       int
	}{
		{"dead-letters replay 1 2 --dry-run", "replay would apply to 2 dead letters; nothing was changed\n", 0},
		{"dead-letters replay 1 17 --dry-run", "there is no dead letter 17 of slot \"SLOT\"\nreplay would apply to 1 dead letter; nothing was changed\n", 1},
		{"dead-letters replay --id e-2 --dry-run", "replay would apply to 1 dead letter; nothing was changed\n", 0},
		{"dead-letters discard 6 --dry-run", "dead letter 6 was discarded already, at 2026-11-21T00:00:00Z\n", 0},
		{"dead-letters replay --all --dry-run", "replay would apply to 5 dead letters; nothing was changed\n", 0},
		{"dead-letters purge --all --dry-run", "purge would apply to 1 row; nothing was changed\n", 0},
		{"dead-letters purge --key k1 --dry-run", "purge would apply to 2 rows; nothing was changed\n", 0},
		{"deferred retry --all --class transient --dry-run --json", "{\n  \"dry_run\": true,\n  \"matched\": 0\n}\n", 0},
	} {
		res := r.command(strings.Fields(c.line)...)
		if res.Code != c.code || res.Stdout != strings.ReplaceAll(c.want, "SLOT", r.slot) {
			t.Errorf("%s: exit %d, says\n%swant\n%s", c.line, res.Code, res.Stdout, c.want)
		}
	}
	r.refused(2, "dead-letters list --cursor x", "--cursor is \"x\"")
	r.refused(2, "dead-letters replay --all --state discarded", "--state is \"discarded\"", "only open dead letters")
	if r.contents() != before {
		t.Error("something was changed")
	}
	r.exec(`UPDATE cdc_relay.dead_letter SET state = 'open', closed_at = NULL WHERE n = 6`)
}

func TestEventsShow(t *testing.T) {
	look := aRetryTable.join(t)
	t.Parallel()
	r := look()
	for wanted, words := range map[string][]string{
		"e-2":    {"state       dead letter: dead letter 2: open\n", "see         cdc-relay dead-letters show 2 (open since 2026-11-20T12:00:02Z)\n"},
		"e-9":    {"state       deferred: deferred row 9: refused, unroutable: ", "; it is tried again at 2", "cdc-relay deferred show 9"},
		ofOutbox: {"state       not seen: ", "row         in public.outbox\n"},
		"none":   {"state       not in the table: "},
	} {
		got := r.ok("events", "show", wanted)
		for _, w := range words {
			if !strings.Contains(got, w) {
				t.Errorf("%s: no %q in\n%s", wanted, w, got)
			}
		}
	}
	if got := decoded[struct{ State string }](t, r.ok("events", "show", "e-1", "--json")); got.State != "dead letter" {
		t.Errorf("as JSON it is %s", got.State)
	}
}

func TestOperatorsWithoutTheTables(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, line := range []string{"dead-letters list", "dead-letters replay 1", "dead-letters purge --key k", "deferred list", "events show x", "dead-letters job"} {
		r.refused(1, line, "missing in this database, or of an older version", "cdc-relay init")
	}
	r.db = through(r.db, "127.0.0.1:1")
	if res := r.command("dead-letters", "list"); strings.Count(res.Stderr, "cdc-relay: ") != 1 || strings.Count(res.Stderr, "refused") != 1 {
		t.Errorf("without a server it says\n%s", res.Stderr)
	}
	r.refused(1, "dead-letters list", "connect to PostgreSQL", "refused")
}

// A wrong source.slot is no empty list, and a role that may not do something is told what it needs.
func TestOperatorsWhoAreWrong(t *testing.T) {
	t.Parallel()
	r := refusedRig(t, 1, 0)
	slot, db := r.slot, r.db
	r.slot = "nobodys"
	r.refused(1, "dead-letters list", `no relay has used slot "nobodys" in this database, but `+slot, "source.slot")
	r.slot = slot
	role := fmt.Sprint("ann_", slot)
	r.exec(`CREATE ROLE ` + role + ` LOGIN`)
	t.Cleanup(func() { r.db = db; r.exec(`DROP OWNED BY ` + role); r.exec(`DROP ROLE ` + role) })
	asOperator := func() { r.db = as(db, role, "") }
	asOperator()
	r.refused(1, "dead-letters list", "permission denied for the role of source.url", "permission denied for schema", "docs/dead-letters.md#a-role-for-operators")
	r.db = db
	// The rights that the document lists are enough, and each line is needed for what stands beside
	// it.
	grants := regexp.MustCompile(`(?ms)^GRANT .*?;`).FindAllString(operatorSection(t), -1)
	if len(grants) != 7 {
		t.Fatalf("the document has %d grants: %q", len(grants), grants)
	}
	grant := func(lines []string) {
		r.db = db
		for _, line := range lines {
			r.exec(strings.ReplaceAll(line, " relay_operator;", " "+role+";"))
		}
		asOperator()
	}
	grant(grants[:2])
	r.ok("dead-letters", "show", "1")
	id := "11111111-1111-1111-1111-111111111111"
	r.refused(1, "events show "+id, "permission denied for table outbox")
	r.refused(1, "dead-letters redact 1", "permission denied for table request")
	grant(grants[2:])
	r.ok("events", "show", id)
	r.ok("dead-letters", "redact", "1")
	r.ok("dead-letters", "discard", "--all")
	if got := r.ok("dead-letters", "job", "1", "--cancel"); got != "job 1 was cancelled: 0 of 1 done\n" {
		t.Errorf("cancelling says %q", got)
	}
}
