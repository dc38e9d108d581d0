//go:build testall

package replication

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
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
