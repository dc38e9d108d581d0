package retention

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/sent"
)

// The rows of these tests are named by what becomes of them: gone, or kept and why.

func TestOnlySentRowsAreDeleted(t *testing.T) {
	r := newRig(t, 0, outboxTable)
	r.exec(`INSERT INTO public.outbox VALUES ('gone', now()), ('kept, of the same transaction', now())`)
	r.exec(`INSERT INTO public.outbox VALUES ('kept without', now(), NULL)`)
	r.put("kept", "gone, changed", "kept, another id", "kept, another transaction", "kept, inserted again")
	r.deliver(r.slot, "gone", "gone, changed", "kept, another id", "kept, another transaction", "kept, inserted again")
	r.exec(`UPDATE public.outbox SET at = now() - interval '1 year' WHERE id = 'gone, changed'`)
	r.exec(`UPDATE public.outbox SET id = 'kept, another id now' WHERE id = 'kept, another id'`)
	r.exec(`UPDATE public.outbox SET tx = pg_current_xact_id() WHERE id = 'kept, another transaction'`)
	r.exec(`DELETE FROM public.outbox WHERE id = 'kept, inserted again'`)
	r.put("kept, inserted again")
	r.want(r.left(), "kept", "kept without", "kept, another id now", "kept, another transaction", "kept, inserted again", "kept, of the same transaction")
	if n := r.parts(); n != 0 {
		t.Errorf("%d parts of the sent set are left, although none of their rows is", n)
	}
}

// TestAnotherTable: rows that were sent as rows of one table say nothing of another with its name.
func TestAnotherTable(t *testing.T) {
	r := newRig(t, 0, outboxTable)
	r.put("sent")
	r.deliver(r.slot, "sent")
	r.exec(`CREATE TABLE public.copy (LIKE public.outbox INCLUDING ALL); INSERT INTO public.copy SELECT * FROM public.outbox; INSERT INTO public.copy VALUES ('kept')`)
	r.exec(`BEGIN; ALTER TABLE public.outbox RENAME TO former; ALTER TABLE public.copy RENAME TO outbox; COMMIT`)
	r.want(r.left(), "kept", "sent")
}

func TestKeep(t *testing.T) {
	r := newRig(t, time.Hour, outboxTable)
	r.put("gone", "kept")
	r.deliver(r.slot, "gone")
	r.exec(`UPDATE cdc_relay.sent SET at = now() - interval '61 minutes'`)
	r.deliver(r.slot, "kept")
	r.want(r.left(), "kept")
	r.exec(`UPDATE cdc_relay.sent SET at = now() - interval '61 minutes'`)
	r.want(r.left())
}

// TestPartsOfWhatRunsStay: a row may be delivered before its transaction has ended for others,
// while it waits for a synchronous standby. Its part stays until the row can be seen.
func TestPartsOfWhatRunsStay(t *testing.T) {
	r := newRig(t, 0, outboxTable)
	tx, err := r.pool.Begin(r.ctx)
	r.must(err)
	defer tx.Rollback(r.ctx)
	_, err = tx.Exec(r.ctx, `INSERT INTO public.outbox VALUES ('gone later', now())`)
	r.must(err)
	r.exec(`UPDATE cdc_relay.slots SET changed_at = now()`) // a later transaction has ended
	var id string
	r.must(tx.QueryRow(r.ctx, `SELECT pg_current_xact_id()::text`).Scan(&id))
	r.exec(`INSERT INTO cdc_relay.sent (slot, relation, chunk, first_tx, last_tx, digests, at)
		SELECT $1, 'public.outbox'::regclass, x >> 13, x, x + 0, array[('x' || encode(substring(sha256(convert_to(x || '/gone later', 'UTF8')) FOR 8), 'hex'))::bit(64)::bigint], now() - interval '1 minute'
		FROM (SELECT $2::text::bigint AS x) x`, r.slot, id)
	r.want(r.left())
	if n := r.parts(); n != 1 {
		t.Fatalf("%d parts are left, want that of the transaction that has not ended", n)
	}
	r.must(tx.Commit(r.ctx))
	r.want(r.ids(), "gone later")
	r.want(r.left())
	if n := r.parts(); n != 0 {
		t.Errorf("%d parts are left", n)
	}
}

