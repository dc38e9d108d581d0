package cli

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

// made is what a package makes before main.
type made struct {
	ms                 float64
	bytes, allocations int
}

// What packages make before main, every command pays at its start. It is counted, which gives the
// same on every machine. What computes much and allocates little shows in its share of the time,
// the shortest of some starts: a table of characters once took two thirds of it. If this fails for
// a reason, such as a new version of a library, write the counts into it.
func TestStartCost(t *testing.T) {
	const allocations, bytes = 22_400, 1_865_000
	const largestShare = 0.2
	binary, err := runner.RelayBinary(await.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	least := traceStart(t, binary)
	for range 9 {
		for name, m := range traceStart(t, binary) {
			m.ms = min(m.ms, least[name].ms)
			least[name] = m
		}
	}
	var sum made
	for _, m := range least {
		sum.ms += m.ms
		sum.bytes += m.bytes
		sum.allocations += m.allocations
	}
	t.Logf("%d packages: %d allocations, %d bytes", len(least), sum.allocations, sum.bytes)
	for what, c := range map[string]struct{ got, want int }{"allocations": {sum.allocations, allocations}, "bytes": {sum.bytes, bytes}} {
		if c.got > c.want+c.want/20 || c.got < c.want-c.want/20 {
			t.Errorf("packages make %d %s before main, and have made %d: GODEBUG=inittrace=1 cdc-relay version shows which", c.got, what, c.want)
		}
	}
	for name, m := range least {
		if m.ms > largestShare*sum.ms {
			t.Errorf("%s takes %.2f of the %.2f ms that all packages take before main", name, m.ms, sum.ms)
		}
	}
}

// traceStart starts a command, and returns what each package makes.
func traceStart(t *testing.T, binary string) map[string]made {
	t.Helper()
	cmd := exec.CommandContext(await.Context(t), binary, "version")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	var trace strings.Builder
	cmd.Stderr = &trace
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	packages := map[string]made{}
	for line := range strings.Lines(trace.String()) {
		// init PACKAGE @0.1 ms, 0.1 ms clock, 100 bytes, 2 allocs
		words := strings.Fields(line)
		if len(words) != 11 || words[0] != "init" {
			t.Fatalf("a line of the trace: %q", line)
		}
		packages[words[1]] = made{ms: traced(t, words[4]), bytes: int(traced(t, words[7])), allocations: int(traced(t, words[9]))}
	}
	if len(packages) < 100 {
		t.Fatalf("the trace has %d packages", len(packages))
	}
	return packages
}

func traced(t *testing.T, s string) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
