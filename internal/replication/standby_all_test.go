//go:build testall

package replication

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

func TestServerThatNeverAnswers(t *testing.T) {
	b := shared(t)
	p := b.through()
	p.Stall()
	r := b.run()
	r.waitPhase(slot.Waiting)
	if why := r.s.Snapshot().Why; strings.Contains(why, "->") {
		t.Errorf("a reason that is another one each time: %s", why)
	}
	await.Must(t, p.Restore())
	r.waitPhase(slot.Streaming)
	r.endClean()
	if n := b.waits(); n != 1 {
		t.Errorf("%d lines for one reason", n)
	}
}

// The server goes silent in the middle of the first start's questions, here while another relay
// creates the slot.
func TestServerThatGoesSilentWhilePreparing(t *testing.T) {
	b := shared(t)
	p := b.through()
	b.exec(`SELECT pg_advisory_lock($1, hashtext($2))`, slot.CreationLock, b.cfg.Slot)
	r := b.run()
	await.Until(t, "the relay to wait for the lock", func() bool { return b.logs.FilterMessageSnippet("waiting for another relay, or a command").Len() == 1 })
	p.Stall()
	r.waitPhase(slot.Waiting)
	p.Reset()
	await.Must(t, p.Restore())
	b.exec(`SELECT pg_advisory_unlock($1, hashtext($2))`, slot.CreationLock, b.cfg.Slot)
	r.waitPhase(slot.Streaming)
	r.endClean()
}

// The server went silent while the relay was about to take the slot, and comes back.
func TestServerThatGoesSilentWhileStandingBy(t *testing.T) {
	b := shared(t)
	first := b.settledRun("a")
	second := b.another()
	p := second.through()
	r := second.run()
	r.waitPhase(slot.Standby)
	p.Stall()
	first.endClean()
	p.Reset()
	await.Must(t, p.Restore())
	b.insert("b")
	r.waitSeen("b")
	r.endClean()
}

func TestDatabaseThatDoesNotExist(t *testing.T) {
	t.Parallel()
	b := newBench(t, servers.OwnPostgres(t).Database(t))
	b.cfg.URL = servers.OwnPostgres(t).URL("nowhere")
	b.wantStop(b.run().wait(), event.ExitFailure, "database")
}

// A former leader's statement was stopped in its middle and keeps the row that carries the epoch.
// It is ended, also when a proxy hides the process ids.
func TestTakeoverEndsAStatementOfAFormerLeader(t *testing.T) {
	b := shared(t)
	b.through().HideProcessIDs()
	b.goesOn("a")
	former := b.cfg
	pool, err := source.ConnectPool(&former)
	await.Must(t, err)
	defer pool.Close()
	tx, err := pool.BeginTx(await.Context(t), pgx.TxOptions{})
	await.Must(t, err)
	defer tx.Rollback(context.Background())
	_, err = tx.Exec(await.Context(t), `SELECT FROM cdc_relay.slots WHERE slot = $1 FOR SHARE`, b.cfg.Slot)
	await.Must(t, err)
	b.goesOn("b")
	if _, err := tx.Exec(await.Context(t), `SELECT 1`); source.SQLState(err) != "57P01" {
		t.Errorf("the session that kept the row: %v", err)
	}
}
