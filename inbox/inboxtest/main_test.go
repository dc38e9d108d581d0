package inboxtest_test

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// TestMain runs the tests again with a database. It is prepared by a program of the repository's
// main module, which this one does not import.
func TestMain(m *testing.M) {
	if os.Getenv("CDC_RELAY_TEST_BESIDE") != "" {
		os.Exit(m.Run())
	}
	beside := exec.Command("go", append([]string{"run", "github.com/cdc-relay/cdc-relay/internal/devenv/beside", "-database"}, os.Args...)...)
	beside.Stdout, beside.Stderr = os.Stdout, os.Stderr
	if err := beside.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "tests beside servers:", err)
		os.Exit(1)
	}
}
