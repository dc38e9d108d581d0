// Command serve runs a command together with one PostgreSQL, one RabbitMQ, one Kafka and a relay's
// binary, which it starts and builds first and ends with the command. Tests find them by variables
// of the environment (internal/devenv/servers/shared.go).
//
//	go run ./internal/devenv/serve go test ./internal/retry
//	go run ./internal/devenv/serve      prints the variables, serves until interrupted
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
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
	if err := writeToMemory(); err != nil {
		return 1, err
	}
	fmt.Fprintln(os.Stderr, "starting PostgreSQL, RabbitMQ and Kafka for all tests ...")
	started, err := servers.StartServers(ctx, len(command) > 0)
	if ctx.Err() != nil {
		if err == nil {
			err = started.Close()
		}
		return 130, ignoreCanceled(err)
	}
	if failed, ok := errors.AsType[*processes.StartError](err); ok {
		return 1, keepLog(failed)
	}
	if err != nil {
		return 1, err
	}
	fmt.Fprintf(os.Stderr, "started in %.0f s\n", time.Since(begin).Seconds())
	code, err := 0, error(nil)
	if len(command) == 0 {
		for _, variable := range started.Environ() {
			fmt.Println("export", variable)
		}
		<-ctx.Done()
	} else {
		code, err = beside(ctx, command, started.Environ())
	}
	return max(code, codeOf(err)), errors.Join(err, started.Close())
}

// writeToMemory has the servers and the tests write to /dev/shm where it has room, unless TMPDIR is
// set. A run makes and drops a thousand databases of three hundred files each: on a disk one costs
// 150 ms of processor time, in memory 15. What go test compiles stays on the disk.
func writeToMemory() error {
	const (
		memory = "/dev/shm"
		room   = 6 << 30 // a run has needed less than 1
		noExec = 8       // ST_NOEXEC of statvfs(3): the relay's binary lies there
	)
	var fs unix.Statfs_t
	if os.Getenv("TMPDIR") != "" || unix.Statfs(memory, &fs) != nil || unix.Access(memory, unix.W_OK) != nil {
		return nil
	}
	if fs.Type != unix.TMPFS_MAGIC || fs.Flags&noExec != 0 || min(fs.Bavail*uint64(fs.Bsize), available()) < room {
		return nil
	}
	return errors.Join(os.Setenv("GOTMPDIR", cmp.Or(os.Getenv("GOTMPDIR"), os.TempDir())), os.Setenv("TMPDIR", memory))
}

// available is how much memory is free or can be freed, in bytes; 0 where the system does not say.
func available() uint64 {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), "MemAvailable:")
	kB, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	n, err := strconv.ParseUint(kB, 10, 54)
	if err != nil {
		return 0
	}
	return n << 10
}

// keepLog is the one line about a server that did not start. Its log is kept, because its directory
// is removed.
func keepLog(failed *processes.StartError) error {
	path := filepath.Join("bin", strings.ToLower(failed.Server)+".log")
	if err := os.WriteFile(path, []byte(failed.Log), 0o644); err != nil {
		return errors.Join(failed, err)
	}
	log := strings.TrimSpace(failed.Log)
	return fmt.Errorf("start %s: %s; the end of its log, %s: %s", failed.Server, failed.Why, path, log[strings.LastIndexByte(log, '\n')+1:])
}

// ignoreCanceled: what was interrupted while it started says so, and nobody asked.
func ignoreCanceled(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func codeOf(err error) int {
	if err != nil {
		return 1
	}
	return 0
}

// beside runs the command to its end, in a process group of its own. An interrupt is passed on to
// the group, and what has not ended three seconds later is killed.
func beside(ctx context.Context, command, environ []string) (int, error) {
	tmp, err := processes.TempDir()
	if err != nil {
		return 1, err
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	// a test that is killed leaves its files there
	cmd.Env = append(append(os.Environ(), environ...), "TMPDIR="+tmp)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = 3 * time.Second
	err = cmd.Run()
	if ctx.Err() != nil {
		if cmd.Process != nil {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) //nolint:errcheck // the group may be gone
		}
		return 130, nil
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return max(exit.ExitCode(), 1), nil
	}
	return 0, err
}
