package replication

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/devenv"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// several is source.url with more than one host.
func several(t *testing.T, of string, addrs ...string) string {
	t.Helper()
	u, err := url.Parse(of)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = strings.Join(addrs, ",")
	return u.String()
}

// keyValue is the same in libpq's other form.
func keyValue(t *testing.T, addrs ...string) string {
	t.Helper()
	var hosts, ports []string
	for _, a := range addrs {
		host, port, _ := strings.Cut(a, ":")
		hosts, ports = append(hosts, host), append(ports, port)
	}
	return fmt.Sprintf("host=%s port=%s dbname=shop user=postgres sslmode=disable", strings.Join(hosts, ","), strings.Join(ports, ","))
}

// pair is a primary and a physical standby of it.
func pair(t *testing.T) (primary, standby *devenv.Postgres) {
	t.Helper()
	primary = ownServer(t, nil)
	standby, err := devenv.StartStandby(bounded(t, 2*time.Minute), primary)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { standby.Close() })
	return primary, standby
}

// The one that can be written to is taken, wherever it stands and however the hosts are written: behind a host that is not
// there, and behind a standby, which answers. Alone, the standby is waited for, and the reason says so.
func TestSeveralHosts(t *testing.T) {
	t.Parallel()
	primary, standby := pair(t)
	b := setup(t, primary.URL("shop"))
	const nobody = "127.0.0.1:1"
	for i, from := range []string{
		several(t, b.url, nobody, primary.Addr()),
		several(t, b.url, primary.Addr(), nobody),
		several(t, b.url, standby.Addr(), primary.Addr()),
		several(t, b.url, nobody, standby.Addr(), primary.Addr()),
		several(t, b.url, standby.Addr(), primary.Addr()) + "&target_session_attrs=read-write",
		several(t, b.url, standby.Addr(), primary.Addr()) + "&target_session_attrs=any",
		keyValue(t, standby.Addr(), primary.Addr()),
	} {
		b.cfg.URL = from
		r := b.run()
		r.waitPhase(Streaming)
		id := fmt.Sprintf("row %d", i)
		b.insert(id)
		r.waitSeen(id)
		r.endClean()
		if n := b.waits(); n > 0 {
			t.Fatalf("waited with %s: %v", from, b.logs.FilterMessageSnippet("waiting for PostgreSQL").All())
		}
	}
	b.cfg.URL = several(t, b.url, nobody, standby.Addr())
	r := b.run()
	r.waitPhase(Waiting)
	if why := r.s.Snapshot().Why; !strings.Contains(why, "standby") || !strings.Contains(why, "name the primary") || strings.Contains(why, "\n") {
		t.Errorf("the reason is %q", why)
	}
	r.endClean()
	if f := b.finding("postgres"); f.Level != LevelFail || !strings.Contains(f.Detail, "standby") || !strings.Contains(f.Mend, "name the primary") {
		t.Errorf("check says %+v", f)
	}
	b.cfg.URL = several(t, b.url, nobody, "127.0.0.1:2") // and when there is none at all
	r = b.run()
	r.waitPhase(Waiting)
	r.endClean()
}

// The role is read-only by its own settings: that is no standby.
func TestSeveralHostsAsARoleThatIsReadOnly(t *testing.T) {
	role, as := newRole(t, "SUPERUSER")
	b := shared(t)
	b.exec("ALTER ROLE " + role + " SET default_transaction_read_only = on")
	b.cfg.URL = as(b.url)
	u, err := url.Parse(b.cfg.URL)
	if err != nil {
		t.Fatal(err)
	}
	b.cfg.URL = several(t, b.cfg.URL, "127.0.0.1:1", u.Host) + "&target_session_attrs=read-write"
	b.goesOn("a")
}

// The primary dies and its standby is promoted. The slot did not come along, so rows may be missing there: an operator
// decides, and then the relay goes on with the same configuration.
func TestFailoverToAPromotedStandby(t *testing.T) {
	t.Parallel()
	primary, standby := pair(t)
	b := setup(t, primary.URL("shop"))
	b.cfg.URL = several(t, b.url, primary.Addr(), standby.Addr())
	r := b.settledRun("a")
	at := b.text(`SELECT pg_current_wal_lsn()::text`)
	b.url = standby.URL("shop")
	b.reconnect()
	until(t, "the standby to have all of it", func() bool {
		return b.text(`SELECT (pg_last_wal_replay_lsn() >= $1::pg_lsn)::text`, at) == "true"
	})
	if err := primary.Kill(); err != nil {
		t.Fatal(err)
	}
	r.waitPhase(Waiting)
	b.exec(`SELECT pg_promote()`)
	stop := wantStop(t, r.wait(), outbox.ExitOperator, "slot_moved")
	if !strings.Contains(stop.What, "timeline 1") || !strings.Contains(stop.What, "timeline 2") {
		t.Errorf("the timelines are not named: %s", stop.What)
	}
	wantStop(t, b.run().wait(), outbox.ExitOperator, "slot_lost") // a start looks for the slot first
	b.insert("lost")
	b.runMend(stop)
	b.goesOn("b")
}

