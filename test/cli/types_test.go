package cli

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
)

// A domain counts as its base type, in every part of an event, and in a row that waits.
func TestDomainsAreTheirBaseTypes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.more = "outbox: {timestamp: at, headers_column: headers}"
	r.exec(`CREATE DOMAIN json_doc AS jsonb CHECK (jsonb_typeof(VALUE) = 'object'); CREATE DOMAIN strict_doc AS json_doc NOT NULL;
		CREATE DOMAIN key AS uuid; CREATE DOMAIN moment AS timestamptz(3); CREATE DOMAIN word AS varchar(20); CREATE DOMAIN writer AS xid8;
		ALTER TABLE outbox ALTER payload TYPE strict_doc, ALTER id TYPE key, ALTER headers TYPE json_doc USING '{}', ALTER type TYPE word, ADD at moment`)
	insert := func() {
		r.exec(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload, headers, at) VALUES (gen_random_uuid(), 'order', '7', 'created', '{"a": 1}', '{"h": "x"}', '2020-01-02')`)
	}
	relay := r.start()
	insert()
	eventually(t, func() string { return wantLines(relay, 1) })
	if out := relay.Stdout(); !strings.Contains(out, `"headers":{"h":"x"}`) {
		t.Errorf("on stdout is %s", out)
	}
	r.ok("check")
	relay.Stop(t)
	insert() // and the type is gone when it is read
	r.exec(`ALTER TABLE outbox ALTER payload TYPE text; DROP DOMAIN strict_doc`)
	relay = r.start()
	eventually(t, func() string { return wantLines(relay, 1) })
}

// A temporary heir is in no stream, and in no query but those of its session: it is nobody's event,
// whatever it has, and whoever looks.
func TestTemporaryHeir(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.more = "retention: {mode: delete, keep: 1h}"
	ctx := await.Context(t)
	conn, err := pgx.Connect(ctx, r.db)
	must(t, err)
	defer conn.Close(context.WithoutCancel(ctx))
	heir := func() {
		t.Helper()
		_, err := conn.Exec(ctx, `DROP TABLE IF EXISTS scratch; CREATE TEMP TABLE scratch () INHERITS (outbox);
			CREATE RULE nothing AS ON DELETE TO scratch DO INSTEAD NOTHING; INSERT INTO scratch SELECT gen_random_uuid(), 'order', '7', 'created', '{}'`)
		must(t, err)
	}
	heir()
	r.insert(1)
	r.ok("init", "--backfill")
	relay := r.start()
	eventually(t, func() string { return wantLines(relay, 1) })
	heir() // while it runs
	r.insert(1)
	eventually(t, func() string { return wantLines(relay, 2) })
	if out := r.ok("check"); strings.Contains(out, "scratch") {
		t.Errorf("check says\n%s", out)
	}
	r.ok("events", "show", ask[string](r, `SELECT id::text FROM ONLY outbox LIMIT 1`))
	r.ok("resend", "--key", "1", "--aggregate", "order", "--unordered", "--wait", "0")
	relay.Stop(t)
	r.dropSlot()
	r.ok("recover", "--unordered")
	r.exec(`CREATE UNLOGGED TABLE unlogged () INHERITS (outbox)`)
	r.refused(3, "run", "heirs whose rows are not in the WAL", "public.unlogged (UNLOGGED)", "NO INHERIT")
}

// The blanks that fill a char(n) are no part of its value: two columns of different lengths would
// have two keys for one. The payload is as it is stored.
func TestCharWithoutItsBlanks(t *testing.T) {
	t.Parallel()
	b := withBroker(t)
	b.more = "outbox: {headers: {region: region}}"
	b.exec(`CREATE DOMAIN code AS char(36); DROP TABLE outbox;
		CREATE TABLE outbox (id char(40) PRIMARY KEY, aggregatetype char(20), aggregateid code, type char(30), payload char(4), region char(9))`)
	b.addTransactionColumn()
	take := b.queue(t)
	relay := b.start()
	b.exec(`INSERT INTO outbox VALUES ('a-1', 'order', '7 ', 'created', '{}', 'é')`)
	d := delivery(t, take)
	if got, want := fmt.Sprintf("%q", []any{d.RoutingKey, d.MessageId, d.Type, d.Headers["aggregate_type"], d.Headers["aggregate_id"], d.Headers["region"], string(d.Body)}),
		`["order.created" "a-1" "created" "order" "7" "é" "{}  "]`; got != want {
		t.Errorf("the message has %s, want %s", got, want)
	}
	eventually(t, func() string {
		for _, id := range []string{"a-1", "a-1   "} {
			if got := b.located(id); !hasAll(got, []string{"state       delivered", "row         in public.outbox\n"}) {
				return got
			}
		}
		return ""
	})
	relay.Stop(t)
	b.dropSlot()
	if out := b.ok("recover", "--dry-run", "--unordered"); !strings.Contains(out, "0 rows") {
		t.Errorf("what was sent is not known: %s", out)
	}
}
