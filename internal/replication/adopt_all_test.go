//go:build testall

package replication

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// As long as Debezium holds its slot the relay does not begin, and says who it is; check says what that means, and, when it was let
// go, how many events may come twice. A server of its own: how much WAL there is to read counts.
func TestSlotHeldByDebezium(t *testing.T) {
	b := alone(t)
	b.exec(`CREATE TABLE orders (id int PRIMARY KEY, state text)`)
	b.exec(`CREATE PUBLICATION p FOR ALL TABLES`)
	b.createSlot("pgoutput") // the only one on its server: that the publication is older can be told
	b.wantLine(LevelOK, "may arrive twice", "nothing: no event waits")
	b.insert("a")
	b.exec(`INSERT INTO orders VALUES (1, 'new')`)
	conn := b.hold("Debezium Streaming")
	stop := wantStop(t, b.run().wait(), outbox.ExitOperator, "slot_held")
	if !strings.Contains(stop.What, `"Debezium Streaming"`) || !strings.Contains(stop.Mend, "stop Debezium first") {
		t.Error(stop)
	}
	b.wantFinding("slot", `"Debezium Streaming"`, "stop Debezium first")
	b.wantLine(LevelOK, "may arrive twice", "is killed", "of WAL after "+b.confirmedFlush().String())
	closeStream(conn)
	b.waitFree()
	at := b.confirmedFlush()
	b.exec(`BEGIN`)
	b.insert("after it was stopped")
	b.exec(`DELETE FROM outbox`)
	b.exec(`COMMIT`)
	b.wantLine(LevelOK, "slot", "at "+at.String())
	b.wantLine(LevelOK, "may arrive twice", "at most 2: so many events wait in the slot, committed from 20")
	if line := b.lineOfMuchWAL(); !hasWords(line.Detail, []string{"were not counted", "B of WAL after " + at.String()}) {
		t.Errorf("too much to be read: %+v", line)
	}
	if now := b.confirmedFlush(); now != at {
		t.Errorf("check has moved the slot from %s to %s", at, now)
	}
	r := b.run()
	r.waitSeen("a", "after it was stopped")
	r.endClean()
	b.wantNoLine("adoption", "may arrive twice") // the slot is a relay's now
}

// lineOfMuchWAL is the line about what may arrive twice when there is more WAL than is read for it.
func (b *bench) lineOfMuchWAL() Finding {
	b.t.Helper()
	pool, err := connectPool(&b.cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	defer pool.Close()
	slot, err := readSlot(await.Context(b.t), pool, b.cfg.Slot)
	if err != nil || slot == nil {
		b.t.Fatalf("slot: %v %v", slot, err)
	}
	k := checker{c: &b.cfg, pool: pool, countable: 1}
	k.adoption(await.Context(b.t), slot, sends{}, false)
	return k.list[len(k.list)-1]
}

func TestSlotOfDebeziumWithOtherPublications(t *testing.T) {
	slotOfDebezium(t, map[string]string{
		"all_tables, by partition root":  `FOR ALL TABLES WITH (publish_via_partition_root = true)`,
		"filtered":                       `FOR TABLE outbox`,
		"filtered, by partition root":    `FOR TABLE outbox WITH (publish_via_partition_root = true)`,
		"operations named":               `FOR TABLE outbox, orders WITH (publish = 'insert, update, delete, truncate')`,
		"without truncate, as by itself": `FOR ALL TABLES WITH (publish = 'insert, update, delete')`,
	})
}
