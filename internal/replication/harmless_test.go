package replication

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// ownServer is for tests that stop or reconfigure it.
func ownServer(t *testing.T, settings map[string]string) *devenv.Postgres {
	t.Helper()
	p, err := devenv.StartPostgres(bounded(t, time.Minute), devenv.PostgresOptions{Settings: settings})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	if err := p.CreateDatabase(bounded(t, time.Minute), "shop"); err != nil {
		t.Fatal(err)
	}
	return p
}

// A fast shutdown waits for each walsender until it has reported the last record of the WAL, which a relay can not: the
// ceiling is a row in the database that is going down. The relay lets go instead.
func TestServerStopsAsFastWithARelay(t *testing.T) {
	p := ownServer(t, nil)
	b := setup(t, p.URL("shop"))
	b.cfg.Grace = 25 * time.Second
	without, err := p.Stop("fast")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(bounded(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	b.reconnect()
	r := b.run()
	r.waitPhase(Streaming)
	b.insert("a")
	r.waitSeen("a")
	healthy, err := p.Stop("fast")
	if err != nil {
		t.Fatal(err)
	}
	if healthy >= without+shutdownPatience { // it takes longer than that when it does not let go by itself
		t.Errorf("stop took %v with a healthy relay, %v without", healthy, without)
	}
	if err := p.Start(bounded(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	r.waitPhase(Streaming)
	b.reconnect()
	b.current().hold() // the broker is dead from now on
	b.insert("b")
	r.waitSeen("b")
	dead, err := p.Stop("fast")
	if err != nil {
		t.Fatal(err)
	}
	// Without that patience it would be the relay's grace, or its server's wal_sender_timeout.
	tooLong := without + shutdownPatience + (min(b.cfg.Grace, b.cfg.WALSenderTimeout)-shutdownPatience)*2/3
	if dead > tooLong {
		t.Errorf("stop took %v with a dead broker, %v without a relay", dead, without)
	}
	if dead < shutdownPatience/2 {
		t.Errorf("stop took only %v: unsettled events were not waited for, this test shows nothing", dead)
	}
	if err := p.Start(bounded(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	// The everyday case: relay, broker and server are stopped together. The relay's long grace is not the server's.
	r.waitPhase(Streaming)
	b.reconnect()
	r.stop()
	r.waitPhase(Stopping)
	both, err := p.Stop("fast")
	if err != nil {
		t.Fatal(err)
	}
	if both > tooLong {
		t.Errorf("stop took %v with a relay that was stopping, %v without", both, without)
	}
	if err := r.wait(); err == nil {
		t.Error("events were not confirmed, and the stop was a clean one")
	} else {
		wantStop(t, err, outbox.ExitCut, "cut")
	}
}

// A raise of the ceiling is a commit. Under a publication FOR ALL TABLES that commit comes back in the stream, and must
// not cause the next one.
func TestIdleRelayHardlyWrites(t *testing.T) {
	t.Parallel()
	p := ownServer(t, nil) // what other databases write moves the slot too
	b := setup(t, p.URL("shop"))
	b.exec(`CREATE PUBLICATION p FOR ALL TABLES`)
	r := b.run()
	r.waitPhase(Streaming)
	b.insert("a")
	r.waitSeen("a")
	until(t, "the event to be reported", func() bool { return b.confirmedFlush() >= b.current().ownWatermark() })
	b.exec(`SELECT pg_create_logical_replication_slot('watch', 'test_decoding')`)
	idle := time.NewTimer(30 * time.Second) // the time itself is what is tested
	<-idle.C
	var wrote int
	if err := b.conn.QueryRow(bounded(t, time.Minute), `SELECT count(*) FROM pg_logical_slot_get_changes('watch', NULL, NULL)
		WHERE data LIKE 'table cdc_relay.%'`).Scan(&wrote); err != nil {
		t.Fatal(err)
	}
	if wrote > 1 {
		t.Errorf("%d rows of ours were written in 30 idle seconds", wrote)
	}
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
}

// An idle outbox must not pin the WAL that other tables write.
func TestIdleOutboxMovesWithOtherTables(t *testing.T) {
	b := shared(t)
	b.exec(`CREATE TABLE other (t text)`)
	r := b.run()
	r.waitPhase(Streaming)
	for range 3 {
		b.exec(`INSERT INTO other SELECT repeat(md5(g::text), 100) FROM generate_series(1, 8000) g`) // some 25 MB
		var at string
		if err := b.conn.QueryRow(bounded(t, time.Minute), `SELECT pg_current_wal_lsn()::text`).Scan(&at); err != nil {
			t.Fatal(err)
		}
		until(t, "the slot to follow", func() bool {
			v, err := readSlot(bounded(t, time.Minute), b.conn, b.cfg.Slot)
			return err == nil && uint64(v.Current)-uint64(v.ConfirmedFlush) < 20<<20
		})
	}
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
}

func TestCandidateSynchronousStandbyIsRefused(t *testing.T) {
	t.Parallel()
	p := ownServer(t, map[string]string{"synchronous_standby_names": `FIRST 2 ("cdc-relay/sync", a)`, "synchronous_commit": "local"})
	b := setup(t, p.URL("shop"))
	b.cfg.Slot = "sync"
	wantStop(t, b.run().wait(), outbox.ExitFailure, "sync_standby")
}

// The setting may change under a running relay: its first report makes it a standby that commits wait for.
func TestRelayThatBecomesASynchronousStandbyStops(t *testing.T) {
	t.Parallel()
	p := ownServer(t, map[string]string{"synchronous_commit": "local"})
	b := setup(t, p.URL("shop"))
	r := b.run()
	r.waitPhase(Streaming)
	b.exec(`ALTER SYSTEM SET synchronous_standby_names = '*'`)
	b.exec(`SELECT pg_reload_conf()`)
	wantStop(t, r.wait(), outbox.ExitFailure, "sync_standby")
}

// reconnect is for after a restart of the server.
func (b *bench) reconnect() { b.conn = b.connect() }
