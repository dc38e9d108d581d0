//go:build nightly

package servers

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/rabbitserver"
)

// TestKilledProcessLeavesNothingBehind starts this test binary again as the process below, kills it
// once it has servers, and waits until their processes and files are gone.
func TestKilledProcessLeavesNothingBehind(t *testing.T) {
	if os.Getenv("CDC_RELAY_TEST_VICTIM") == "1" {
		beVictim()
		return
	}
	ctx := await.Context(t)
	victim := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestKilledProcessLeavesNothingBehind$")
	victim.Env = append(os.Environ(), "CDC_RELAY_TEST_VICTIM=1")
	victim.Stderr = os.Stderr
	out, err := victim.StdoutPipe()
	await.Must(t, err)
	await.Must(t, victim.Start())
	var dir, variable string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "ready "); ok {
			dir, variable, _ = strings.Cut(rest, " ")
			break
		}
	}
	if dir == "" {
		t.Fatal("the process did not get ready")
	}
	before := processesOf(t, variable)
	await.Must(t, victim.Process.Signal(syscall.SIGKILL))
	_ = victim.Wait()
	// PostgreSQL's postmaster, epmd, the Erlang VM and its helper, Kafka, and a process that is
	// stopped.
	if len(before) < 6 {
		t.Fatalf("only %d processes carry the token", len(before))
	}
	err = processes.Poll(ctx, 50*time.Millisecond, func() (bool, error) {
		_, err := os.Stat(dir)
		return os.IsNotExist(err) && len(processesOf(t, variable)) == 0, nil
	})
	if err != nil {
		t.Fatalf("still there: %v and perhaps %s: %v", processesOf(t, variable), dir, err)
	}
}

func beVictim() {
	ctx := context.Background()
	fail := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	_, err := pgserver.Start(ctx, pgserver.Options{})
	fail(err)
	_, err = rabbitserver.Start(ctx, rabbitserver.Options{})
	fail(err)
	_, err = kafkaserver.Start(ctx, kafkaserver.Options{})
	fail(err)
	dir, err := processes.NewDir("stopped")
	fail(err)
	stopped, err := processes.Start("stopped process", exec.Command("sleep", "600"), filepath.Join(dir, "log"))
	fail(err)
	fail(stopped.Signal(syscall.SIGSTOP))
	o, err := processes.StartOwner()
	fail(err)
	fmt.Println("ready", o.Dir, o.Variable)
	<-time.After(time.Hour) // killed here
	os.Exit(1)
}

// processesOf lists the pids of the processes whose environment holds the variable.
func processesOf(t *testing.T, variable string) []string {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/environ")
	await.Must(t, err)
	var pids []string
	for _, path := range paths {
		env, err := os.ReadFile(path)
		if err == nil && strings.Contains("\x00"+string(env), "\x00"+variable+"\x00") {
			pids = append(pids, filepath.Base(filepath.Dir(path)))
		}
	}
	return pids
}
