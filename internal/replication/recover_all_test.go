//go:build testall

package replication

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/repair"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// An event that waits and has the id of a row of the gap, as that of a second table that counts
// alike, does not stand for it.
func TestRecoverAnotherEventOfTheSameID(t *testing.T) {
	b := lost(t)
	b.exec(`DELETE FROM outbox`)
	b.exec(`UPDATE cdc_relay.retry SET id = 'gap', payload = '{"another": true}'`)
	b.insert("gap")
	report, err := b.recover(anyOrder)
	await.Must(t, err)
	if report.Recovered != 1 || report.Held != 0 {
		t.Errorf("%+v", report)
	}
	b.wantWaiting("gap", "gap")
}

// Where it is not known which transaction wrote a row, its table and contents say which one waits.
func TestRecoverWithoutTheTransaction(t *testing.T) {
	b := shared(t)
	b.deferAll()
	r := b.settledRun("it waits")
	changes := map[string]string{
		"it waits": "tx = NULL", "another table": "tx = NULL, relation = 1", "another content": "tx = NULL, headers = '{}'", "another transaction": "tx = 3",
	}
	for id := range changes {
		if id != "it waits" {
			b.insert(id)
			r.waitReported(id)
		}
	}
	r.endClean()
	b.dropSlot()
	for id, change := range changes {
		b.exec(`UPDATE cdc_relay.retry SET ` + change + ` WHERE id = convert_to('` + id + `', 'UTF8')`)
	}
	report, err := b.recover(anyOrder)
	await.Must(t, err)
	if report.Recovered != 3 || report.Held != 1 {
		t.Errorf("%+v", report)
	}
	b.wantText("it waits", `SELECT string_agg(convert_from(id, 'UTF8'), ', ') FROM (SELECT id FROM cdc_relay.retry GROUP BY id HAVING count(*) = 1) once`)
}

// A row that was sent is not copied, however its row was written since: neither an update nor a
// rewritten table makes it another one.
func TestRecoverOnlyWhatWasNotSent(t *testing.T) {
	b := shared(t)
	b.settledRun("sent").endClean()
	b.insert("gap")
	b.exec(`UPDATE outbox SET payload = '{"new": 1}'`)
	b.exec(`ALTER TABLE outbox ADD COLUMN more float8 DEFAULT random()`)
	b.dropSlot()
	report, err := b.recover(anyOrder)
	await.Must(t, err)
	b.wantWaiting("gap")
	if report.Recovered != 1 {
		t.Errorf("%+v", report)
	}
}

// Of two tables the second is rewritten while the first is read: what the snapshot does not show of
// it any more is not taken for recovered. (CLUSTER, VACUUM FULL and TRUNCATE want the same lock.)
func TestRecoverOfATableThatIsRewritten(t *testing.T) {
	for name, rewrite := range map[string]string{
		"rewritten":  `ALTER TABLE other ADD COLUMN more float8 DEFAULT random()`,
		"repacked":   `CREATE TABLE new (LIKE other INCLUDING ALL); INSERT INTO new SELECT * FROM other; DROP TABLE other; ALTER TABLE new RENAME TO other`,
		"all change": `UPDATE other SET payload = '{"new": 1}'`,
	} {
		t.Run(name, func(t *testing.T) {
			b := shared(t)
			b.exec(`CREATE TABLE other (LIKE outbox INCLUDING ALL)`)
			b.cfg.Tables = append(b.cfg.Tables, b.cfg.Tables[0])
			b.cfg.Tables[1].Name = "other"
			b.streaming().endClean()
			b.dropSlot()
			b.exec(`INSERT INTO outbox (id) SELECT n::text FROM generate_series(1000, 1999) n`)
			b.exec(`INSERT INTO other (id) SELECT n::text FROM generate_series(2000, 2049) n`)
			conn, tried := b.connect(), false
			report, err := b.recover(allRows, anyOrder, func(o *repair.RecoverOptions) {
				o.Progress = func(int64, int64) {
					if tried {
						return
					}
					tried = true
					for _, sql := range append([]string{`SET lock_timeout = '1s'`}, strings.Split(rewrite, "; ")...) {
						if _, err := conn.Exec(await.Context(t), sql); source.SQLState(err) == "55P03" {
							return // recover has locked it
						} else if err != nil {
							t.Errorf("%s: %v", sql, err)
						}
					}
				}
			})
			if !tried {
				t.Error("it was not tried")
			}
			if err == nil && report.Recovered == 1050 {
				return
			}
			if err == nil {
				t.Fatalf("%d rows of 1050 are recovered, and the gap is closed", report.Recovered)
			}
			b.cfg.Tables[1].OID = 0
			_, err = b.recover(allRows, anyOrder)
			await.Must(t, err)
			b.wantText("1050", `SELECT count(DISTINCT id)::text FROM cdc_relay.retry WHERE slot = $1`, b.cfg.Slot)
		})
	}
}

