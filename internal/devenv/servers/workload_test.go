package servers

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
)

// numbered fails unless the numbers of each key are 1, 2, 3, … without a gap.
func numbered(t *testing.T, rows []checker.Row) {
	t.Helper()
	seqs := map[string][]int64{}
	for _, r := range rows {
		seqs[r.Key] = append(seqs[r.Key], r.Seq)
	}
	for key, s := range seqs {
		slices.Sort(s)
		if s[0] != 1 || s[len(s)-1] != int64(len(s)) || len(slices.Compact(s)) != len(seqs[key]) {
			t.Fatalf("key %s has numbers %v", key, s)
		}
	}
}

func TestWorkloadNumbersCommittedRowsWithoutGaps(t *testing.T) {
	ctx := await.Context(t)
	dbURL := SharedPostgres(t).Database(t)
	await.Must(t, load.CreateOutbox(ctx, dbURL))
	var mu sync.Mutex
	told := map[string]checker.Row{}
	w := &load.Workload{
		URL: dbURL, Writers: 4, Keys: 5, Zipf: 1.1, RowsPerTx: 3, Rollbacks: 0.2, SavepointRollbacks: 0.3, Events: 600, Payload: 300, Seed: 1,
		OnCommit: func(rows []checker.Row, _ time.Time) {
			mu.Lock()
			defer mu.Unlock()
			for _, r := range rows {
				told[r.ID] = r
			}
		},
	}
	await.Must(t, w.Run(ctx))
	rows, err := load.ReadCommitted(ctx, dbURL)
	await.Must(t, err)
	numbered(t, rows)
	found := map[string]checker.Row{}
	for _, r := range rows {
		found[r.ID] = r
	}
	if !maps.Equal(found, told) || int64(len(rows)) != w.Committed() {
		t.Fatalf("%d rows in the table, %d told, %d counted", len(rows), len(told), w.Committed())
	}
	undone := w.RolledBack()
	if len(undone) < 50 || len(rows) < 300 || len(rows) >= 600 {
		t.Fatalf("%d rows committed, %d rolled back", len(rows), len(undone))
	}
	for _, id := range undone {
		if _, ok := found[id]; ok {
			t.Fatalf("row %s was rolled back and is in the table", id)
		}
	}
	var size int
	await.Must(t, pgserver.OnConn(ctx, dbURL, queryInto(ctx, &size, "SELECT min(length(payload::text)) FROM outbox")))
	if size != 300 {
		t.Fatalf("payloads have %d bytes, want 300", size)
	}
}

func TestWorkloadGoesOnAfterARestartOfPostgres(t *testing.T) {
	ctx := await.Context(t)
	p, err := pgserver.Start(ctx, pgserver.Options{NoFsync: true})
	await.Must(t, err)
	defer func() { await.Must(t, p.Close()) }()
	dbURL := p.Database(t)
	await.Must(t, load.CreateOutbox(ctx, dbURL))
	w := &load.Workload{URL: dbURL, Writers: 3, Rate: 2000}
	stop, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- w.Run(stop) }()
	for range 3 {
		before := w.Committed()
		await.Must(t, processes.Poll(ctx, 5*time.Millisecond, func() (bool, error) { return w.Committed() > before+50, nil }))
		_, err = p.Stop("immediate")
		await.Must(t, err)
		await.Must(t, p.Start(ctx))
	}
	cancel()
	await.Must(t, <-ended)
	rows, err := load.ReadCommitted(ctx, dbURL)
	await.Must(t, err)
	numbered(t, rows)
	if int64(len(rows)) < w.Committed() {
		t.Fatalf("%d rows in the table, %d were committed", len(rows), w.Committed())
	}
}

// Rows of other kinds are mixed among the usual ones as often as is asked for, of the keys that are
// asked for, and are numbered among them.
func TestWorkloadMixesKinds(t *testing.T) {
	ctx := await.Context(t)
	dbURL := SharedPostgres(t).Database(t)
	await.Must(t, load.CreateOutbox(ctx, dbURL))
	await.Must(t, load.RouteOutbox(ctx, dbURL, "usual"))
	w := &load.Workload{
		URL: dbURL, Writers: 3, Keys: 10, RowsPerTx: 2, Events: 1000, Seed: 1, Routed: "usual",
		Kinds: []load.Kind{
			{Share: 0.2, Payload: 5000},
			{Share: 0.5, Keys: 1, Destination: "elsewhere", RoutingKey: "to.nowhere", Type: "lost", Aggregate: "ledger"},
		},
	}
	await.Must(t, w.Run(ctx))
	rows, err := load.ReadCommitted(ctx, dbURL)
	await.Must(t, err)
	numbered(t, rows)
	count := func(where string) (n int) {
		await.Must(t, pgserver.OnConn(ctx, dbURL, queryInto(ctx, &n, "SELECT count(*) FROM outbox WHERE "+where)))
		return n
	}
	if n := count("length(payload::text) >= 5000"); n < 150 || n > 250 {
		t.Errorf("%d of 1000 rows are large, want some 200", n)
	}
	const other = "destination = 'elsewhere' AND routing_key = 'to.nowhere' AND type = 'lost' AND aggregatetype = 'ledger'"
	all, first := count(other), count("aggregateid = 'k0'")
	if share := float64(all) / float64(first); share < 0.3 || share > 0.7 || count(other+" AND aggregateid <> 'k0'") > 0 {
		t.Errorf("%d of %d rows of the first key go elsewhere, want half, and none of the others", all, first)
	}
	if n := count("destination = 'usual' AND routing_key = 'order.' || type"); n != len(rows)-all {
		t.Errorf("%d of %d rows are usual", n, len(rows)-all)
	}
	exchangesOrTopics := 0
	for _, r := range rows {
		if r.ExchangeOrTopic == "elsewhere" && r.Aggregate == "ledger" {
			exchangesOrTopics++
		}
	}
	if exchangesOrTopics != all {
		t.Errorf("%d rows are read as going elsewhere, want %d", exchangesOrTopics, all)
	}
}
