//go:build testall

package replication

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/replication/repair"
)

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