// TestEverySlotCounts: a row is deleted when all who send its table have delivered it.
func TestEverySlotCounts(t *testing.T) {
	r := newRig(t, 0, outboxTable)
	r.put("a", "b")
	r.addSlot("second")
	r.deliver(r.slot, "a", "b")
	r.deliver("second", "a")
	r.want(r.left(), "b")
	s := r.Snapshot()
	if s.HeldBy != "second" || s.Overdue.IsZero() {
		t.Errorf("the status is %+v, want rows that the second slot holds", s)
	}
	r.exec(`UPDATE cdc_relay.slots SET state = 'adopt', system_id = '1' WHERE slot = 'second'`)
	r.want(r.left(), "b")
	r.deliver("second", "b")
	r.want(r.left())
	if s := r.Snapshot(); s.HeldBy != "" || !s.Overdue.IsZero() || s.LastPass.IsZero() {
		t.Errorf("when nothing is left to delete the status is %+v", s)
	}
	r.put("word")
	r.deliver(r.slot, "word")
	r.deliver("second", "word")
	r.exec(`UPDATE cdc_relay.sent SET at = 'infinity' WHERE slot = 'second'`)
	r.want(r.left(), "word") // an operator's word for the second slot deletes nothing
	r.exec(`UPDATE cdc_relay.sent SET at = now() WHERE slot = 'second'`)
	r.want(r.left())
	r.put("c")
	r.exec(`UPDATE cdc_relay.slots SET sends = jsonb_set(sends, '{tables,"\"public\".\"outbox\"",first}', to_jsonb(pg_current_snapshot()::text)) WHERE slot = 'second'`)
	r.put("d")
	r.deliver(r.slot, "c", "d")
	r.want(r.left(), "c", "d") // its snapshot was one of another system
	r.exec(`UPDATE cdc_relay.slots SET system_id = (SELECT system_id FROM cdc_relay.slots WHERE slot = $1) WHERE slot = 'second'`, r.slot)
	r.want(r.left(), "d") // the second slot does not send what was there before it
	r.exec(`UPDATE cdc_relay.slots SET sends = '{"tables": {"\"public\".\"other\"": {"oid": 1}}}' WHERE slot = 'second'`)
	r.want(r.left())
}

// TestPartitions: a row may have been sent as one of its table, or of its partition.
func TestPartitions(t *testing.T) {
	r := newRig(t, 0, partitioned)
	r.put("a gone", "a kept", "c gone", "c gone too", "c kept")
	r.deliver(r.slot, "a gone", "c gone")
	r.deliverAs(r.slot, "new", "c gone too")
	r.deliverAs(r.slot, "new", "a kept") // of the other partition nothing is said by that
	r.want(r.left(), "a kept", "c kept")
	r.exec(`ALTER TABLE public.outbox DETACH PARTITION public.new; INSERT INTO public.new VALUES ('d kept');
		ALTER TABLE public.outbox ATTACH PARTITION public.new FOR VALUES FROM ('b') TO (MAXVALUE)`)
	r.exec(`DROP TABLE public."Old"; CREATE TABLE public.older PARTITION OF public.outbox FOR VALUES FROM (MINVALUE) TO ('b')`)
	r.put("a gone")
	r.deliver(r.slot, "a gone")
	r.want(r.left(), "c kept", "d kept")
}

// TestDetachedWhileAtWork: nothing is deleted from what is no partition any more.
func TestDetachedWhileAtWork(t *testing.T) {
	r := newRig(t, 0, partitioned)
	r.put("a")
	r.deliver(r.slot, "a")
	p := &pass{Retention: r.Retention, failed: map[uint32]bool{}, warnings: map[string]bool{}}
	t.Cleanup(p.closeConn)
	r.must(p.describeTables(r.ctx))
	r.must(r.lookAtEnd(r.ctx))
	r.must(r.lookAtEnd(r.ctx))
	list, _, _, err := p.ripeParts(r.ctx, "-infinity", 0)
	r.must(err)
	r.exec(`ALTER TABLE public.outbox DETACH PARTITION public."Old"`)
	for _, of := range list {
		r.must(p.deleteParts(r.ctx, of))
	}
	var rows int
	r.must(r.pool.QueryRow(r.ctx, `SELECT count(*) FROM public."Old"`).Scan(&rows))
	if rows != 1 {
		t.Error("the row of a table that is no partition is deleted")
	}
}

// TestLockedRowsAreLeftOut: what somebody works with is deleted once he is done, unless he has
// changed what it was.
func TestLockedRowsAreLeftOut(t *testing.T) {
	r := newRig(t, 0, outboxTable)
	r.put("gone", "locked", "updated")
	r.deliver(r.slot, "gone", "locked", "updated")
	tx, err := r.pool.Begin(r.ctx)
	r.must(err)
	defer tx.Rollback(r.ctx)
	_, err = tx.Conn().PgConn().Exec(r.ctx, `SELECT FROM public.outbox WHERE id = 'locked' FOR KEY SHARE; UPDATE public.outbox SET id = 'kept' WHERE id = 'updated'`).ReadAll()
	r.must(err)
	r.want(r.left(), "locked", "updated")
	if r.parts() == 0 || r.Snapshot().Overdue.IsZero() {
		t.Error("the parts of rows that are locked are gone, or nothing is overdue")
	}
	r.must(tx.Commit(r.ctx))
	r.want(r.left(), "kept")
}

