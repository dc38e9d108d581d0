// Command serve runs a command beside one PostgreSQL, one RabbitMQ, one Kafka and a relay's binary, which it starts and builds
// first and ends with the command. Tests find them by variables of the environment (internal/devenv/shared.go).
//
//	go run ./internal/devenv/serve go test ./internal/retry
//	go run ./internal/devenv/serve          prints the variables and serves until it is interrupted
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv"
)

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "serve:", err)
	}
	os.Exit(code)
}

func run(command []string) (int, error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	begin := time.Now()
	fmt.Fprintln(os.Stderr, "starting PostgreSQL, RabbitMQ and Kafka for all tests, building the relay ...")
	servers, err := devenv.StartServers(ctx)
	if ctx.Err() != nil {
		return 130, nil
	}
	if failed, ok := errors.AsType[*devenv.StartError](err); ok {
		return 1, keepLog(failed)
	}
	if err != nil {
		return 1, err
	}
	fmt.Fprintf(os.Stderr, "started in %.0f s\n", time.Since(begin).Seconds())
	code, err := 0, error(nil)
	if len(command) == 0 {
		for _, variable := range servers.Environ() {
			fmt.Println("export", variable)
		}
		<-ctx.Done()
	} else {
		code, err = beside(ctx, command, servers.Environ())
	}
	return max(code, codeOf(err)), errors.Join(err, servers.Close())
}

// keepLog is the one line about a server that did not start. Its log is kept, because its directory is removed.
func keepLog(failed *devenv.StartError) error {
	path := filepath.Join("bin", strings.ToLower(failed.Server)+".log")
	if err := os.WriteFile(path, []byte(failed.Log), 0o644); err != nil {
		return errors.Join(failed, err)
	}
	log := strings.TrimSpace(failed.Log)
	return fmt.Errorf("start %s: %s; the end of its log, %s: %s", failed.Server, failed.Why, path, log[strings.LastIndexByte(log, '\n')+1:])
}

func codeOf(err error) int {
	if err != nil {
		return 1
	}
	return 0
}

// beside runs the command to its end. An interrupt at the terminal reaches it, too; one that only this process gets is passed
// on. A command that does not end within three seconds of it is killed.
func beside(ctx context.Context, command, environ []string) (int, error) {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = append(os.Environ(), environ...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 3 * time.Second
	err := cmd.Run()
	if ctx.Err() != nil {
		return 130, nil
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return max(exit.ExitCode(), 1), nil
	}
	return 0, err
}
