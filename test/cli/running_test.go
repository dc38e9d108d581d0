package cli

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

// A relay that holds on a fatal fault ends all the same when a restart may help, exit 1. Here
// another one has become the leader.
func TestHoldOnFatalEndsWhenFenced(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	relay := runner.Start(t, r.binary, r.yaml(), "--hold-on-fatal")
	must(t, relay.WaitReady(await.Context(t)))
	// one transaction: the relay may look at any time
	r.exec(`UPDATE cdc_relay.slots SET epoch = epoch + 1; INSERT INTO outbox VALUES (gen_random_uuid(), 'a', 'k', 't')`)
	r.ends(relay, 1, "fenced", r.slot)
}

// A port of the admin server that is taken is exit 1, before anything else is begun.
func TestAdminPortTaken(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	r := bare(t)
	config := strings.Replace(r.yaml(), "127.0.0.1:0", listener.Addr().String(), 1)
	res, err := runner.RunCommand(await.Context(t), r.binary, config, "run")
	must(t, err)
	refusal(t, res, 1, "admin.listen "+listener.Addr().String(), "address already in use", "set admin.listen")
}

// A stop that cannot deliver what was read within its grace says so by exit 5; nothing is lost by
// it.
func TestStopThatIsCut(t *testing.T) {
	t.Parallel()
	b := withBroker(t)
	b.more = "delivery: {shutdown_grace: 500ms}"
	p := proxy(t, b.broker.Addr())
	b.sink = "  rabbitmq: {url: '" + through(b.vhost, p.Addr()) + "'}"
	relay := b.start()
	b.insert(1) // its channels are open
	says(t, relay, "/api/v1/status", 200, `"totals":{"published":1,`)
	p.Stall()
	b.insert(3)
	says(t, relay, "/api/v1/status", 200, `"in_flight":{"events":3,`)
	// Stop asks it for a check before, which waits for the broker
	must(t, relay.Signal(syscall.SIGTERM))
	b.ends(relay, 5, "3 events not settled", "delivery.shutdown_grace")
	must(t, p.Restore())
	b.more = "" // this stop is not to be cut
	relay = b.start()
	// perhaps what the first relay has sent: it lay in the proxy
	must(t, b.consumer.WaitCount(await.Context(t), 4))
	says(t, relay, "/api/v1/status", 200, `"totals":{"published":3,`)
	ended(t, relay)
}

// A pipe that nobody reads does not keep the relay: a second signal ends the wait for it, whatever
// the grace.
func TestStopWithAFullPipe(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.more = "delivery: {shutdown_grace: 1h}"
	pipe, relay := r.startPiped()
	t.Cleanup(func() { must(t, pipe.Close()) })
	r.insert(2000) // a pipe holds 64 KiB
	eventually(t, func() string {
		var s status
		_, body, err := relay.Get(await.Context(t), "/api/v1/status")
		must(t, err)
		must(t, json.Unmarshal([]byte(body), &s))
		if s.InFlight.Events == 0 || s.InFlight.Events+int(s.Totals.Published) != 2000 {
			return "not everything is read: " + body
		}
		return ""
	})
	must(t, relay.Signal(syscall.SIGTERM))
	must(t, relay.WaitLog(await.Context(t), `"msg":"stopping: received signal"`))
	must(t, relay.Signal(syscall.SIGHUP)) // which ends no relay
	must(t, relay.Signal(syscall.SIGTERM))
	r.ends(relay, 5, "events not settled")
}

// startPiped is start with the relay's stdout a pipe, of which the test has the one end that can be
// read.
func (r *rig) startPiped() (*os.File, *runner.Relay) {
	r.t.Helper()
	fifo := filepath.Join(r.t.TempDir(), "pipe")
	must(r.t, syscall.Mkfifo(fifo, 0o600))
	// for writing too, so that the relay's open does not wait for this one
	pipe, err := os.OpenFile(fifo, os.O_RDWR, 0)
	must(r.t, err)
	wrapper := filepath.Join(r.t.TempDir(), "relay.sh")
	must(r.t, os.WriteFile(wrapper, fmt.Appendf(nil, "#!/bin/sh\nexec %s \"$@\" >%s\n", r.binary, fifo), 0o700))
	relay := runner.Start(r.t, wrapper, r.yaml())
	must(r.t, relay.WaitReady(await.Context(r.t)))
	return pipe, relay
}

// A reader that goes away, as in `cdc-relay run | head -1`, is exit 1 with a line that says so, at
// once whatever the grace; what was not written is sent at the next start.
func TestClosedStdout(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.more = "delivery: {shutdown_grace: 1h}"
	pipe, relay := r.startPiped()
	r.insert(1)
	first, err := bufio.NewReader(pipe).ReadString('\n')
	must(t, err)
	if !strings.Contains(first, `"key":"1"`) {
		t.Errorf("the pipe has %q", first)
	}
	must(t, pipe.Close())
	r.exec(`INSERT INTO outbox VALUES (gen_random_uuid(), 'order', 'second', 'created', '{}')`)
	r.ends(relay, 1, "stdout was closed", "next start")
	relay = r.start()
	eventually(t, func() string {
		if !strings.Contains(relay.Stdout(), `"key":"second"`) {
			return "the second event has not come: " + relay.Stdout()
		}
		return ""
	})
	ended(t, relay)
}