// TestLockedTableIsLeftOut: nobody waits behind the relay, which would wait behind him.
func TestLockedTableIsLeftOut(t *testing.T) {
	r := newRig(t, 0, partitioned)
	r.put("a", "b")
	r.deliver(r.slot, "a", "b")
	tx, err := r.pool.Begin(r.ctx)
	r.must(err)
	defer tx.Rollback(r.ctx)
	// as CREATE TRIGGER does
	_, err = tx.Exec(r.ctx, `LOCK TABLE public."Old" IN SHARE ROW EXCLUSIVE MODE`)
	r.must(err)
	r.want(r.left(), "a")
	if s := r.Snapshot(); !strings.Contains(s.Error, "lock timeout") {
		t.Errorf("the status is %+v", s)
	}
	if r.logs.Len() > 0 {
		t.Errorf("it is logged: %v", r.logs.All())
	}
	r.must(tx.Rollback(r.ctx))
	r.want(r.left())
}

// TestBatches: a transaction deletes batchRows at most.
func TestBatches(t *testing.T) {
	r := newRig(t, 0, outboxTable)
	most, all := 0, 0
	r.cfg.Deleted = func(rows int) { most, all = max(most, rows), all+rows }
	r.exec(`INSERT INTO public.outbox SELECT i::text FROM generate_series(1, 3500) i`)
	r.deliver(r.slot, r.ids()...)
	r.want(r.left())
	if most > batchRows || all != 3500 {
		t.Errorf("%d rows are deleted, %d at once", all, most)
	}
}

// TestPages: more parts than are listed at once.
func TestPages(t *testing.T) {
	r := newRig(t, 0, outboxTable)
	r.put("gone", "kept")
	r.exec(`INSERT INTO cdc_relay.sent (slot, relation, chunk, first_tx, last_tx, digests, at)
		SELECT $1, 'public.outbox'::regclass, 0, 3, 3, '{1}', now() - interval '1 hour' FROM generate_series(1, 2100) i`, r.slot)
	r.deliver(r.slot, "gone")
	r.want(r.left(), "kept")
	if n := r.parts(); n != 0 {
		t.Errorf("%d parts are left", n)
	}
}

// TestFencedLeaderDeletesNothing: it ends, also when it has found parts under its own epoch.
func TestFencedLeaderDeletesNothing(t *testing.T) {
	r := newRig(t, 0, outboxTable)
	r.put("kept")
	r.deliver(r.slot, "kept")
	r.exec(`UPDATE cdc_relay.slots SET epoch = 2`)
	r.must(r.lookAtEnd(r.ctx))
	if err := r.runPass(r.ctx); err == nil || !strings.Contains(err.Error(), "fenced") {
		t.Errorf("a pass of a former leader ends with %v", err)
	}
	r.want(r.ids(), "kept")
	if n := r.parts(); n != 1 {
		t.Errorf("%d parts are left", n)
	}
}

// TestRun: it works until the term ends.
func TestRun(t *testing.T) {
	r := newRig(t, 0, outboxTable)
	r.put("gone", "kept")
	r.deliver(r.slot, "gone")
	done := make(chan error, 1)
	go func() { done <- r.Run(r.ctx) }()
	await.Until(t, "the row to be deleted", func() bool { return slices.Equal(r.ids(), []string{"kept"}) })
	r.exec(`UPDATE cdc_relay.slots SET epoch = 2`)
	r.deliver(r.slot, "kept")
	if err := <-done; err == nil || !strings.Contains(err.Error(), "fenced") {
		t.Errorf("it ends with %v", err)
	}
	r.want(r.ids(), "kept")
}

// TestRowsBesideADeadLetterStay: its values may be nowhere but in the table, and an id that its
// transaction wrote twice, or that was changed since, may name its row, too.
func TestRowsBesideADeadLetterStay(t *testing.T) {
	r := newRig(t, 0, outboxTable)
	r.exec(`INSERT INTO public.outbox VALUES ('twice', now()), ('twice', now()), ('beside', now())`)
	r.put("gone")
	r.deliver(r.slot, "twice", "beside", "gone")
	r.hold("dead_letter", "twice", "open")
	r.exec(`UPDATE cdc_relay.dead_letter SET tx = (SELECT tx::text::bigint FROM public.outbox WHERE id = 'beside')`)
	r.want(r.left(), "beside", "twice", "twice")
	r.exec(`UPDATE cdc_relay.dead_letter SET state = 'replayed'`)
	r.want(r.left())
}