// A primary that was cut off and the one that was promoted in its place can both be written to. What the relay writes goes
// where it reads.
func TestPoolStaysOnTheServerOfTheStream(t *testing.T) {
	t.Parallel()
	primary, standby := pair(t)
	b := setup(t, primary.URL("shop"))
	p := b.through()
	b.cfg.URL = several(t, b.url, p.Addr(), standby.Addr())
	r := b.settledRun("a")
	p.Cut()
	b.url = standby.URL("shop")
	b.reconnect()
	b.exec(`SELECT pg_promote()`)
	until(t, "the standby to be promoted", func() bool { return b.text(`SELECT pg_is_in_recovery()::text`) == "false" })
	stop := wantStop(t, r.wait(), outbox.ExitOperator, "slot_moved")
	if !strings.Contains(stop.What, "timeline 2") {
		t.Errorf("the timeline is not named: %s", stop.What)
	}

	// A connection of the pool alone, while the stream is where it was.
	b.cfg.home = new(home)
	for addr, reason := range map[string]string{primary.URL("shop"): "", standby.URL("shop"): "slot_moved"} {
		b.cfg.home.meet(identity{SystemID: b.text(`SELECT system_identifier::text FROM pg_control_system()`), Timeline: 1})
		b.cfg.URL = addr
		pool, err := connectPool(&b.cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		err = pool.Ping(bounded(t, time.Minute))
		if reason == "" && err != nil {
			t.Errorf("the server of the stream is refused: %v", err)
		}
		if reason != "" {
			wantStop(t, err, outbox.ExitOperator, reason)
		}
	}
	b.cfg.URL = primary.URL("shop")
	b.cfg.home.meet(identity{SystemID: "42", Timeline: 1})
	pool, err := connectPool(&b.cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	wantStop(t, pool.Ping(bounded(t, time.Minute)), outbox.ExitOperator, "slot_moved")
}

// poolOf is a pool whose connections are compared with home.
func (b *bench) poolOf(at *home) *pgxpool.Pool {
	b.t.Helper()
	b.cfg.home = at
	pool, err := connectPool(&b.cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(pool.Close)
	return pool
}

// A primary that is taken for want of the standby that source.url prefers is compared as well.
func TestPoolStaysOnTheServerOfTheStreamAlsoIfItPrefersAStandby(t *testing.T) {
	b := shared(t)
	b.cfg.URL += "&target_session_attrs=prefer-standby"
	stream, err := connectStream(bounded(t, time.Minute), &b.cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer closeStream(stream)
	server := serverOf(stream)
	if id, err := identify(bounded(t, time.Minute), stream); err != nil || server.SystemID != id.SystemID || server.Timeline != id.Timeline {
		t.Errorf("the stream is on %+v, and is taken to be on %+v (%v)", id, server, err)
	}
	var at home
	pool := b.poolOf(&at)
	for _, c := range []struct {
		at     identity
		reason string
	}{
		{server, ""},
		{identity{}, ""}, // a server that does not say which it is
		{identity{SystemID: "42", Timeline: server.Timeline}, "slot_moved"},
		{identity{SystemID: server.SystemID, Timeline: server.Timeline + 1}, "slot_moved"},
	} {
		at.meet(c.at)
		pool.Reset()
		err := pool.Ping(bounded(t, time.Minute))
		if c.reason == "" && err != nil {
			t.Errorf("met %+v: %v", c.at, err)
		}
		if c.reason != "" {
			wantStop(t, err, outbox.ExitOperator, c.reason)
		}
	}
}

// Connections that the pool made before the stream had met its server are not used any more.
func TestPoolIsMadeAnewWhereTheStreamGoes(t *testing.T) {
	b := shared(t)
	at := new(home)
	pool := b.poolOf(at)
	at.moved = pool.Reset
	backend := func() (pid int32) {
		t.Helper()
		if err := pool.QueryRow(bounded(t, time.Minute), `SELECT pg_backend_pid()`).Scan(&pid); err != nil {
			t.Fatal(err)
		}
		return pid
	}
	before := backend()
	stream, _, err := meetServer(bounded(t, time.Minute), pool, &b.cfg)
	if err != nil {
		t.Fatal(err)
	}
	closeStream(stream)
	if backend() == before {
		t.Error("a connection from before is used")
	}

	moved := 0
	at = &home{moved: func() { moved++ }}
	for _, c := range []struct {
		id   identity
		want int
	}{{identity{SystemID: "1"}, 1}, {identity{SystemID: "1"}, 1}, {identity{SystemID: "1", Timeline: 2}, 2}, {identity{SystemID: "2", Timeline: 2}, 3}} {
		if at.meet(c.id); moved != c.want {
			t.Errorf("with %+v it has moved %d times, want %d", c.id, moved, c.want)
		}
	}
}
