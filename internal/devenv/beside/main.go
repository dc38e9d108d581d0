// Command beside runs a test binary of the modules outbox and inbox, which cannot import this one:
// with what their examples connect to, on the servers of `make serve` or on some of its own.
//
//	go run ./internal/devenv/beside -database -vhost -topic BINARY ARGUMENTS
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
)

func main() {
	var examples []servers.Example
	args := os.Args[1:]
	for ; len(args) > 0 && strings.HasPrefix(args[0], "-"); args = args[1:] {
		examples = append(examples, map[string]servers.Example{
			"-database": servers.ExampleDatabase, "-vhost": servers.ExampleVHost, "-topic": servers.ExampleTopic,
		}[args[0]])
	}
	os.Exit(servers.Beside(func() int {
		cmd := exec.CommandContext(context.Background(), args[0], args[1:]...)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		cmd.Env = append(os.Environ(), "CDC_RELAY_TEST_BESIDE=1")
		err := cmd.Run()
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			return max(exit.ExitCode(), 1)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "beside:", err)
			return 1
		}
		return 0
	}, examples...))
}
