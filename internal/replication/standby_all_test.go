//go:build testall

package replication

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/replicationtest"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/replication/survey"
)

func TestServerThatNeverAnswers(t *testing.T) {
	b := shared(t)
	p := b.through()
	p.Stall()
	r := b.run()
	r.waitPhase(survey.Waiting)
	if why := r.s.Snapshot().Why; strings.Contains(why, "->") {
		t.Errorf("a reason that is another one each time: %s", why)
	}
	if err := p.Restore(); err != nil {
		t.Fatal(err)
	}
	r.waitPhase(survey.Streaming)
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
	await.Until(t, "the relay to wait for the lock", func() bool { return b.logs.FilterMessageSnippet("another relay that prepares").Len() == 1 })
	p.Stall()
	r.waitPhase(survey.Waiting)
	p.Reset()
	if err := p.Restore(); err != nil {
		t.Fatal(err)
	}
	b.exec(`SELECT pg_advisory_unlock($1, hashtext($2))`, slot.CreationLock, b.cfg.Slot)
	r.waitPhase(survey.Streaming)
	r.endClean()
}

// The server went silent while the relay was about to take the slot, and comes back.
func TestServerThatGoesSilentWhileStandingBy(t *testing.T) {
	b := shared(t)
	first := b.settledRun("a")
	second := b.another()
	p := second.through()
	r := second.run()
	r.waitPhase(survey.Standby)
	p.Stall()
	first.endClean()
	p.Reset()
	if err := p.Restore(); err != nil {
		t.Fatal(err)
	}
	b.insert("b")
	r.waitSeen("b")
	r.endClean()
}

// What a server must have is said in one line, with the fix.
func TestServerThatIsNotPrepared(t *testing.T) {
	t.Parallel()
	p := ownServer(t, map[string]string{"wal_level": "replica", "max_replication_slots": "1", "max_wal_senders": "1"})
	b := newBench(t, p.URL("shop"))
	want := func(reason, fix string) {
		t.Helper()
		stop := replicationtest.WantStop(t, b.run().wait(), event.ExitFailure, reason)
		if !strings.Contains(stop.Fix, fix) {
			t.Errorf("the fix does not say %s: %s", fix, stop.Fix)
		}
	}
	want("wal_level", "ALTER SYSTEM SET wal_level = logical")
	b.exec(`ALTER SYSTEM SET wal_level = logical`)
	if _, err := p.Stop("fast"); err != nil {
		t.Fatal(err)
	}
	if err := p.Start(await.Context(t)); err != nil {
		t.Fatal(err)
	}
	b.reconnect()
	b.exec(`SELECT pg_create_physical_replication_slot('standby')`)
	want("no_slot", "max_replication_slots")
	b.exec(`SELECT pg_drop_replication_slot('standby')`)
	b.waitNoWalsender() // of the relay before
	conn, err := source.ConnectStream(await.Context(t), &b.cfg)
	if err != nil {
		t.Fatal(err)
	}
	want("no_sender", "max_wal_senders")
	source.CloseStream(conn)
	await.Until(t, "the walsender to be free", func() bool { return b.text(`SELECT count(*)::text FROM pg_stat_replication`) == "0" })
	b.goesOn("a")
}

func TestDatabaseThatDoesNotExist(t *testing.T) {
	t.Parallel()
	b := newBench(t, servers.OwnPostgres(t).Database(t))
	b.cfg.URL = servers.OwnPostgres(t).URL("nowhere")
	replicationtest.WantStop(t, b.run().wait(), event.ExitFailure, "database")
}

// A leader that was cut off without a sign is given up by source.wal_sender_timeout, which its
// session asks for, though the server's own says never, or in an hour: nobody else can end its hold
// on the slot.
func TestSilentLeaderWhateverTheServersTimeout(t *testing.T) {
	t.Parallel()
	p := servers.QuietPostgres(t)
	for _, own := range []string{"0", "1h"} {
		t.Run(own, func(t *testing.T) {
			b := newBench(t, p.Database(t))
			b.exec(fmt.Sprintf(`ALTER SYSTEM SET wal_sender_timeout = '%s'`, own))
			b.exec(`SELECT pg_reload_conf()`)
			await.Until(t, "the server's own wal_sender_timeout to be "+own, func() bool { return b.text(`SHOW wal_sender_timeout`) == own })
			b.cfg.WALSenderTimeout = 4 * time.Second
			standby := b.another()
			silent := b.through()
			b.settledRun("a")
			second := standby.run()
			second.waitPhase(survey.Standby)
			// and with the bytes the end of the connection, when the leader has given it up
			silent.Hold(netproxy.Up)
			silent.Hold(netproxy.Down)
			second.waitPhase(survey.Streaming)
			b.insert("b")
			second.waitSeen("b")
			second.endClean()
		})
	}
}
