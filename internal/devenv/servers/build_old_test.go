package servers

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

// A clone without the history says what to do.
func TestRelayOfACommitThatIsNotThere(t *testing.T) {
	_, err := runner.RelayAt(strings.Repeat("0", 40))
	if err == nil || !strings.Contains(err.Error(), "git fetch --unshallow") {
		t.Errorf("got %v, want the command that fetches the history", err)
	}
}
