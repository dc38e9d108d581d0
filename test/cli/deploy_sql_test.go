// This file runs deploy/sql on a real PostgreSQL: the relay, operators and monitoring under exactly
// these roles.
package cli

import (
	"regexp"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

const relaySQL = "deploy/sql/02-relay.sql"

// One truth: what a DBA runs by hand is what init would run.
func TestRelaySQLIsWhatInitPrints(t *testing.T) {
	t.Parallel()
	binary := runner.Build(t)
	config := "source: {url: 'postgres://relay@localhost:5432/shop'}\nsink: {rabbitmq: {}}\n"
	res, err := runner.RunCommand(await.Context(t), binary, config, "init", "--print", "--outbox-table", "--role", "relay")
	must(t, err)
	if res.Code != 0 {
		t.Fatal(res.Stderr)
	}
	_, file, _ := strings.Cut(document(t, relaySQL), "\n\n") // the first lines say what it is
	if file != res.Stdout {
		t.Errorf("%s is not what `cdc-relay init --print --outbox-table --role relay` prints: write that into it, below its first lines", relaySQL)
	}
}

// What operators may do is written in two places, for those who read and for those who run it.
func TestOperatorSQLIsDocumented(t *testing.T) {
	t.Parallel()
	grants := regexp.MustCompile(`(?ms)^(?:GRANT|REVOKE) .*?;`)
	want := strings.Join(grants.FindAllString(document(t, "deploy/sql/03-operator.sql"), -1), "\n")
	if got := strings.Join(grants.FindAllString(operatorSection(t), -1), "\n"); got != want || want == "" {
		t.Errorf("docs/dead-letters.md says\n%s\ndeploy/sql says\n%s", got, want)
	}
}

// operatorSection is what docs/dead-letters.md says of a role for operators.
func operatorSection(t *testing.T) string {
	t.Helper()
	_, section, _ := strings.Cut(document(t, "docs/dead-letters.md"), "\n## A role for operators\n")
	section, _, _ = strings.Cut(section, "\n## ")
	return section
}
