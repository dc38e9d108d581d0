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
	r.addTransactionColumn()
	r.ok("init")
	if said := r.command("check"); !strings.Contains(said.Stdout, "rows that were delivered are deleted, 1h after that") {
		t.Errorf("check says %s", said.Stdout)
	}
}