// Nothing is made of bad input, and nothing is changed.
func TestRecoverRefuses(t *testing.T) {
	b := lost(t)
	b.exec(`INSERT INTO outbox VALUES ('gap', NULL)`)
	before := b.remembered()
	b.exec(`CREATE TABLE other (id text, payload jsonb)`)
	for name, c := range map[string]struct {
		change func(*repair.RecoverOptions)
		says   string
	}{
		"order":       {func(*repair.RecoverOptions) {}, "order unknown: track_commit_timestamp is off"},
		"column":      {by("nothing"), `has no column "nothing"`},
		"NULLs":       {by("payload"), `column "payload" of table public.outbox is NULL in 1 rows`},
		"expression":  {func(o *repair.RecoverOptions) { o.Where, o.Unordered = "id = ", true }, "the WHERE is not a condition"},
		"two":         {func(o *repair.RecoverOptions) { o.Where, o.Unordered = "true) OR (true", true }, "the WHERE is not a condition"},
		"statement":   {func(o *repair.RecoverOptions) { o.Where, o.Unordered = "true); DROP TABLE other; --", true }, "the WHERE is not a condition"},
		"text":        {func(o *repair.RecoverOptions) { o.Where, o.Unordered = "id", true }, "the WHERE is not a condition"},
		"no function": {func(o *repair.RecoverOptions) { o.Where, o.Unordered = "1 / length(substr(id, 1, 0)) > 0", true }, "the WHERE fails at a row"},
	} {
		_, err := b.recover(c.change)
		b.wantStop(err, event.ExitUsage, "usage", c.says)
		if got := b.remembered(); got != before {
			t.Errorf("%s: it was changed from %s to %s", name, before, got)
		}
	}
	b.wantText("0", `SELECT count(*)::text FROM pg_replication_slots WHERE slot_name = $1`, b.cfg.Slot)
	report, err := b.recover(func(o *repair.RecoverOptions) { o.DryRun = true })
	if await.Must(t, err); report.Recovered < 1 || report.Order != "unknown" {
		t.Errorf("a dry run: %+v", report)
	}
	b.wantRemembered(before)

	_, err = b.recover(anyOrder)
	await.Must(t, err)
	_, err = b.recover(anyOrder)
	b.wantStop(err, event.ExitUsage, "usage", "there is nothing to recover")
	conn := b.hold("cdc-relay/other")
	_, err = b.recover(anyOrder)
	b.wantStop(err, event.ExitUsage, "usage", "is in use by")
	source.CloseStream(conn)
	b.dropSlot()
	b.createSlot("test_decoding")
	_, err = b.recover(anyOrder)
	b.wantStop(err, event.ExitUsage, "usage", "test_decoding", "recover does not touch it")
	b.dropSlot()
	b.exec(`UPDATE cdc_relay.slots SET state = 'creating'`) // a crash after an accepted loss
	_, err = b.recover(anyOrder)
	await.Must(t, err)
	b.wantText("ready", `SELECT state FROM cdc_relay.slots`)
	b.cfg.Slot += "_x"
	_, err = b.recover(anyOrder)
	b.wantStop(err, event.ExitUsage, "usage", "no relay has used", "init --backfill")
}

