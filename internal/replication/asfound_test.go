package replication

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// A publication that got the table after the slot's position hides rows. It can not be told for certain from one that is as old
// as the slot, so the slot is not taken: check says so, and so does the relay, at every start until somebody has accepted it.
func TestSlotOlderThanItsPublication(t *testing.T) {
	for name, sql := range map[string][2]string{
		"table added":         {`CREATE PUBLICATION p`, `ALTER PUBLICATION p ADD TABLE outbox`},
		"publication altered": {`CREATE PUBLICATION p FOR TABLE outbox WITH (publish = 'update')`, `ALTER PUBLICATION p SET (publish = 'insert')`},
	} {
		t.Run(name, func(t *testing.T) {
			b := shared(t)
			b.exec(sql[0])
			b.createSlot("pgoutput")
			b.insert("hidden")
			wantStop(t, b.run().wait(), outbox.ExitOperator, "publication")
			b.exec(sql[1])
			b.insert("shown")
			at := b.confirmedFlush()
			b.wantFinding("rows hidden", "younger", "INSERT INTO cdc_relay.slots")
			var stop *outbox.Stop
			for range 2 {
				stop = wantStop(t, b.run().endsBefore("shown"), outbox.ExitOperator, "publication")
				if !strings.Contains(stop.What, "committed after "+at.String()) || b.confirmedFlush() != at {
					t.Errorf("%v, and the slot is at %s", stop, b.confirmedFlush())
				}
			}
			b.runMend(stop)
			b.wantLine(LevelOK, "adoption", "goes on from where it stands")
			b.settledRun("sent").endClean()
			b.goesOn("later")
		})
	}
}

// endsBefore is the end of the stream, which must come before an event is sent.
func (r *running) endsBefore(id string) error {
	r.b.t.Helper()
	await.Until(r.b.t, "the stream to end", func() bool {
		select {
		case <-r.done:
			return true
		default:
		}
		line := r.b.current()
		return line != nil && slices.Contains(line.seen(), id)
	})
	select {
	case <-r.done:
		return r.err
	default:
		r.b.t.Fatalf("%s is sent", id)
		return nil
	}
}

// usedByAnother leaves a slot, free, that was in use for a while. On a server of its own: the slots of others hold back what tells
// that the publication is older.
func (b *bench) usedByAnother() {
	b.t.Helper()
	r := b.settledRun("first")
	await.Until(b.t, "the slot to leave its publication behind", func() bool {
		b.exec(`CHECKPOINT`)
		b.exec(`INSERT INTO outbox VALUES (gen_random_uuid()::text, '{}')`)
		return b.text(`SELECT coalesce((SELECT age(max(xmin::text)::xid) FROM pg_publication) > (SELECT age(catalog_xmin) FROM pg_replication_slots)
			AND coalesce((SELECT age(max(xmin::text)::xid) FROM pg_publication_rel) > (SELECT age(catalog_xmin) FROM pg_replication_slots), true), false)::text`) == "true"
	})
	r.endClean()
	b.waitFree()
	b.exec(`DELETE FROM cdc_relay.progress`)
	b.exec(`DELETE FROM cdc_relay.slots`) // no relay's any more
}

