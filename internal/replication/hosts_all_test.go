//go:build testall

package replication

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/check"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// several is source.url with more than one host.
func several(t *testing.T, of string, addrs ...string) string {
	t.Helper()
	u, err := url.Parse(of)
	await.Must(t, err)
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
func pair(t *testing.T) (primary, standby *pgserver.Postgres) {
	t.Helper()
	primary = ownServer(t, nil)
	standby, err := pgserver.StartStandby(await.Context(t), primary)
	await.Must(t, err)
	t.Cleanup(func() { standby.Close() })
	return primary, standby
}

// The one that can be written to is taken, wherever it stands and however the hosts are written:
// behind a host that is not there, and behind a standby, which answers. Alone, the standby is
// waited for, and the reason says so.
func TestSeveralHosts(t *testing.T) {
	t.Parallel()
	primary, standby := pair(t)
	b := newBench(t, primary.URL("shop"))
	const nobody = "127.0.0.1:1"
	for i, from := range []string{
		several(t, b.url, nobody, primary.Addr()),
		several(t, b.url, nobody, standby.Addr(), primary.Addr()),
		several(t, b.url, standby.Addr(), primary.Addr()) + "&target_session_attrs=read-write",
		keyValue(t, standby.Addr(), primary.Addr()),
	} {
		b.cfg.URL = from
		r := b.streaming()
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
	r.waitPhase(slot.Waiting)
	if why := r.s.Snapshot().Why; !strings.Contains(why, "standby") || !strings.Contains(why, "name the primary") || strings.Contains(why, "\n") {
		t.Errorf("the reason is %q", why)
	}
	r.endClean()
	if f := b.finding("postgres"); f.Level != check.LevelFail || !strings.Contains(f.Detail, "standby") || !strings.Contains(f.Fix, "name the primary") {
		t.Errorf("check says %+v", f)
	}

	b.failoverToAPromotedStandby(primary, standby)
}

// The role is read-only by its own settings: that is no standby.
func TestSeveralHostsAsARoleThatIsReadOnly(t *testing.T) {
	role, as := newRole(t, "SUPERUSER")
	b := shared(t)
	b.exec("ALTER ROLE " + role + " SET default_transaction_read_only = on")
	b.cfg.URL = as(b.url)
	u, err := url.Parse(b.cfg.URL)
	await.Must(t, err)
	b.cfg.URL = several(t, b.cfg.URL, "127.0.0.1:1", u.Host) + "&target_session_attrs=read-write"
	b.goesOn("a")
}

// The primary dies and its standby is promoted. The slot did not come along, so rows may be missing
// there: an operator decides, and then the relay goes on with the same configuration.
func (b *bench) failoverToAPromotedStandby(primary, standby *pgserver.Postgres) {
	b.t.Helper()
	b.cfg.URL = several(b.t, b.url, primary.Addr(), standby.Addr())
	r := b.settledRun("a")
	at := b.text(`SELECT pg_current_wal_lsn()::text`)
	b.url = standby.URL("shop")
	b.reconnect()
	await.Until(b.t, "the standby to have all of it", func() bool {
		return b.text(`SELECT (pg_last_wal_replay_lsn() >= $1::pg_lsn)::text`, at) == "true"
	})
	await.Must(b.t, primary.Kill())
	r.waitPhase(slot.Waiting)
	b.exec(`SELECT pg_promote()`)
	stop := b.wantStop(r.wait(), event.ExitOperator, "slot_lost", "timeline 1", "timeline 2")
	b.wantStop(b.run().wait(), event.ExitOperator, "slot_lost")
	b.insert("lost")
	b.runFix(stop)
	b.goesOn("b")
}

// A proxy tells its clients other process ids than those of their backends, as Neon's does. The
// relay leads, reports, stops cleanly and leads again.
func TestProxyThatHidesProcessIDs(t *testing.T) {
	b := shared(t)
	b.through().HideProcessIDs()
	conn, err := source.ConnectStream(await.Context(t), &b.cfg)
	await.Must(t, err)
	defer source.CloseStream(conn)
	if pid, err := source.QueryText(await.Context(t), conn, "SELECT pg_backend_pid()"); err != nil || pid == fmt.Sprint(conn.PID()) {
		t.Fatalf("the proxy hides nothing: %s, %v", pid, err)
	}
	b.goesOn("a")
	b.goesOn("b")
}

func TestServerThatRefusesConnections(t *testing.T) {
	b := shared(t)
	p := b.through()
	var asked atomic.Int32 // the password is asked for at every connect
	b.cfg.Password = func(context.Context) (string, error) { asked.Add(1); return "", nil }
	p.Cut()
	stopped := b.run()
	stopped.waitPhase(slot.Waiting)
	stopped.endClean() // it has read nothing
	asked.Store(0)
	r := b.run()
	await.Until(t, "some attempts", func() bool { return asked.Load() > 5 })
	if p := r.s.Snapshot().Phase; p != slot.Waiting {
		t.Errorf("phase %s", p)
	}
	if n := b.waits(); n != 2 {
		t.Errorf("%d lines for one reason in two runs", n)
	}
	await.Must(t, p.Restore())
	r.waitPhase(slot.Streaming)
	r.endClean()
}
