package cli

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

const readAgain = `"msg":"configuration read again"`

// hangUp sends SIGHUP and waits until the relay has read its configuration again.
func hangUp(t *testing.T, relay *runner.Relay) {
	t.Helper()
	before := strings.Count(relay.Log(), readAgain)
	must(t, relay.Signal(syscall.SIGHUP))
	eventually(t, func() string {
		switch {
		case !relay.Running():
			t.Fatalf("SIGHUP has ended the relay: %s", relay.Log())
		case strings.Count(relay.Log(), readAgain) == before:
			return "the configuration was not read again"
		}
		return ""
	})
}

// SIGHUP never ends a relay, not even one that has reached no server yet. What can change in a
// running relay changes; the rest is named; a faulty configuration changes nothing.
func TestSIGHUP(t *testing.T) {
	t.Parallel()
	port, err := processes.UnusedPort()
	must(t, err)
	config := func(password, more string) []byte {
		return fmt.Appendf(nil, "source: {url: 'postgres://relay@127.0.0.1:%d/shop', password: %s}\nsink: {stdout: {}}\n%s", port, password, more)
	}
	relay := runner.Start(t, runner.Build(t), string(config("old", "")))
	must(t, relay.WaitLog(await.Context(t), `"msg":"starting"`))
	hangUp(t, relay)

	must(t, os.WriteFile(relay.ConfigPath(), config("new", "log: {level: debug}\ndelivery: {max_in_flight: 3, confirm_timeout: 1s}\n"), 0o600))
	hangUp(t, relay)
	must(t, relay.WaitLog(await.Context(t), `"log_level":"debug","renewed":["source.password","log.level"]`))
	must(t, relay.WaitLog(await.Context(t), `"msg":"these keys need a restart","keys":["delivery.max_in_flight","delivery.confirm_timeout"]`))

	must(t, os.WriteFile(relay.ConfigPath(), config("new", "log: {level: loud}\ndelivery: {lane: 3}\n"), 0o600))
	must(t, relay.Signal(syscall.SIGHUP))
	must(t, relay.WaitLog(await.Context(t), `"msg":"read configuration again failed: nothing has changed","error":"the configuration cannot be used: 2 faults`))

	must(t, os.WriteFile(relay.ConfigPath(), config("new", ""), 0o600))
	hangUp(t, relay)
	must(t, relay.Signal(syscall.SIGTERM))
	if code, err := relay.Exit(await.Context(t)); code != 0 || err != nil {
		t.Errorf("exit %d, %v: %s", code, err, relay.Log())
	}
}
