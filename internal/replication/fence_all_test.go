//go:build testall

package replication

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/replicationtest"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/replication/survey"
)

// A former leader's statement was stopped in its middle and keeps the row that carries the epoch.
// It is ended.
func TestTakeoverEndsAStatementOfAFormerLeader(t *testing.T) {
	b := shared(t)
	b.settledRun("a").endClean()
	former := b.cfg
	pool, err := source.ConnectPool(&former)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	tx, err := pool.BeginTx(await.Context(t), pgx.TxOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(await.Context(t), `SELECT FROM cdc_relay.slots WHERE slot = $1 FOR SHARE`, b.cfg.Slot); err != nil {
		t.Fatal(err)
	}
	b.goesOn("b")
	if _, err := tx.Exec(await.Context(t), `SELECT 1`); source.SQLState(err) != "57P01" {
		t.Errorf("the session that kept the row: %v", err)
	}
	await.Until(t, "the line about it", func() bool {
		return b.logs.FilterMessageSnippet("ended sessions of a former leader").Len() == 1
	})
}

// Somebody else's session may keep the row as well. It is waited for.
func TestTakeoverWaitsForOthers(t *testing.T) {
	b := shared(t)
	b.settledRun("a").endClean()
	other := b.connect()
	tx, err := other.Begin(await.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(await.Context(t), `SELECT FROM cdc_relay.slots WHERE slot = $1 FOR SHARE`, b.cfg.Slot); err != nil {
		t.Fatal(err)
	}
	r := b.run()
	await.Until(t, "the takeover to wait", func() bool {
		return b.text(`SELECT count(*)::text FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) == "1"
	})
	if err := tx.Commit(await.Context(t)); err != nil {
		t.Fatal(err)
	}
	r.waitPhase(survey.Streaming)
	r.endClean()
}

func TestLeaderCutOffSilentlyAndAskedToStop(t *testing.T) {
	leaderCutOff(t, map[string]func(r *running, p *netproxy.Proxy, leads bool){
		"asked to stop": func(r *running, _ *netproxy.Proxy, leads bool) {
			r.stop()
			wantCutOrReplaced(r, !leads)
		},
		"asked to stop, and back": func(r *running, p *netproxy.Proxy, _ bool) {
			r.stop()
			p.Release(netproxy.Up)
			p.Release(netproxy.Down)
			wantCutOrReplaced(r, true)
		},
	})
}

// wantCutOrReplaced: a relay that was asked to stop ends with what it could not settle, or, if it
// may have heard that another one leads, and threw that away, cleanly.
func wantCutOrReplaced(r *running, mayHaveHeard bool) {
	r.b.t.Helper()
	if err := r.wait(); err != nil || !mayHaveHeard {
		replicationtest.WantStop(r.b.t, err, event.ExitCut, "cut")
	}
}
