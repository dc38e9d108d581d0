//go:build testall

package replication

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/replication/repair"
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
	for change, held := range map[string]int64{"tx = NULL": 1, "tx = NULL, relation = 1": 0, "tx = NULL, headers = '{}'": 0, "tx = 3": 0} {
		t.Run(change, func(t *testing.T) {
			b := lost(t)
			b.exec(`UPDATE cdc_relay.retry SET ` + change)
			report, err := b.recover(anyOrder)
			await.Must(t, err)
			if report.Recovered != 1-held || report.Held != held {
				t.Errorf("%+v", report)
			}
		})
	}
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
// it any more is not taken for recovered.
func TestRecoverOfATableThatIsRewritten(t *testing.T) {
	for name, rewrite := range map[string]string{
		"rewritten":  `ALTER TABLE other ADD COLUMN more float8 DEFAULT random()`,
		"repacked":   `CREATE TABLE new (LIKE other INCLUDING ALL); INSERT INTO new SELECT * FROM other; DROP TABLE other; ALTER TABLE new RENAME TO other`,
		"clustered":  `CREATE INDEX by_id ON other (id); CLUSTER other USING by_id`,
		"vacuumed":   `VACUUM FULL other`,
		"truncated":  `CREATE TEMP TABLE saved AS TABLE other; TRUNCATE other; INSERT INTO other TABLE saved`,
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
