//go:build testall

package cli

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

// What a person reads says which event, what, from which byte on and where; with
// admin.show_payloads: false nothing of contents.
func TestCompareInWords(t *testing.T) {
	t.Parallel()
	s := newSameTopics(t, 1)
	s.write(s.theirs, record(0, "e1", "k", `{"name": "tulip"}`, "tenant", "tulip"), record(0, "e2", "k", "v"))
	s.write(s.ours, record(0, "e1", "k", `{"name": "roses"}`, "tenant", "roses"), record(0, "e2", "k", "v"))
	config := s.config()
	args := []string{"compare", "debezium", "--theirs", s.theirs, "--ours", s.ours, "--from", "beginning", "--lag", "1s"}
	res, err := runner.RunCommand(await.Context(t), runner.Build(t), config, args...)
	must(t, err)
	refusal(t, res, 1, "2 differences in 2 compared events")
	for _, want := range []string{
		"e1 value: differs from byte 10 on (theirs 17 bytes, ours 17)", "tulip", "roses", "    theirs " + s.theirs + ", partition 0, offset 0\n", `e1 header "tenant"`,
		"compared     2 events: 1 equal, 1 not\n", "differences  value: 1\n", "theirs       2 messages, 0 again\n",
	} {
		if !strings.Contains(res.Stdout, want) {
			t.Errorf("it does not say %q:\n%s", want, res.Stdout)
		}
	}
	for _, more := range [][]string{nil, {"--json"}} {
		res, err := runner.RunCommand(await.Context(t), runner.Build(t), config+"admin: {show_payloads: false}\n", append(args[:len(args):len(args)], more...)...)
		must(t, err)
		if res.Code != 1 || !strings.Contains(res.Stdout, "e1") || strings.Contains(res.Stdout+res.Stderr, "tulip") || strings.Contains(res.Stdout+res.Stderr, "roses") {
			t.Errorf("%v, exit %d:\n%s", more, res.Code, res.Stdout)
		}
	}
}