// accept says of a slot that no relay has used that it will do, which on a server with other slots nothing else may tell.
func (b *bench) accept() {
	b.t.Helper()
	pool, err := connectPool(&b.cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	defer pool.Close()
	if err := ensureSchema(await.Context(b.t), pool, &b.cfg); err != nil {
		b.t.Fatal(err)
	}
	b.exec(acceptSQL(&b.cfg))
}

// And when it came before all the same, rows may be hidden, which the other slot has: ours is made anew. With source.create: false too,
// where the row that says takeover is what makes the slot the younger one.
func TestTakeoverWithASlotOlderThanItsPublication(t *testing.T) {
	for name, create := range map[string]bool{"made by us": true, "made by hand": false} {
		t.Run(name, func(t *testing.T) {
			b := shared(t)
			o := b.newTool()
			_, err := b.now(&otherTool{b: b, slot: "nobodys"})
			wantStop(t, err, outbox.ExitUsage, "usage") // and the schema is there
			b.cfg.Create = create
			b.exec(`CREATE PUBLICATION p`)
			b.createSlot("pgoutput")
			b.insert("hidden")
			b.exec(`ALTER PUBLICATION p ADD TABLE outbox`)
			for range 2 {
				_, err = b.now(o)
				wantStop(t, err, outbox.ExitOperator, "publication")
			}
			b.runMend(wantStop(t, err, outbox.ExitOperator, "publication"))
			_, err = b.now(o)
			if !create {
				wantStop(t, err, outbox.ExitOperator, "slot_missing")
				b.createSlot("pgoutput")
				_, err = b.now(o)
				if err := Init(await.Context(t), b.cfg, InitOptions{}); err != nil {
					t.Errorf("init, which a take-over may be told to run: %v", err)
				}
			}
			wantStop(t, err, outbox.ExitOperator, "takeover") // begun: the other slot has to pass
		})
	}
}

// The same, begun at the same time: each has only its own slot's lock, and neither sees a row of the other one when it looks first.
func TestTwoTakeoversBeginTogether(t *testing.T) {
	b := shared(t)
	o := b.newTool()
	_, err := b.now(&otherTool{b: b, slot: "nobodys"})
	wantStop(t, err, outbox.ExitUsage, "usage") // and the schema is there
	b.exec(`CREATE PUBLICATION p FOR TABLE outbox`)
	b.cfg.Create = false // they end where their slots would be made
	var both [2]*takeover
	for i := range both {
		c := b.cfg
		c.Slot = fmt.Sprintf("%s_%d", b.cfg.Slot, i)
		both[i] = b.takeover(&c, o)
	}
	for range 20 {
		var errs [2]error
		var running sync.WaitGroup
		for i, m := range both {
			running.Go(func() {
				errs[i] = m.locked(await.Context(t), func(ctx context.Context) error { return m.prepare(ctx, nil) })
			})
		}
		running.Wait()
		if rows := b.text(`SELECT count(*)::text FROM cdc_relay.slots`); rows != "1" {
			t.Fatalf("%s take the place of one slot: %v", rows, errs)
		}
		first := slices.IndexFunc(errs[:], func(err error) bool { return strings.Contains(fmt.Sprint(err), "does not exist") })
		if first < 0 {
			t.Fatal(errs)
		}
		wantStop(t, errs[first], outbox.ExitOperator, "slot_missing")
		wantStop(t, errs[1-first], outbox.ExitUsage, "usage")
		b.exec(`DELETE FROM cdc_relay.slots`)
	}
}

// Rows of a partition that was detached or dropped while they waited come under a name that is nobody's. The relay stops there, until
// somebody has said whose they are; other tables of the publication go by as ever.
func TestRowsOfPartitionsThatAreGone(t *testing.T) {
	t.Parallel()
	t.Run("detached/a partition", func(t *testing.T) { partitionGone(t, detachPartition, true) })
	t.Run("dropped/none", func(t *testing.T) { partitionGone(t, `DROP TABLE outbox_0`, false) })
}

const detachPartition = `ALTER TABLE outbox DETACH PARTITION outbox_0`

// partitionGone has a partition removed, of which somebody says whether it was one.
func partitionGone(t *testing.T, remove string, partition bool) {
	t.Helper()
	b := shared(t)
	b.partition("waits")
	b.exec(`CREATE TABLE outbox_archive (id text, payload jsonb, at date)`) // never a partition
	b.exec(`CREATE TABLE outbox_old (id text PRIMARY KEY, payload jsonb)`)
	b.exec(`INSERT INTO outbox_old VALUES ('long sent', '{}')`)
	b.cfg.Tables[0].Mapping.Traceparent = decode.Names{Any: []string{"traceparent"}, Optional: true}
	b.exec(`CREATE PUBLICATION p FOR ALL TABLES`)
	b.createSlot("pgoutput")
	b.insert("before")
	b.exec(`INSERT INTO orders VALUES ('nobody cares')`)
	b.exec(`DELETE FROM outbox_old`) // no event, whatever it was
	b.exec(`INSERT INTO outbox_archive VALUES ('archived', '{}')`)
	b.insert("waits")
	b.exec(remove)
	b.exec(`ALTER TABLE outbox ADD COLUMN traceparent text`) // which the rows that wait do not have
	b.exec(`ALTER PUBLICATION p SET (publish_via_partition_root = true)`)
	b.insert("after")
	b.accept()
	_, none := b.stray("public.outbox_archive")
	b.runMend(none)
	was, none := b.stray("public.outbox_0")
	want := []string{"waits", "after"}
	if partition {
		b.runMend(was)
	} else {
		b.runMend(none)
		want = want[1:]
	}
	r := b.run()
	r.waitSeen("after")
	r.endClean()
	seen := slices.DeleteFunc(b.current().seen(), func(id string) bool { return id == "before" }) // which a run before may have sent
	if !slices.Equal(seen, want) {
		t.Errorf("sent %v, want %v", seen, want)
	}
	// Later a table may look like a partition as it pleases.
	b.exec(`CREATE TABLE outbox_2 (id text, payload jsonb)`)
	b.exec(`INSERT INTO outbox_2 VALUES ('a copy', '{}')`)
	b.goesOn("later")
}

// partition makes the outbox anew, partitioned: outbox_0 gets the row of this id, outbox_1 all others. Beside it is a table that is nobody's.
func (b *bench) partition(id string) {
	b.t.Helper()
	b.exec(`DROP TABLE outbox`)
	b.exec(`CREATE TABLE outbox (id text, payload jsonb) PARTITION BY LIST (id)`)
	b.exec(`CREATE TABLE outbox_0 PARTITION OF outbox FOR VALUES IN ('` + id + `')`)
	b.exec(`CREATE TABLE outbox_1 PARTITION OF outbox DEFAULT`)
	b.exec(`CREATE TABLE orders (id text)`)
}

// stray is the stop at a table that may have been a partition, which every start comes to: what to do if it was one, and if not.
func (b *bench) stray(table string) (was, none *outbox.Stop) {
	b.t.Helper()
	var stop *outbox.Stop
	for range 2 {
		stop = wantStop(b.t, b.run().endsBefore("after"), outbox.ExitOperator, "table")
		if !strings.Contains(stop.What, table) {
			b.t.Error(stop)
		}
	}
	one, other, found := strings.Cut(stop.Mend, "; if it was none: ")
	if !found {
		b.t.Fatal(stop.Mend)
	}
	return &outbox.Stop{Mend: one}, &outbox.Stop{Mend: other}
}

// A table that came later under what is sent all the time: its rows of before are in no stream.
func TestSlotOlderThanItsTable(t *testing.T) {
	b := alone(t)
	b.exec(`CREATE PUBLICATION p FOR ALL TABLES`)
	b.usedByAnother()
	b.exec(`ALTER TABLE outbox SET UNLOGGED`)
	b.insert("hidden")
	b.exec(`ALTER TABLE outbox SET LOGGED`)
	b.insert("shown")
	stop := wantStop(t, b.run().endsBefore("shown"), outbox.ExitOperator, "publication")
	if !strings.Contains(stop.What, "public.outbox") && !strings.Contains(stop.What, `"outbox"`) {
		t.Error(stop)
	}
}

// A table of which an operator has said that it was no partition is not asked about again, though the publication listed it.
func TestTableThatWasNoPartitionAndWasListed(t *testing.T) {
	b := shared(t)
	b.partition("waits")
	b.exec(`CREATE TABLE outbox_archive (id text, payload jsonb)`)
	b.exec(`CREATE PUBLICATION p FOR TABLE outbox, outbox_archive`)
	b.createSlot("pgoutput")
	b.exec(`INSERT INTO outbox_archive VALUES ('archived', '{}')`)
	b.exec(`ALTER PUBLICATION p SET (publish_via_partition_root = true)`)
	b.exec(`ALTER PUBLICATION p DROP TABLE outbox_archive`)
	b.insert("after")
	b.accept()
	_, none := b.stray("public.outbox_archive")
	b.runMend(none)
	r := b.run()
	r.waitSeen("after")
	r.endClean()
}
