package cli

import (
	"bytes"
	"errors"
	"testing"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/devenv/sentinel"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/check"
	"github.com/cdc-relay/cdc-relay/internal/replication/setup"
)

// Findings and errors carry names of tables and programs, and texts of servers.
func TestTerminalEscapesInFindingsAndErrors(t *testing.T) {
	var findings [2]check.Finding
	sentinel.FillWithAttack(&findings)
	var out bytes.Buffer
	if err := printFindings(&out, findings[:]); err != nil {
		t.Error(err)
	}
	sentinel.CheckPrinted(t, "check", out.String())
	out.Reset()
	if err := command.JSON(&out, findings); err != nil {
		t.Error(err)
	}
	sentinel.CheckPrinted(t, "check --json", out.String())

	var state setup.TakeoverState
	sentinel.FillWithAttack(&state)
	for _, dropped := range []bool{false, true} {
		state.Complete, state.Dropped = true, dropped
		out.Reset()
		printTakeover(&out, state)
		sentinel.CheckPrintedLines(t, "takeover", out.String())
	}

	for name, err := range map[string]error{
		"an error": errors.New(sentinel.TerminalAttack),
		"a stop":   &event.Stop{Code: event.ExitOperator, What: sentinel.TerminalAttack, Err: errors.New(sentinel.TerminalAttack), Fix: sentinel.TerminalAttack},
	} {
		out.Reset()
		Execute([]string{"run"}, &out, &out, command.Linked{}, func(*command.Options) *cobra.Command {
			return &cobra.Command{Use: "run", RunE: func(*cobra.Command, []string) error { return err }}
		})
		sentinel.CheckPrinted(t, name, out.String())
	}
}