// With --hold-on-fatal what would be exit 4 is said by the admin port, until the relay is stopped.
func TestHoldOnFatal(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.ok("init")
	r.exec(`ALTER TABLE outbox DROP COLUMN type`)
	relay := runner.Start(t, r.binary, r.yaml(), "--hold-on-fatal")
	state(t, relay, "stopped", "no column")
	says(t, relay, "/readyz", 503, "stopped: ", "no column")
	says(t, relay, "/healthz", 200)
	says(t, relay, "/metrics", 200, `cdc_relay_stopped{reason="mapping"} 1`, "\ncdc_relay_leader 0\n")
	must(t, relay.Signal(syscall.SIGHUP)) // as if a terminal was closed
	if out := r.ok("status", "--admin", relay.AdminSocket()); !strings.HasPrefix(out, "state      stopped: ") || !strings.Contains(out, "no column") {
		t.Errorf("status says %s", out)
	}
	must(t, relay.Signal(syscall.SIGTERM))
	if code, err := relay.Exit(await.Context(t)); code != 4 || err != nil {
		t.Errorf("exit %d, want 4: %v", code, err)
	}
}

// So it is with an exit 3, and when it comes while the relay relays. The slot is free meanwhile,
// for whoever fixes it. Once an operator has accepted what was found, one of the relays that are up
// leads again, and the other one stands by.
func TestHoldOnFatalWhileItRuns(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	relay := runner.Start(t, r.binary, r.yaml(), "--hold-on-fatal")
	must(t, relay.WaitReady(await.Context(t)))
	second := runner.Start(t, r.binary, r.yaml(), "--hold-on-fatal")
	state(t, second, "standby")
	r.insert(1)
	eventually(t, func() string { return wantLines(relay, 1) })
	// it was checked once
	says(t, relay, "/metrics", 200, "cdc_relay_slot_active{")
	r.exec(`DROP PUBLICATION ` + r.slot)
	state(t, relay, "stopped", "does not exist")
	state(t, second, "stopped", "does not exist")
	r.released()
	says(t, relay, "/readyz", 503, "stopped: ", "does not exist")
	says(t, relay, "/readyz?role=leader", 503, "stopped: ")
	says(t, relay, "/healthz", 200)
	says(t, relay, "/metrics", 200, `cdc_relay_stopped{reason="publication"} 1`, "\ncdc_relay_leader 0\n")
	r.tellsOfSlot(relay)
	var s status
	must(t, json.Unmarshal([]byte(r.ok("status", "--json", "--admin", relay.AdminSocket())), &s))
	if s.Finding == "" {
		t.Fatal("the status does not name what was found")
	}
	for _, process := range []*runner.Relay{relay, second} {
		says(t, process, "/readyz", 503, `"finding":"`+s.Finding+`"`, "cdc-relay accept "+s.Finding)
	}
	third := runner.Start(t, r.binary, r.yaml(), "--hold-on-fatal")
	state(t, third, "stopped", "does not exist")
	must(t, third.Signal(syscall.SIGINT))
	if code, err := third.Exit(await.Context(t)); code != 3 || err != nil {
		t.Errorf("exit %d, want 3: %v", code, err)
	}
	r.ok("accept", s.Finding, "--new-slot")
	leader, standby := relay, second
	eventually(t, func() string {
		if answers(t, second, "/readyz?role=leader", 200) == "" {
			leader, standby = second, relay
		}
		return answers(t, leader, "/readyz?role=leader", 200)
	})
	state(t, standby, "standby")
	r.exec(`INSERT INTO outbox VALUES (gen_random_uuid(), 'order', 'after', 'created', '{}')`)
	eventually(t, func() string {
		if !strings.Contains(leader.Stdout(), `"key":"after"`) {
			return "the leader has not sent it: " + leader.Log()
		}
		if n := scrape(t, leader).values[`cdc_relay_stopped{reason="publication"}`]; n != 0 {
			return "it says that it has stopped"
		}
		return answers(t, leader, "/metrics", 200, "\ncdc_relay_leader 1\n")
	})
	for _, process := range []*runner.Relay{standby, leader} {
		ended(t, process)
	}
}

// tellsOfSlot wants a relay that has stopped to tell how its slot stands, which keeps the WAL that
// is written meanwhile, and to answer questions about the retry table; and nothing that the next
// leader tells, too.
func (r *rig) tellsOfSlot(relay *runner.Relay) {
	r.t.Helper()
	kept := ask[float64](r, `SELECT (pg_logical_emit_message(false, 'filler', repeat('x', 5000000)) - restart_lsn)::float8 FROM pg_replication_slots WHERE slot_name = $1`, r.slot)
	eventually(r.t, func() string {
		return has(r.t, relay, "cdc_relay_slot_active", r.slot, 0, 0) + has(r.t, relay, "cdc_relay_slot_retained_bytes", r.slot, kept, 1e12)
	})
	out := r.ok("status", "--admin", relay.AdminSocket())
	if !hasAll(out, []string{"read by nobody"}) || strings.Contains(out, "not known") {
		r.t.Errorf("the status is %s", out)
	}
	for _, name := range []string{"cdc_relay_backlog_events", "cdc_relay_in_flight_events", "cdc_relay_deferred_events", "cdc_relay_destinations_paused", "cdc_relay_dead_letters_open"} {
		if n, ok := scrape(r.t, relay).values[name]; ok {
			r.t.Errorf("it tells %s %g, as the next leader does", name, n)
		}
	}
	says(r.t, relay, "/api/v1/dead-letters", 200, `"items"`)
}
