// Command cdc-relay relays committed outbox rows from PostgreSQL's WAL to a message broker.
package main

import (
	"io"
	"os"

	"github.com/cdc-relay/cdc-relay/internal/cli"
	"github.com/cdc-relay/cdc-relay/internal/cli/command"
)

// The linker sets these, as make build does: -ldflags "-X main.version=v1.2.3". When they are not
// set, the binary reports what go build has recorded of the checkout.
var version, commit, date string

func main() {
	os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr))
}

// execute runs one command line and returns its exit code.
func execute(args []string, stdout, stderr io.Writer) int {
	return cli.Execute(args, stdout, stderr, command.Linked{Version: version, Commit: commit, Date: date}, newRun)
}
