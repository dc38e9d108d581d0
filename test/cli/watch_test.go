package cli

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv"
)

// watched is the command line of status --watch for the relay behind an address, and its configuration in a file.
func (r *rig) watched(admin string, more ...string) []string {
	r.t.Helper()
	file := filepath.Join(r.t.TempDir(), "cdc-relay.yaml")
	must(r.t, os.WriteFile(file, []byte(r.yaml()), 0o600))
	return append([]string{"status", "--watch", "-c", file, "--admin", admin}, more...)
}

func port(relay *devenv.Relay) string { return strings.TrimPrefix(relay.Admin(), "http://") }

// status --watch on a terminal names each state that real faults bring about, goes on when the relay goes away, shows it again
// when it is back, and leaves the terminal as it was.
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
	for _, label := range []string{"lag        ", "WAL        ", "rate       ", "slot       " + b.slot, "broker     up"} {
		term.shows(label)
	}

	p.Cut()
	term.shows("state      broker down: ")
	must(t, p.Mend())
	term.shows("state      idle")

	b.insert(1) // its exchange does not exist
	term.shows(`state      destination paused: exchange "later": 404`)
	term.shows("paused     1 destination")
	later, err := devenv.StartConsumer(within(t, bound), devenv.ConsumerOptions{URL: direct, Exchange: "later", Queue: "later"})
	must(t, err)
	t.Cleanup(later.Close)
	must(t, later.WaitCount(within(t, bound), 1))
	term.shows("state      idle")
	term.shows("published  1 event")

	must(t, relay.Freeze())
	if line := term.shows("state      not answering: "); !strings.Contains(line, "no relay answers") {
		t.Errorf("it says %q", line)
	}
	term.shows("What the database knows of slot")
	must(t, relay.Thaw())
	term.shows("state      idle")

	standby := devenv.StartRelay(t, b.binary, b.yaml())
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

	term.resize(12, 44)
	eventually(t, func() string {
		seen := term.look()
		if seen.fault == "" && len(seen.lines) == 12 && strings.HasPrefix(seen.lines[11], "... ") {
			return ""
		}
		return fmt.Sprintf("it does not fit: %s\n%s", seen.fault, strings.Join(seen.lines, "\n"))
	})
	term.shows("state      idle")

	term.types("\x03")
	if code := term.exit(); code != 0 {
		t.Errorf("interrupted, it exits %d", code)
	}
	if left := term.look(); left.other || left.hidden || left.clips || !left.coloured || strings.Trim(left.first, "^C") != "" {
		t.Errorf("it leaves the terminal so: %+v", left)
	}
	other.types("\x03")
	if code := other.exit(); code != 0 || other.look().coloured {
		t.Errorf("exit %d; in colour although NO_COLOR is set: %t", code, other.look().coloured)
	}
}

// A terminal that changes its size is drawn on anew at once. Where there is no shell, nothing is left for one.
func TestWatchHearsTheTerminal(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	relay := r.start()
	term := onTerminal(t, 30, 100, nil, r.binary, r.watched(port(relay), "--every", "1h")...)
	term.shows("state      idle")
	term.resize(5, 30)
	eventually(t, func() string {
		if seen := term.look(); seen.fault != "" || len(seen.lines) != 5 {
			return fmt.Sprintf("%s, %q", seen.fault, seen.lines)
		}
		return ""
	})
	term.types("\x1a") // there is no shell to go to, so it goes on
	term.resize(7, 40)
	eventually(t, func() string {
		if seen := term.look(); seen.fault != "" || len(seen.lines) != 7 {
			return fmt.Sprintf("%s, %q", seen.fault, seen.lines)
		}
		return ""
	})
	must(t, term.cmd.Process.Signal(syscall.SIGTERM))
	if code := term.exit(); code != 0 {
		t.Errorf("terminated, it exits %d", code)
	}
}

