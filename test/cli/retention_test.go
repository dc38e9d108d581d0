package cli

import "testing"

// init says that the age of rows is not known, as run does, and makes no slot.
func TestRetentionWithoutAge(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.more = "retention: {mode: delete, keep: 1h}"
	words := []string{"retention.keep needs the age of the rows of public.outbox", "outbox.timestamp is not mapped", "track_commit_timestamp"}
	r.refused(2, "init", words...)
	if n := ask[int](r, `SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1`, r.slot); n != 0 {
		t.Error("a slot was left behind")
	}
	r.refused(2, "run", words...)
}

// A relay that may no longer use the outbox's schema cannot delete there. It delivers all the same,
// and check says what is missing.
func TestRetentionWithoutRights(t *testing.T) {
	t.Parallel()
	role := newRole(t, "LOGIN REPLICATION")
	r := newRig(t)
	owner := r.db
	relayDB := as(owner, role, "")
	r.more = "retention: {mode: delete, keep: 1h}\noutbox: {timestamp: created_at}"
	r.exec(`ALTER TABLE outbox ADD COLUMN IF NOT EXISTS created_at timestamptz NOT NULL DEFAULT now()`)
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
