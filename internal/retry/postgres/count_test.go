package postgres

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
)

func TestReadStats(t *testing.T) {
	w := newDatabase(t, servers.SharedPostgres(t), "")
	b := newBench(t, w)
	wants := func(c store.Config, deferred, dead int) (found store.Stats) {
		t.Helper()
		found, err := Count(await.Context(t), w.pool, c.Slot, c.SystemID, 10)
		b.must(err)
		if found.Deferred != deferred || found.Dead != dead || time.Since(found.At) > time.Minute {
			t.Errorf("the tables hold %+v, want %d rows and %d dead letters", found, deferred, dead)
		}
		return found
	}
	if found := wants(b.c, 0, 0); !found.OldestDeferred.IsZero() || !found.OldestDead.IsZero() {
		t.Errorf("of nothing there is an oldest: %+v", found)
	}
	rows := b.rows(3, "key", 1, 1)
	rows[1].Event.CommitTime = rows[1].Event.CommitTime.Add(time.Hour)
	b.deferRow(rows...)
	b.deadLetter("key")
	b.deadLetter("another")
	w.exec(`UPDATE cdc_relay.dead_letter SET died_at = now() - interval '1 hour' WHERE n = (SELECT max(n) FROM cdc_relay.dead_letter WHERE slot = $1)`, b.c.Slot)
	closed := b.deadLetter("closed")
	w.exec(`UPDATE cdc_relay.dead_letter SET state = 'discarded', died_at = now() - interval '2 hours' WHERE n = $1`, closed.N)
	copied := b.with(func(c *store.Config) { c.SystemID = "7000000000000000002" })
	copied.deferRow(copied.row("key", 1, 1))

	found := wants(b.c, 3, 2)
	if found.Bytes < 4*8192 { // a page of each table and of an index
		t.Errorf("the tables have %d bytes", found.Bytes)
	}
	if d := found.OldestDeferred.Sub(rows[0].Event.CommitTime).Abs(); d > time.Minute {
		t.Errorf("the oldest row is of %s, want %s", found.OldestDeferred, rows[0].Event.CommitTime)
	}
	if d := time.Since(found.OldestDead); d < time.Hour || d > time.Hour+time.Minute {
		t.Errorf("the oldest open dead letter died %s ago, want an hour", d)
	}
	wants(copied.c, 1, 0)
	wants(newBench(t, w).c, 0, 0)

	if found, err := Count(await.Context(t), w.pool, b.c.Slot, b.c.SystemID, 2); err != nil || found.Deferred != 2 || found.Dead != 2 {
		t.Errorf("with a limit of 2 it is %+v, %v", found, err)
	}

	w.exec(`ALTER TABLE cdc_relay.retry RENAME TO retired`)
	wants(b.c, 0, 0)
}

// Requests that send nothing are read as many as have keys of lightBytes, and then the others.
func TestLightRequests(t *testing.T) {
	w := newDatabase(t, servers.SharedPostgres(t), "")
	b := newBench(t, w)
	const rows, size = 20, lightBytes / 5
	for range rows {
		b.Ask(b.c, store.Discard, b.deadLetter("a").N, event.Route{})
	}
	w.exec(`UPDATE cdc_relay.dead_letter SET key = convert_to(repeat('k', $2), 'UTF8') WHERE slot = $1`, b.c.Slot, size)
	for left := rows; left > 0; {
		list, err := b.Requests(await.Context(t), 100, 1)
		b.must(err)
		if len(list) == 0 || len(list) > 6 {
			t.Fatalf("%d requests are read at once, of %d", len(list), left)
		}
		for _, q := range list {
			_, err := b.Answer(await.Context(t), []store.Answer{{Request: q}})
			b.must(err)
		}
		left -= len(list)
	}
}
