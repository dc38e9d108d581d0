package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/creack/pty"

	"github.com/cdc-relay/cdc-relay/internal/replication/check"
)

// On a terminal each part of a finding has a line of its own, through a pipe a finding has one.
func TestFindingsOnATerminal(t *testing.T) {
	far, near, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	defer near.Close()
	if err := pty.Setsize(near, &pty.Winsize{Rows: 24, Cols: 60}); err != nil {
		t.Fatal(err)
	}
	findings := []check.Finding{{
		Name: "slot", Level: check.LevelFail, Detail: "it no longer exists, and nobody knows what it would have sent",
		Fix: "find and re-send what is missing; then go on: cdc-relay accept 3f9a1c2b7d04",
	}}
	if err := printFindings(near, findings); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 1000)
	n, err := far.Read(got)
	if err != nil {
		t.Fatal(err)
	}
	const want = `fail  slot  it no longer exists, and nobody knows what it would have sent
            fix: find and re-send what is missing;
              then go on: cdc-relay accept 3f9a1c2b7d04
`
	if got := strings.ReplaceAll(string(got[:n]), "\r", ""); got != want {
		t.Errorf("on a terminal it is\n%s", got)
	}
	var piped bytes.Buffer
	if err := printFindings(&piped, findings); err != nil || strings.Count(piped.String(), "\n") != 2 {
		t.Errorf("through a pipe it is %v\n%s", err, &piped)
	}
}