// A watch that is left for the shell gives it the terminal as it was, stops, and comes back when it is called.
func TestWatchLeftForTheShell(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	relay := r.start()
	term := onTerminal(t, 30, 100, nil, "sh", append([]string{"-mc", `"$0" "$@"; echo in the shell; fg`, r.binary}, r.watched(port(relay))...)...)
	term.shows("state      idle")
	term.types("\x1a")
	eventually(t, func() string {
		if seen := term.look(); !strings.Contains(seen.first, "in the shell") || seen.entered < 2 || seen.fault != "" {
			return fmt.Sprintf("the terminal was not left and entered again: %+v", seen)
		}
		return ""
	})
	term.shows("state      idle")
	term.types("\x03")
	if code := term.exit(); code != 0 {
		t.Errorf("interrupted, it exits %d", code)
	}
	if left := term.look(); left.other || left.hidden || left.clips {
		t.Errorf("it leaves the terminal so: %+v", left)
	}
}

// piped starts a command whose lines are read, and gives a function that waits for one that is so.
func piped(t *testing.T, binary string, args ...string) (*exec.Cmd, func(is func(line string) bool) string) {
	t.Helper()
	cmd := exec.Command(binary, args...)
	out, in, err := os.Pipe()
	must(t, err)
	cmd.Stdout, cmd.Stderr = in, os.Stderr
	must(t, cmd.Start())
	must(t, in.Close())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // of one that has ended: nothing
		_ = cmd.Wait()
		_ = out.Close()
	})
	var mu sync.Mutex
	var printed []string // read at once: a full pipe would have it wait, and miss what comes and goes
	go func() {
		for lines := bufio.NewReader(out); ; {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			mu.Lock()
			printed = append(printed, line)
			mu.Unlock()
		}
	}()
	return cmd, func(is func(line string) bool) (found string) {
		t.Helper()
		eventually(t, func() string {
			mu.Lock()
			defer mu.Unlock()
			for i, line := range printed {
				if strings.ContainsAny(line, "\x1b\r") {
					t.Fatalf("a line for a terminal: %q", line)
				}
				if is(line) {
					found, printed = line, printed[i+1:]
					return ""
				}
			}
			return fmt.Sprintf("it prints no such line, but %q", printed[max(0, len(printed)-3):])
		})
		return found
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
	line(says("Z idle | leader | lag ", "published 0, ", "parked 0"))
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
	must(t, door.Mend())
	line(says("idle | leader"))
	object(is("idle", ""))
	for _, cmd := range []*exec.Cmd{text, objects} {
		must(t, cmd.Process.Signal(os.Interrupt))
		if err := cmd.Wait(); err != nil {
			t.Errorf("interrupted, it ends with %v", err)
		}
	}
}

// Why a relay that is held up by --hold-on-fatal has stopped is said as its state; so is that nobody can say anything.
func TestWatchOfWhatDoesNotRun(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.ok("init")
	r.exec(`DROP PUBLICATION ` + r.slot)
	relay := devenv.StartRelay(t, r.binary, r.yaml(), "--hold-on-fatal")
	state(t, relay, "stopped", "does not exist")
	term := onTerminal(t, 24, 80, nil, r.binary, r.watched(port(relay))...)
	if line := term.shows("state      stopped: "); !strings.Contains(line, "publication") {
		t.Errorf("it says %q", line)
	}
	term.types("\x03")
	term.exit()
	if code := relay.Stop(t); code != 3 {
		t.Errorf("exit %d", code)
	}
	r.db = through(r.db, "127.0.0.1:1")
	_, line := piped(t, r.binary, r.watched("127.0.0.1:2", "--every", "100ms")...)
	line(func(line string) bool {
		return hasAll(line, []string{"unknown: the relay does not answer: ", "nor does the database: "})
	})
	r.refused(2, "status --every 2s", "--every", "no effect without --watch")
	r.refused(2, "status --watch --every 1ms", "--every", "at least 100ms")
}
