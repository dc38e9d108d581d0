// Command cdc-relay relays committed outbox rows from PostgreSQL's WAL to a message broker.
package main

import (
	"io"
	"os"

	"github.com/cdc-relay/cdc-relay/internal/cli"
)

// version is set by the linker: -ldflags "-X main.version=v1.2.3". Unset, the module's own version
// is used.
var version string

func main() {
	os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr))
}

// execute runs one command line and gives its exit code.
func execute(args []string, stdout, stderr io.Writer) int {
	return cli.Execute(args, stdout, stderr, version, newRun)
}
