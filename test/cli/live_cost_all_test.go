//go:build testall

package cli

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
)

// A live event that comes alone costs the whole relay so many reads and writes. They are counted by
// the kernel, from one standstill of the slot to the next. What the machine or a timer adds to one
// event it does not add to each of twenty, so the cheapest of them counts: one call more per event
// is seen.
func TestCallsOfALiveEvent(t *testing.T) {
	t.Parallel()
	quiet := servers.QuietPostgres(t) // what others write costs keepalives
	for _, of := range []struct {
		broker        string
		rig           func(t *testing.T) *rig
		reads, writes int
	}{
		{"rabbitmq", func(t *testing.T) *rig { return withBroker(t).rig }, 8, 3},
		{"kafka", func(t *testing.T) *rig { return withKafka(t, 1).rig }, 8, 3},
	} {
		t.Run(of.broker, func(t *testing.T) {
			r := of.rig(t)
			r.db = quiet.Database(t)
			r.exec(load.OutboxTable)
			relay := r.start()
			ctx := await.Context(t)
			conn, err := pgx.Connect(ctx, r.db)
			must(t, err)
			defer conn.Close(context.WithoutCancel(ctx))
			reads, writes := 1<<30, 1<<30
			for range 20 {
				readsBefore, writesBefore := calls(t, relay.Pid())
				var before string // its commit
				must(t, pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
					return tx.QueryRow(ctx, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES (gen_random_uuid(), 'order', '1', 'created', '{}')
						RETURNING pg_current_wal_insert_lsn()::text`).Scan(&before)
				}))
				await.Until(t, "the event to be settled", func() (settled bool) {
					must(t, conn.QueryRow(ctx, `SELECT confirmed_flush_lsn > $1::pg_lsn FROM pg_replication_slots WHERE slot_name = $2`, before, r.slot).Scan(&settled))
					return settled
				})
				readsAfter, writesAfter := calls(t, relay.Pid())
				reads, writes = min(reads, readsAfter-readsBefore), min(writes, writesAfter-writesBefore)
			}
			if reads > of.reads || writes > of.writes {
				t.Errorf("an event takes %d reads and %d writes at least, want at most %d and %d", reads, writes, of.reads, of.writes)
			}
		})
	}
}

// calls are the reads and writes of a process so far.
func calls(t *testing.T, pid int) (reads, writes int) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "io"))
	must(t, err)
	counts := map[string]int{}
	for line := range strings.Lines(string(text)) {
		name, count, _ := strings.Cut(strings.TrimSpace(line), ": ")
		counts[name], err = strconv.Atoi(count)
		must(t, err)
	}
	return counts["syscr"], counts["syscw"]
}