// TestUnsettledTransactionsStay: an event of the transaction may still become a dead letter.
func TestUnsettledTransactionsStay(t *testing.T) {
	r := newRig(t, 0, outboxTable)
	var settled pglogrepl.LSN
	r.cfg.Settled = func() pglogrepl.LSN { return settled }
	r.must(r.lookAtEnd(r.ctx))
	r.put("a")
	r.deliver(r.slot, "a")
	settled = r.lastLook.at
	r.want(r.left(), "a")
	settled = r.lastLook.at
	r.want(r.left())
}

// TestReferencedRowsStay: those alone, and no other.
func TestReferencedRowsStay(t *testing.T) {
	r := newRig(t, 0, outboxTable)
	r.exec(`ALTER TABLE public.outbox ADD PRIMARY KEY (id); CREATE TABLE public.details (id text REFERENCES public.outbox);
		INSERT INTO public.outbox SELECT i::text FROM generate_series(1, 50) i; INSERT INTO public.details VALUES ('7'), ('30')`)
	r.deliver(r.slot, r.ids()...)
	r.want(r.left(), "30", "7")
	if s := r.Snapshot(); s.Error != "" || r.logs.Len() == 0 {
		t.Errorf("the status is %+v, and %d lines are logged", s, r.logs.Len())
	}
}

// TestSlotThatSaysNothingYet: what a slot sends is not known before its relay was started.
func TestSlotThatSaysNothingYet(t *testing.T) {
	r := newRig(t, 0, outboxTable)
	r.put("a")
	r.deliver(r.slot, "a")
	r.addSlot("second")
	r.exec(`UPDATE cdc_relay.slots SET state = 'adopt', sends = '{}' WHERE slot = 'second'`)
	r.want(r.left(), "a")
	r.exec(`UPDATE cdc_relay.slots SET state = 'ready' WHERE slot = 'second'`) // it relays messages
	r.want(r.left())
}

// TestPlan: the rows of a part are found by the index on their transaction.
func TestPlan(t *testing.T) {
	r := newRig(t, 0, outboxTable)
	r.exec(`INSERT INTO public.outbox SELECT i::text, now() FROM generate_series(1, 20000) i`)
	d, err := sent.Describe(r.ctx, r.pool, r.cfg.Tables[0])
	r.must(err)
	tx, err := r.pool.Begin(r.ctx)
	r.must(err)
	defer tx.Rollback(r.ctx)
	_, err = tx.Conn().PgConn().Exec(r.ctx, planSettings).ReadAll()
	r.must(err)
	for name, explained := range map[string]struct {
		sql  string
		args []any
		want []string
	}{
		"find": {
			findSQL(d.Leaves[0], &d),
			[]any{r.slot, 1, d.OID, 0, []int64{1}, d.Family, d.Names},
			[]string{"Index Scan using outbox_tx on outbox t", "Hash", "using dead_letter_tx on dead_letter", "hashed SubPlan"},
		},
		"remove": {
			removeSQL(d.Leaves[0], &d),
			[]any{r.slot, 1, []pgtype.TID{}, []int64{}},
			[]string{"Tid Scan on outbox t", "Tid Scan on outbox d"},
		},
	} {
		rows, err := tx.Query(r.ctx, "EXPLAIN "+explained.sql, explained.args...)
		r.must(err)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		r.must(err)
		text := strings.Join(lines, "\n")
		for _, want := range explained.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: the plan has no %q:\n%s", name, want, text)
			}
		}
	}
}

// TestSwapInPass: another table gets the name during a pass. The two count their ids alike, and one
// transaction has written to both.
func TestSwapInPass(t *testing.T) {
	for n := 1; n <= 3; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			r := newRig(t, 0, outboxTable)
			r.exec(`CREATE TABLE public.other (LIKE public.outbox INCLUDING ALL)`)
			r.exec(`BEGIN; INSERT INTO public.outbox VALUES ('1', now()); INSERT INTO public.other VALUES ('1', now()); COMMIT`)
			r.deliver(r.slot, "1")
			begun := 0
			r.cfg.Work = func(begins bool) {
				if !begins {
					return
				}
				if begun++; begun == n {
					r.exec(`BEGIN; ALTER TABLE public.outbox RENAME TO former; ALTER TABLE public.other RENAME TO outbox; COMMIT`)
				}
			}
			r.want(r.left(), "1") // of the table that has the name now
			if begun < n {
				t.Errorf("the pass had %d transactions", begun)
			}
		})
	}
}
