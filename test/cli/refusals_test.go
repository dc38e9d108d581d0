package cli

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
)

// run ends with exit 4 when the first start finds no table, or one that the mapping does not fit:
// nothing was created.
func TestTableThatDoesNotFit(t *testing.T) {
	t.Parallel()
	r := bare(t)
	r.refused(4, "run", "table public.outbox does not exist", "cdc-relay init --outbox-table")

	r.exec(`CREATE TABLE outbox (id uuid PRIMARY KEY, aggregatetype text, aggregateid text, payload integer)`)
	line := r.refused(4, "run", "table public.outbox", `no column "type"`, `payload: column "payload" has type`, "wanted json, jsonb, text", "columns there: id, aggregatetype")
	if strings.Contains(line, "traceparent") || strings.Contains(line, "headers") {
		t.Errorf("optional columns are asked for: %s", line)
	}
	r.more = "outbox: {headers_column: headers}"
	r.refused(4, "run", `headers_column: no column "headers"`) // one that is written must exist
	r.more = ""
	// before the broker is asked
	r.sink = "  rabbitmq: {url: 'amqp://127.0.0.1:1/', routing_key: '{column:region}'}"
	r.refused(4, "run", "public.outbox", `no column "region"`)
	r.sink = "  stdout: {}\n  compat: {profile: debezium-connect, options: {table.field.event.key: customer, table.field.event.timestamp: created_at, table.fields.additional.placement: 'tenant:header'}}"
	r.exec(`ALTER TABLE outbox ADD COLUMN created_at timestamptz`)
	r.refused(4, "run", `no column "customer"`, `column "created_at" has type timestamptz, wanted timestamp`, `no column "tenant"`)
	if n := ask[int](r, `SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1`, r.slot); n != 0 {
		t.Error("a slot was created all the same")
	}
}

// wantLines says "" when the relay has written n lines to stdout.
func wantLines(relay *runner.Relay, n int) string {
	if got := strings.Count(relay.Stdout(), "\n"); got != n {
		return "the sink has written " + strings.Repeat("|", got) + ", want " + strings.Repeat("|", n)
	}
	return ""
}

// With source.create: false nothing is made: what is missing is named, with what makes it.
func TestNothingIsMadeWithoutCreate(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	other := *r
	other.slot += "_other"
	r.source = "  create: false"
	r.refused(1, "run", "schema cdc_relay", "cdc-relay init")
	other.ok("init")
	for _, command := range []string{"run", "init"} {
		r.refused(3, command, `slot "`+r.slot+`" does not exist`, "source.create is false", "correct source.slot", "FROM pg_replication_slots")
	}
	r.exec(`SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, r.slot)
	r.refused(3, "run", r.slot, "no relay has used it", "takeover --from-slot "+r.slot, "cdc-relay accept ")
	r.refused(3, "init", `publication "`+r.slot+`" does not exist`, "source.create is false", "correct source.publication")
	if n := ask[int](r, `SELECT count(*) FROM pg_publication WHERE pubname = $1`, r.slot); n != 0 {
		t.Error("the publication was made all the same")
	}
	if n := ask[int](r, `SELECT count(*) FROM cdc_relay.slots WHERE slot = $1`, r.slot); n != 0 {
		t.Error("the slot is somebody's now")
	}
	r.exec(`SELECT pg_drop_replication_slot($1)`, r.slot)
	r.source = ""
	r.ok("init")
	r.source = "  create: false"
	r.ok("init")
	relay := r.start()
	r.insert(1)
	eventually(t, func() string { return wantLines(relay, 1) })
	ended(t, relay)
}

// A database that does not exist is not waited for, and what to do comes before the server's words.
func TestMissingDatabase(t *testing.T) {
	t.Parallel()
	r := on(t, servers.SharedPostgres(t).URL("no_such_database"))
	r.refused(1, "init", `the database "no_such_database" does not exist; create it (CREATE DATABASE`, "the error: ")
}

// A schema that somebody else made is never used, and the statement of the message is the way on.
func TestSchemaOfSomebodyElse(t *testing.T) {
	t.Parallel()
	app := newRole(t, "LOGIN")
	r := newRig(t)
	r.exec(`CREATE SCHEMA cdc_relay AUTHORIZATION ` + app)
	for _, command := range []string{"run", "init", "dead-letters list", "events show 1", "teardown --yes"} {
		r.refused(3, command, "schema cdc_relay belongs to role "+app, "could run code as the relay", "DROP SCHEMA cdc_relay CASCADE")
	}
	r.exec(`DROP SCHEMA cdc_relay CASCADE`)
	r.ok("init")
	relay := r.start()
	relay.Stop(t)
}

// newRole makes a role of the shared server. It must be called before the database is made, so that
// it is dropped after it.
func newRole(t *testing.T, attributes string) string {
	t.Helper()
	r := on(t, servers.SharedPostgres(t).URL("postgres"))
	name := "role_" + r.slot
	r.exec("CREATE ROLE " + name + " " + attributes)
	t.Cleanup(func() { r.exec("DROP ROLE " + name) })
	return name
}

// findingID is the ID in what a message tells the operator to run.
func findingID(t *testing.T, line string) string {
	t.Helper()
	_, after, found := strings.Cut(line, "cdc-relay accept ")
	if !found || len(after) < 12 {
		t.Fatalf("there is no accept in %q", line)
	}
	return after[:12]
}
