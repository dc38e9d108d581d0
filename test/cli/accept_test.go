// This file is about accept with what cannot be accepted: one sentence says why, and nothing has
// changed.
package cli

import (
	"fmt"
	"strings"
	"testing"
)

// badInput is a command that is refused.
type badInput struct {
	args  string // ID stands for the finding's
	words []string
}

// accept never does what its reader has not seen: an ID that is not open, and flags that do not fit
// what was found, are exit 2. Neither the slot's row, nor the gaps, nor the audit is written.
func TestAcceptBadInput(t *testing.T) {
	t.Parallel()
	t.Run("of a slot", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.refused(2, "accept 0123456789ab", "no relay has used this database", "correct source.url")
		if ask[bool](r, `SELECT to_regnamespace('cdc_relay') IS NOT NULL`) {
			t.Error("the schema was made all the same")
		}
		r.refused(2, "accept", "the ID of one finding")
		r.refused(2, "accept a b", "the ID of one finding")
		r.start().Stop(t)
		r.refused(2, "accept 0123456789ab", `finding "0123456789ab" is not open`, "never found here", "nothing is found now")
		r.exec(`ALTER PUBLICATION ` + r.slot + ` SET (publish = 'insert, update')`)
		id := findingID(t, r.refused(3, "run", "was altered"))
		for _, c := range []badInput{
			{args: "accept 0123456789ab", words: []string{"never found here", "what is found now: publication", "was altered", "cdc-relay accept " + id}},
			{args: "accept ID --same-data --copy", words: []string{"--same-data and --copy exclude each other"}},
			{args: "accept ID --same-data", words: []string{"this is that one", "leave them out"}},
			{args: "accept ID --copy", words: []string{"this is that one", "leave them out"}},
			{args: "accept ID --skip-rows public.other", words: []string{`"public.other" is not a table with its OID`, "copy the command"}},
			{args: "accept ID --skip-rows public.other@0", words: []string{"is not a table with its OID"}},
			{args: "accept ID --skip-rows public.other@16423", words: []string{"is not open", "not about these rows"}},
			{args: "accept ID --skip-messages x --skip-rows public.other@1", words: []string{"exclude each other"}},
			{args: "accept ID --new-slot --skip-messages x", words: []string{"are about the slot"}},
			{args: "accept ID --of public.outbox", words: []string{"--of needs --events"}},
		} {
			r.refusesToAccept(c, id)
		}
		r.exec(`ALTER PUBLICATION ` + r.slot + ` SET (publish = 'insert')`)
		r.refusesToAccept(badInput{args: "accept ID", words: []string{"has changed since", "what is found now: publication", "was altered"}}, id)
		id = findingID(t, r.refused(3, "run", "was altered"))
		r.ok("accept", id, "--reason", "on purpose")
		if out := r.ok("accept", id); !strings.Contains(out, "nothing: it was accepted at 20") || !strings.Contains(out, " by ") {
			t.Errorf("the second time it says %q", out)
		}
		if n := ask[int](r, `SELECT count(*) FROM cdc_relay.audit WHERE action = 'accept' AND why = 'on purpose'`); n != 1 {
			t.Errorf("the audit has it %d times", n)
		}
		r.start().Stop(t)
		r.released()
		r.refusesToAccept(badInput{args: "accept ID", words: []string{"is not open: it was accepted at 20", "nothing is found now"}}, id)
	})
	t.Run("of rows", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.exec(`CREATE TABLE second (LIKE outbox INCLUDING ALL); CREATE TABLE other (LIKE outbox INCLUDING ALL)`)
		r.source = "  tables: [public.outbox, public.second]"
		r.start().Stop(t)
		r.exec(`ALTER PUBLICATION ` + r.slot + ` ADD TABLE other`)
		r.exec(`INSERT INTO other (id, aggregatetype, aggregateid, type) VALUES (gen_random_uuid(), 'a', 'k', 't')`)
		id := findingID(t, r.refused(3, "run", "lists table public.other"))
		table := fmt.Sprintf("public.other@%d", ask[uint32](r, `SELECT 'other'::regclass::oid`))
		r.refusesToAccept(badInput{args: "accept ID --events " + table, words: []string{"does not say of which table", "--of public.outbox or --of public.second"}}, id)
		r.refusesToAccept(badInput{args: "accept ID --events " + table + " --of public.third", words: []string{"does not say of which table"}}, id)
		r.refusesToAccept(badInput{args: "accept ID", words: []string{"is not open", "never found here", "copy the whole command"}}, id)
		r.ok("accept", id, "--skip-rows", table)
		if out := r.ok("accept", id, "--skip-rows", table); !strings.Contains(out, "nothing: it was accepted at 20") {
			t.Errorf("the second time it says %q", out)
		}
	})
}

// A slot that is made by hand before the first start, as docs/postgresql.md#managed-services has
// it: check has the command that accepts it, and the relay takes it as it is.
func TestAcceptASlotMadeByHand(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.ok("init", "--no-slot")
	r.exec(`SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, r.slot)
	r.insert(1)
	for _, f := range checked(t, r.command("check", "--json").Stdout) {
		if f.Name == "slot" {
			r.ok("accept", findingID(t, f.Fix))
		}
	}
	relay := r.start()
	eventually(t, func() string { return wantLines(relay, 1) })
	relay.Stop(t)
}

// refusesToAccept wants exit 2, the words, and nothing written.
func (r *rig) refusesToAccept(c badInput, id string) {
	r.t.Helper()
	const written = `SELECT md5(concat((SELECT jsonb_agg(s) FROM cdc_relay.slots s), (SELECT jsonb_agg(g) FROM cdc_relay.gap g), (SELECT jsonb_agg(a) FROM cdc_relay.audit a)))`
	before := ask[string](r, written)
	r.refused(2, strings.ReplaceAll(c.args, "ID", id), c.words...)
	if after := ask[string](r, written); after != before {
		r.t.Errorf("%s: something was written", c.args)
	}
	if n := ask[int](r, `SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1`, r.slot); n == 0 && !strings.Contains(c.args, "--new-slot") {
		r.t.Errorf("%s: the slot is gone", c.args)
	}
}
