//go:build testall

package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/consumers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

// status --watch on a terminal names each state that real faults bring about, goes on when the
// relay goes away, and shows it again when it is back.
func TestWatch(t *testing.T) {
	t.Parallel()
	b := withBroker(t)
	b.sink = "  rabbitmq: {url: '" + b.vhost + "', exchange: later}"
	direct := b.vhost
	p := proxy(t, b.broker.Addr())
	b.sink = strings.Replace(b.sink, direct, through(direct, p.Addr()), 1)
	relay := b.start()
	door := proxy(t, port(relay))
	term := onTerminal(t, 30, 120, nil, b.binary, b.watched(door.Addr(), "--every", "100ms")...)
	term.shows("state      idle")
	term.shows("relay      leader")
	term.shows("slot       " + b.slot)
	term.shows("broker     up")

	p.Cut()
	term.shows("state      broker down: ")
	must(t, p.Restore())
	term.shows("state      idle")

	b.insert(1) // its exchange does not exist
	term.shows(`state      destination paused: exchange "later": 404`)
	term.shows("paused     1 destination")
	term.shows("             1 event, oldest from ")
	later, err := consumers.StartConsumer(await.Context(t), consumers.ConsumerOptions{URL: direct, Exchange: "later", Queue: "later"})
	must(t, err)
	t.Cleanup(later.Close)
	b.ok("deferred", "retry", "--all")
	must(t, later.WaitCount(await.Context(t), 1))
	term.shows("state      idle")
	term.shows("published  1 event")

	must(t, relay.Freeze())
	if line := term.shows("state      not answering: "); !strings.Contains(line, "no relay answers") {
		t.Errorf("it says %q", line)
	}
	term.shows("What the database knows of slot")
	must(t, relay.Thaw())
	term.shows("state      idle")

	standby := runner.Start(t, b.binary, b.yaml())
	state(t, standby, "standby")
	other := onTerminal(t, 30, 120, []string{"NO_COLOR=1"}, b.binary, b.watched(port(standby))...)
	other.shows("state      standby")
	if code := relay.Stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
	other.shows("relay      leader")
	term.shows("state      not answering: ") // the other holds the slot
	if code := standby.Stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
	term.shows("state      stopped: no relay answers, and nobody holds the slot")
	again := b.start()
	door.SetTarget(port(again))
	term.shows("state      idle")

	term.resize(6, 44)
	eventually(t, func() string {
		seen := term.look()
		if seen.fault == "" && len(seen.lines) == 5 && strings.HasPrefix(seen.lines[4], "... ") {
			return ""
		}
		return fmt.Sprintf("it does not fit: %s\n%s", seen.fault, strings.Join(seen.lines, "\n"))
	})
	term.shows("state      idle")

	term.types("\x03")
	if code := term.exit(); code != 0 {
		t.Errorf("interrupted, it exits %d", code)
	}
	if !term.look().coloured {
		t.Error("nothing is in colour")
	}
	other.types("\x03")
	if code := other.exit(); code != 0 || other.look().coloured {
		t.Errorf("exit %d; in colour although NO_COLOR is set: %t", code, other.look().coloured)
	}
}

// Elsewhere it prints a line each time, with --json an object.
func TestWatchThroughAPipe(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	relay := r.start()
	door := proxy(t, port(relay))
	text, line := piped(t, r.binary, r.watched(door.Addr(), "--every", "100ms")...)
	objects, object := piped(t, r.binary, r.watched(door.Addr(), "--every", "100ms", "--json")...)
	says := func(words ...string) func(string) bool {
		return func(line string) bool { return hasAll(line, words) }
	}
	is := func(state, why string) func(string) bool {
		return func(line string) bool {
			var s struct{ State, Why, Now string }
			must(t, json.Unmarshal([]byte(line), &s))
			if s.Now == "" {
				t.Errorf("no time in %s", line)
			}
			return s.State == state && strings.Contains(s.Why, why)
		}
	}
	line(says("Z idle | leader | lag ", "published 0, ", "deferred 0"))
	object(is("idle", ""))
	r.insert(3)
	line(says("published 3, "))
	object(is("streaming", ""))
	door.Cut()
	line(says("not answering: no relay answers", "holds the slot | slot "))
	object(is("not answering", "cdc-relay/"+r.slot))
	if code := relay.Stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
	line(says("stopped: no relay answers, and nobody holds the slot | slot "))
	object(is("stopped", "nobody holds the slot"))
	again := r.start()
	door.SetTarget(port(again))
	must(t, door.Restore())
	line(says("idle | leader"))
	object(is("idle", ""))
	for _, cmd := range []*exec.Cmd{text, objects} {
		must(t, cmd.Process.Signal(os.Interrupt))
		if err := cmd.Wait(); err != nil {
			t.Errorf("interrupted, it ends with %v", err)
		}
	}
}
