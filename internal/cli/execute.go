// Running one command line.

package cli

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/cli/output"
)

// Execute runs one command line and returns its exit code. An error is one message on stderr,
// unless it was logged already. run creates the command run.
func Execute(args []string, stdout, stderr io.Writer, version string, run func(*command.Options) *cobra.Command) int {
	root, g := NewRoot(version, run)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.Execute()
	var done command.Logged
	if err != nil && !errors.As(err, &done) {
		fmt.Fprintln(stderr, output.Layout("cdc-relay: "+output.CleanLines(err.Error()), output.Width(stderr), 0))
	}
	return command.ExitCode(err, g.Started)
}
