//go:build testall

package processes

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
)

const portsOf = 400

// A port is given away once, also when nobody listens on it any more, and also to another process.
// As many as these would meet by chance.
func TestPortsAreGivenAwayOnce(t *testing.T) {
	if os.Getenv("CDC_RELAY_TEST_PORTS") != "" {
		for range portsOf {
			port, err := UnusedPort()
			await.Must(t, err)
			t.Logf("port %d", port)
		}
		return
	}
	seen := map[int]bool{}
	give := func(port int) {
		if seen[port] {
			t.Errorf("port %d was given away twice", port)
		}
		seen[port] = true
	}
	for range portsOf {
		port, err := UnusedPort()
		await.Must(t, err)
		give(port)
	}
	another := exec.CommandContext(await.Context(t), os.Args[0], "-test.v", "-test.run", "^"+t.Name()+"$")
	another.Env = append(os.Environ(), "CDC_RELAY_TEST_PORTS=1")
	out, err := another.CombinedOutput()
	await.Must(t, err)
	for line := range strings.Lines(string(out)) {
		if _, text, ok := strings.Cut(line, ": port "); ok {
			port, err := strconv.Atoi(strings.TrimSpace(text))
			await.Must(t, err)
			give(port)
		}
	}
	if len(seen) != 2*portsOf {
		t.Errorf("%d ports, want %d", len(seen), 2*portsOf)
	}
}
