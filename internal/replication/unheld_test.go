package replication

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
)

// Which slots are unheld, and what waits in them: each has a record, some have a slot, and rows of
// this system or another.
func TestUnheldSlots(t *testing.T) {
	t.Parallel()
	p := servers.OwnPostgres(t)
	b, elsewhere := newBench(t, p.Database(t)), newBench(t, p.Database(t))
	pool := b.withSchema()
	name := func(n string) string { return b.cfg.Slot + n }
	create := func(of *bench, n string) {
		of.exec(`SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, name(n))
		t.Cleanup(func() { _, _ = of.conn.Exec(context.Background(), `SELECT pg_drop_replication_slot($1)`, name(n)) })
	}
	for _, n := range []string{"", "_nothing", "_rows", "_many", "_copy", "_of_copy", "_wal", "_held", "_by_hand", "_elsewhere", "; ls"} {
		b.exec(`INSERT INTO cdc_relay.slots (slot, system_id, timeline, publication, state, incarnation)
			SELECT $1, CASE $2 WHEN '_copy' THEN '4711' WHEN '_by_hand' THEN '' ELSE system_identifier::text END, 1, 'p', 'ready', 1 FROM pg_control_system()`, name(n), n)
	}
	const columns = `slot, system_id, incarnation, commit_lsn, idx, n, ordering_group, exchange_or_topic, dest, hash, keyed, ordered, attempts, bytes,
		class, reason, error, destination, commit_time, event_time, payload_kind`
	const values = ` SELECT $1, CASE WHEN $2 THEN (SELECT system_identifier::text FROM pg_control_system()) ELSE '4711' END, 1, '0/1', i,
		nextval('cdc_relay.row_number'), 1, 1, 1, 1, true, true, 0, 1, '', '', '', '', now(), now(), 0`
	deferred := func(n string, rows int, ours bool) {
		b.exec(`INSERT INTO cdc_relay.retry (`+columns+`) `+values+` FROM generate_series(1, $3::int) i`, name(n), ours, rows)
	}
	for _, n := range []string{"", "_rows", "_held", "_elsewhere", "; ls"} {
		deferred(n, 1, true)
	}
	deferred("_many", 10_001, true)
	deferred("_copy", 1, false)
	deferred("_of_copy", 1, false)
	b.exec(`INSERT INTO cdc_relay.dead_letter (`+columns+`, deferred_at, state) `+values+`, now(), CASE WHEN i < 3 THEN 'open' ELSE 'discarded' END FROM generate_series(1, 3) i`, name("_rows"), true)
	create(elsewhere, "_elsewhere")
	for _, n := range []string{"_wal", "_by_hand", "_held"} {
		create(b, n)
	}
	reader, err := b.replicate(name("_held"), "reader", "proto_version '1'", "publication_names 'p'")
	await.Must(t, err)

	wait := func(what string, lines ...string) {
		t.Helper()
		var got []string
		await.Until(t, what, func() bool {
			got = nil
			list, err := slot.ReadUnheld(await.Context(t), pool, b.cfg.Slot)
			await.Must(t, err)
			for _, u := range list {
				got = append(got, strings.TrimPrefix(u.Name, b.cfg.Slot)+": "+regexp.MustCompile(`[0-9.]+ \w+ of WAL`).ReplaceAllString(u.Waits(), "WAL"))
				if most := u.Name == name("_many"); u.OrMore != most {
					t.Errorf("or more is %t of %+v", u.OrMore, u)
				}
			}
			return slices.Equal(got, lines)
		}, func() any { return got })
	}
	others := []string{"_by_hand: WAL", "_elsewhere: 1 deferred event", "_many: at least 10000 deferred events", "_rows: 1 deferred event, 2 open dead letters", "_wal: WAL"}
	wait("those that nobody holds", others...)
	await.Must(t, reader.Close(await.Context(t)))
	wait("the one that was held, too", slices.Insert(others, 2, "_held: 1 deferred event, WAL")...)
}
