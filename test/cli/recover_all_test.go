//go:build testall

package cli

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
)

// With commit timestamps the rows come in the order of their commits, which is not that of their
// transactions' ids.
func TestRecoverInOrderOfCommits(t *testing.T) {
	t.Parallel()
	r := trackedDay(t).rig
	relay := r.start()
	r.place("a", 1)
	wantSent(t, relay, "a", 1)
	ended(t, relay)
	conn, err := pgx.Connect(await.Context(t), r.db)
	must(t, err)
	defer conn.Close(context.Background())
	early := func(sql string) {
		_, err := conn.Exec(await.Context(t), sql)
		must(t, err)
	}
	row := func(n string) string {
		return `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES (gen_random_uuid(), 'order', 'a', 'created', '{"n": ` + n + `}');`
	}
	early(`BEGIN; ` + row("3"))
	r.place("a", 2)
	early(`SAVEPOINT s; ` + row("4") + `RELEASE s; ` + row("5") + `COMMIT`)
	r.dropSlot()
	out := r.ok("recover")
	for _, want := range []string{"recovered: 4 rows", "order: commit timestamps", "cannot be recovered: rows that were deleted"} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not say %q: %s", want, out)
		}
	}
	r.place("a", 6)
	relay = r.start()
	wantSent(t, relay, "a", 2, 3, 4, 5, 6)
	relay.Stop(t)
}

// Rows from before the slot, and what does not go together.
func TestBackfill(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.place("a", 1)
	r.place("a", 2)
	r.refused(2, "init --backfill=id= --unordered", "the WHERE is not a condition")
	if ask[bool](r, `SELECT to_regnamespace('cdc_relay') IS NOT NULL`) {
		t.Error("init has created the schema before it looked at the WHERE")
	}
	r.refused(2, "init", "already has 2 rows", "init --backfill")
	r.refused(2, "init --backfill", "order unknown")
	if n := ask[int](r, `SELECT count(*) FROM pg_replication_slots WHERE slot_name = '`+r.slot+`'`); n != 0 {
		t.Error("a slot was made")
	}
	if out := r.ok("init", "--backfill", "--order-by", "created_at"); !strings.Contains(out, "recovered: 2 rows") {
		t.Errorf("it says %s", out)
	}
	r.place("a", 3)
	relay := r.start()
	wantSent(t, relay, "a", 1, 2, 3)
	relay.Stop(t)
	r.refused(2, "init --backfill", "has been in use")
}

// The relay's role needs no more rights than init gives it.
func TestRecoverByTheRelaysRole(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.exec(`CREATE ROLE ` + r.slot + ` LOGIN REPLICATION`)
	t.Cleanup(func() { r.exec(`DROP OWNED BY ` + r.slot + `; DROP ROLE ` + r.slot) })
	r.ok("init", "--role", r.slot)
	r.dropSlot()
	r.place("a", 1)
	own := *r
	own.db = as(r.db, r.slot, "")
	if out := own.ok("recover", "--unordered", "--reason", "why"); !strings.Contains(out, "recovered: 1 row ") {
		t.Errorf("it says %s", out)
	}
	relay := own.start()
	wantSent(t, relay, "a", 1)
	relay.Stop(t)
	r.released()
}
