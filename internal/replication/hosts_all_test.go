//go:build testall

package replication

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/check"
	"github.com/cdc-relay/cdc-relay/internal/replication/replicationtest"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/replication/survey"
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
func pair(t *testing.T) (primary, standby *pgserver.Postgres) {
	t.Helper()
	primary = ownServer(t, nil)
	standby, err := pgserver.StartStandby(await.Context(t), primary)
	if err != nil {
		t.Fatal(err)
	}
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
		several(t, b.url, primary.Addr(), nobody),
		several(t, b.url, standby.Addr(), primary.Addr()),
		several(t, b.url, nobody, standby.Addr(), primary.Addr()),
		several(t, b.url, standby.Addr(), primary.Addr()) + "&target_session_attrs=read-write",
		several(t, b.url, standby.Addr(), primary.Addr()) + "&target_session_attrs=any",
		keyValue(t, standby.Addr(), primary.Addr()),
	} {
		b.cfg.URL = from
		r := b.run()
		r.waitPhase(survey.Streaming)
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
	r.waitPhase(survey.Waiting)
	if why := r.s.Snapshot().Why; !strings.Contains(why, "standby") || !strings.Contains(why, "name the primary") || strings.Contains(why, "\n") {
		t.Errorf("the reason is %q", why)
	}
	r.endClean()
	if f := b.finding("postgres"); f.Level != check.LevelFail || !strings.Contains(f.Detail, "standby") || !strings.Contains(f.Fix, "name the primary") {
		t.Errorf("check says %+v", f)
	}
	b.cfg.URL = several(t, b.url, nobody, "127.0.0.1:2") // and when there is none at all
	r = b.run()
	r.waitPhase(survey.Waiting)
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

// The primary dies and its standby is promoted. The slot did not come along, so rows may be missing
// there: an operator decides, and then the relay goes on with the same configuration.
func TestFailoverToAPromotedStandby(t *testing.T) {
	t.Parallel()
	primary, standby := pair(t)
	b := newBench(t, primary.URL("shop"))
	b.cfg.URL = several(t, b.url, primary.Addr(), standby.Addr())
	r := b.settledRun("a")
	at := b.text(`SELECT pg_current_wal_lsn()::text`)
	b.url = standby.URL("shop")
	b.reconnect()
	await.Until(t, "the standby to have all of it", func() bool {
		return b.text(`SELECT (pg_last_wal_replay_lsn() >= $1::pg_lsn)::text`, at) == "true"
	})
	if err := primary.Kill(); err != nil {
		t.Fatal(err)
	}
	r.waitPhase(survey.Waiting)
	b.exec(`SELECT pg_promote()`)
	stop := replicationtest.WantStop(t, r.wait(), event.ExitOperator, "slot_moved")
	if !strings.Contains(stop.What, "timeline 1") || !strings.Contains(stop.What, "timeline 2") {
		t.Errorf("the timelines are not named: %s", stop.What)
	}
	// a start checks for the slot first
	replicationtest.WantStop(t, b.run().wait(), event.ExitOperator, "slot_lost")
	b.insert("lost")
	b.runFix(stop)
	b.goesOn("b")
}

// A primary that was cut off and the one that was promoted in its place can both be written to.
// What the relay writes goes where it reads.
func TestPoolStaysOnTheServerOfTheStream(t *testing.T) {
	t.Parallel()
	primary, standby := pair(t)
	b := newBench(t, primary.URL("shop"))
	p := b.through()
	b.cfg.URL = several(t, b.url, p.Addr(), standby.Addr())
	started := b.text(`SELECT (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint::text`)
	r := b.settledRun("a")
	p.Cut()
	b.url = standby.URL("shop")
	b.reconnect()
	b.exec(`SELECT pg_promote()`)
	await.Until(t, "the standby to be promoted", func() bool { return b.text(`SELECT pg_is_in_recovery()::text`) == "false" })
	stop := replicationtest.WantStop(t, r.wait(), event.ExitOperator, "slot_moved")
	if !strings.Contains(stop.What, "timeline 2") {
		t.Errorf("the timeline is not named: %s", stop.What)
	}

	// A connection of the pool alone, while the stream is where it was.
	b.cfg.Primary = new(source.Primary)
	for addr, reason := range map[string]string{primary.URL("shop"): "", standby.URL("shop"): "slot_moved"} {
		b.cfg.Primary.Set(source.Server{
			SystemID: b.text(`SELECT system_identifier::text FROM pg_control_system()`), Timeline: 1,
			Started: started,
		})
		b.cfg.URL = addr
		pool, err := source.ConnectPool(&b.cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		err = pool.Ping(await.Context(t))
		if reason == "" && err != nil {
			t.Errorf("the server of the stream is refused: %v", err)
		}
		if reason != "" {
			replicationtest.WantStop(t, err, event.ExitOperator, reason)
		}
	}
	b.cfg.URL = primary.URL("shop")
	b.cfg.Primary.Set(source.Server{SystemID: "42", Timeline: 1})
	pool, err := source.ConnectPool(&b.cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	replicationtest.WantStop(t, pool.Ping(await.Context(t)), event.ExitOperator, "slot_moved")
}