// A slot of another publication cannot be read on; a slot that somebody else has made again can.
func TestRecoverWithAnotherPublication(t *testing.T) {
	b := shared(t)
	b.settledRun("a").endClean()
	b.insert("gap")
	b.exec(`DROP PUBLICATION p`)
	_, err := b.recover(anyOrder)
	await.Must(t, err)
	if got := b.waiting(); !slices.Contains(got, "gap") {
		t.Errorf("recovered %q", got)
	}
	b.streaming().endClean()
	b.dropSlot()
	b.createSlot("pgoutput")
	_, err = b.recover(anyOrder)
	b.wantStop(err, event.ExitUsage, "usage", "the slot is not lost", "dropped and created again")
}

// The slot was read from another server. Whether this one has taken its place is an operator's
// word, and what was deferred there is sent here then, before what is recovered.
func TestRecoverOnAnotherServer(t *testing.T) {
	b := lost(t)
	_, err := b.recover(anyOrder, func(o *repair.RecoverOptions) { o.SameData = true })
	b.wantStop(err, event.ExitUsage, "usage", "this is that one")
	b.exec(`UPDATE cdc_relay.slots SET system_id = 'another'`)
	b.exec(`UPDATE cdc_relay.retry SET system_id = 'another'`)
	b.insert("gap")
	before := b.remembered()
	_, err = b.recover(anyOrder)
	b.wantStop(err, event.ExitUsage, "usage", "was read from system another", "--same-data")
	b.wantRemembered(before)
	report, err := b.recover(anyOrder, func(o *repair.RecoverOptions) { o.SameData = true })
	await.Must(t, err)
	if report.Moved != 1 || report.Held != 1 || report.Recovered != 1 {
		t.Errorf("%+v", report)
	}
	b.wantWaiting("before", "gap")
	b.wantText("0", `SELECT count(*)::text FROM cdc_relay.retry WHERE system_id = 'another'`)
	r := b.streaming()
	b.insert("after")
	r.waitSeen("after")
	b.wantSeen("after")
	r.endClean()
}

// A relay that is started meanwhile waits, and goes on with the new slot.
func TestRelayWaitsForRecover(t *testing.T) {
	b := lost(t)
	b.insert("gap")
	ended, unlock := b.copying(await.Context(t))
	r := b.run()
	await.Until(t, "the relay to wait", func() bool {
		return b.logs.FilterMessageSnippet("waiting for another relay, or a command").Len() == 1
	})
	unlock()
	await.Must(t, <-ended)
	b.insert("after")
	r.waitSeen("after")
	b.wantSeen("after")
	b.wantWaiting("before", "gap", "after")
	r.endClean()
}

