package cli

import (
	"strings"
	"testing"
)

// init and run say that nothing tells which rows were delivered, and init makes no slot. What they
// advise helps.
func TestRetentionWithoutTheColumn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.exec(`ALTER TABLE outbox DROP COLUMN IF EXISTS tx CASCADE`)
	r.more = "retention: {mode: delete, keep: 1h}"
	words := []string{"public.outbox has no column tx of type xid8 (outbox.transaction)", "cdc-relay init --add-transaction-column"}
	r.refused(2, "init", words...)
	if n := ask[int](r, `SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1`, r.slot); n != 0 {
		t.Error("a slot was left behind")
	}
	r.refused(2, "run", words...)
	r.exec(`CREATE PUBLICATION other FOR TABLE outbox`)
	r.refused(2, "init --add-transaction-column", "is also in publication other", "missing replicated column", "--force")
	r.ok("init", "--add-transaction-column", "--force")
	r.ok("init", "--add-transaction-column") // again
	r.exec(`DROP PUBLICATION other`)
	r.ok("init")
	if said := r.command("check"); !strings.Contains(said.Stdout, "rows that were delivered are deleted, 1h after that") {
		t.Errorf("check says %s", said.Stdout)
	}
}

// A relay that may no longer use the outbox's schema cannot delete there. It delivers all the same,
// and check says what is missing.
func TestRetentionWithoutRights(t *testing.T) {
	t.Parallel()
	role := newRole(t, "LOGIN REPLICATION")
	r := newRig(t)
	owner := r.db
	relayDB := as(owner, role, "")
	r.more = "retention: {mode: delete, keep: 1h}"
	r.db = relayDB
	r.ok("init", "--url", owner, "--role", role)
	r.db = owner
	r.exec(`REVOKE USAGE ON SCHEMA public FROM PUBLIC, ` + role)
	r.db = relayDB
	relay := r.start()
	r.db = owner
	r.insert(1)
	eventually(t, func() string { return wantLines(relay, 1) })
	r.db = relayDB
	said := r.command("check", "--json")
	found := false
	for _, f := range checked(t, said.Stdout) {
		found = found || f.Name == "retention" && f.Level == "fail" && f.Fix == "GRANT USAGE ON SCHEMA public TO "+role+"; GRANT SELECT, DELETE, UPDATE (id) ON public.outbox TO "+role
	}
	if said.Code != 1 || !found {
		t.Errorf("check exits %d and says %s", said.Code, said.Stdout)
	}
	relay.Stop(t)
	r.db = owner
	r.exec(`GRANT USAGE ON SCHEMA public TO PUBLIC`)
	r.released()
	r.ok("teardown", "--yes")
	r.exec("DROP OWNED BY " + role)
}
