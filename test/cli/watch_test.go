package cli

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

// watched is the command line of status --watch for the relay behind an address, and its
// configuration in a file.
func (r *rig) watched(admin string, more ...string) []string {
	r.t.Helper()
	file := filepath.Join(r.t.TempDir(), "cdc-relay.yaml")
	must(r.t, os.WriteFile(file, []byte(r.yaml()), 0o600))
	return append([]string{"status", "--watch", "-c", file, "--admin", admin}, more...)
}

func port(relay *runner.Relay) string { return strings.TrimPrefix(relay.Admin(), "http://") }

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
	// read at once: a full pipe would have it wait, and miss what comes and goes
	var printed []string
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

// Why a relay that is held up by --hold-on-fatal has stopped is said as its state; so is that
// nobody can say anything.
func TestWatchOfWhatDoesNotRun(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.ok("init")
	r.exec(`DROP PUBLICATION ` + r.slot)
	relay := runner.Start(t, r.binary, r.yaml(), "--hold-on-fatal")
	state(t, relay, "stopped", "does not exist")
	term := onTerminal(t, 24, 80, nil, r.binary, r.watched(relay.AdminSocket())...)
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