// A loss was accepted, and the start that makes the new slot is cut off: the next one goes on
// without another word. Not so where recover was cut off, and not in a copy, which has nothing to
// recover.
func TestAcceptedLossWhoseStartIsCutOff(t *testing.T) {
	t.Run("accepted", func(t *testing.T) {
		b := lost(t)
		b.runFix(b.wantStop(b.run().wait(), event.ExitOperator, "slot_lost"))
		b.exec(`UPDATE cdc_relay.slots SET state = 'creating', leader = $1`, slot.Recovering)
		b.wantStop(b.run().wait(), event.ExitOperator, "slot_lost", "was being made again")
		b.exec(`UPDATE cdc_relay.slots SET leader = 'a relay'`)
		b.goesOn("after")
	})
	t.Run("copy", func(t *testing.T) {
		b := lost(t)
		b.exec(`UPDATE cdc_relay.slots SET timeline = 7`)
		b.exec(`INSERT INTO cdc_relay.gap (slot, system_id, incarnation, finding, reason, until_xid) SELECT slot, system_id, incarnation, 'x', 'y', '5' FROM cdc_relay.slots`)
		stop := b.wantStop(b.run().wait(), event.ExitOperator, "slot_lost", "does not exist here")
		b.acceptFix(strings.ReplaceAll(stop.Fix, "--same-data", "--copy"))
		// a gap that the original has accepted is the original's to recover
		b.wantText("1 0", `SELECT count(*) || ' ' || count(*) FILTER (WHERE g.system_id = s.system_id) FROM cdc_relay.gap g, cdc_relay.slots s`)
		b.exec(`UPDATE cdc_relay.slots SET state = 'creating'`)
		b.wantStop(b.run().wait(), event.ExitUsage, "backfill")
		_, err := b.recover(anyOrder)
		b.wantStop(err, event.ExitUsage, "usage", "there is nothing to recover")
	})
}

// Recover is frozen while the server sends it the rows of a table, which its session has locked.
// That session is not idle, so no timeout of statements ends it. A migration has the table all the
// same.
func TestRecoverFrozenAsItReads(t *testing.T) {
	b := lost(t)
	b.cfg.ClientSilence = 5 * time.Second
	// more than all sockets between hold
	b.exec(`INSERT INTO outbox SELECT n::text, to_jsonb(repeat(md5(n::text), 1000)) FROM generate_series(1, 2000) n`)
	process := b.through()
	done := make(chan error, 1)
	go func() {
		_, err := b.recover(anyOrder, func(o *repair.RecoverOptions) { o.Progress = func(int64, int64) { process.Stall() } })
		done <- err
	}()
	await.Until(t, "the server to wait for recover", func() bool {
		return b.text(`SELECT count(*)::text FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'FETCH ALL%' AND wait_event = 'ClientWrite'`) == "1"
	})
	b.exec(`ALTER TABLE outbox ADD COLUMN more int`)
	b.insert("x")
	process.Cut()
	if err := <-done; err == nil {
		t.Error("recover ends well")
	}
	await.Must(t, process.Restore())
	b.cfg.ClientSilence = 0
	_, err := b.recover(anyOrder)
	await.Must(t, err)
	b.wantText("2002", `SELECT count(*)::text FROM cdc_relay.retry`)
}

// Of several tables each waits for its turn, however long that takes: here for longer than a frozen
// process would be waited for. No other test makes slots meanwhile, which wait for the copy's end.
func TestRecoverWaitsLongForATable(t *testing.T) {
	b := alone(t)
	b.cfg.ClientSilence = 5 * time.Second // a busy machine may stand still for half of that
	b.exec(`ALTER TABLE outbox ADD COLUMN n int`)
	b.exec(`CREATE TABLE other (id text, payload jsonb, n int)`)
	b.cfg.Tables = append(b.cfg.Tables, b.cfg.Tables[0])
	b.cfg.Tables[1].Name = "other"
	b.streaming().endClean()
	b.dropSlot()
	b.exec(`INSERT INTO outbox (id, n) SELECT n::text, n FROM generate_series(1000, 1999) n`)
	b.exec(`INSERT INTO other SELECT n::text, NULL, n FROM generate_series(2000, 2999) n`)
	waited := false
	report, err := b.recover(by("n"), allRows, func(o *repair.RecoverOptions) {
		o.Progress = func(int64, int64) {
			for ; !waited; waited = true {
				await.Until(t, "that time to pass", func() bool {
					return b.text(`SELECT (max(now() - xact_start) > interval '7 s')::text FROM pg_stat_activity
						WHERE datname = current_database() AND application_name LIKE 'cdc-relay/%'`) == "true"
				})
			}
		}
	})
	await.Must(t, err)
	if report.Recovered != 2000 || !waited {
		t.Errorf("recovered %d, waited: %t", report.Recovered, waited)
	}
}
