package replication

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/publication"
	"github.com/cdc-relay/cdc-relay/internal/replication/replicationtest"
)

func TestPublicationAlteredThereAndBack(t *testing.T) {
	alteredThereAndBack(t, map[string][2]string{
		"inserts": {`ALTER PUBLICATION p SET (publish = 'delete')`, `ALTER PUBLICATION p SET (publish = 'insert')`},
	})
}

func alteredThereAndBack(t *testing.T, changes map[string][2]string) {
	t.Parallel()
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			b := shared(t)
			b.exec(`DROP TABLE outbox`)
			b.exec(`CREATE TABLE outbox (id text, payload jsonb) PARTITION BY HASH (id)`)
			b.exec(`CREATE TABLE leaf PARTITION OF outbox FOR VALUES WITH (MODULUS 1, REMAINDER 0)`)
			b.settledRun("a").endClean()
			changed := b.text(`SELECT pg_current_wal_insert_lsn()::text`)
			b.exec(change[0])
			if name != "name" { // where the publication is missing the row ends the slot
				b.insert("lost")
			}
			b.exec(change[1])
			var stop *event.Stop
			for range 2 { // it is not taken for granted the second time
				stop = replicationtest.WantStop(t, b.run().wait(), event.ExitOperator, "publication")
				b.wantGap(stop, changed, changed)
				if !strings.Contains(stop.What, "was altered") {
					t.Errorf("it is not said what happened: %s", stop.What)
				}
			}
			b.wantFinding("publication", "was altered", "adopt")
			b.runFix(stop)
			// what was committed meanwhile came under the partition's name
			if name == "partition root" {
				b.runFix(replicationtest.WantStop(t, b.run().endsBefore("lost"), event.ExitOperator, publication.NotConfigured))
			}
			r := b.settledRun("b")
			// at once: a relay that checks in between reports another fix
			b.exec(change[0] + `; ` + change[1])
			b.runFix(replicationtest.WantStop(t, r.wait(), event.ExitOperator, "publication"))
			b.goesOn("c")
		})
	}
}
