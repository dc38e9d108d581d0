//go:build testall

package servers

import (
	"bufio"
	"bytes"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
)

// serve is the program of internal/devenv/serve with a command, in a directory of its own. It
// starts PostgreSQL alone: the other servers seem to be given.
func serve(t *testing.T, env []string, command ...string) *exec.Cmd {
	t.Helper()
	binary, err := serveBinary()
	await.Must(t, err)
	dir := t.TempDir()
	await.Must(t, os.Mkdir(filepath.Join(dir, "bin"), 0o700))
	cmd := exec.CommandContext(t.Context(), binary, command...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CDC_RELAY_TEST_POSTGRES=", "CDC_RELAY_TEST_RABBITMQ=given", "CDC_RELAY_TEST_KAFKA=given", "CDC_RELAY_TEST_BINARY=given")
	cmd.Env = append(cmd.Env, env...)
	return cmd
}

var serveBinary = sync.OnceValues(func() (string, error) {
	dir, err := processes.NewDir("serve")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "serve")
	_, err = runner.RunTool("go", "build", "-o", path, "github.com/cdc-relay/cdc-relay/internal/devenv/serve")
	return path, err
})

func TestInterruptedServeLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	cmd := serve(t, nil, "sh", "-c", "echo $CDC_RELAY_TEST_POSTGRES; mktemp -d; exec sleep 600")
	stdout, err := cmd.StdoutPipe()
	await.Must(t, err)
	await.Must(t, cmd.Start())
	lines := bufio.NewScanner(stdout)
	lines.Scan()
	server, err := url.Parse(lines.Text())
	await.Must(t, err)
	lines.Scan()
	dirs := append(tokensOf(t, cmd.Process.Pid), lines.Text())
	await.Must(t, cmd.Process.Signal(syscall.SIGTERM))
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 130 {
		t.Errorf("serve ends with %v", err)
	}
	if conn, err := net.Dial("tcp", server.Host); err == nil {
		conn.Close()
		t.Error("PostgreSQL still runs")
	}
	if len(dirs) != 2 {
		t.Fatalf("its directories are %v, want that of the servers and one of the command's", dirs)
	}
	await.Until(t, "its directories to be gone", func() bool {
		for _, dir := range dirs {
			if _, err := os.Stat(dir); err == nil {
				return false
			}
		}
		return true
	})
}

// tokensOf are the directories that watchers of a process's children will remove: the last argument
// of each watcher.
func tokensOf(t *testing.T, parent int) (dirs []string) {
	t.Helper()
	children, err := processes.ChildrenOf(parent)
	await.Must(t, err)
	for _, pid := range children {
		cmdline, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
		await.Must(t, err)
		args := strings.Split(strings.Trim(string(cmdline), "\x00"), "\x00")
		if strings.Contains(string(cmdline), "cdc-relay-watcher") {
			dirs = append(dirs, args[len(args)-1])
		}
	}
	return dirs
}

func TestServeNamesTheServerThatDoesNotStart(t *testing.T) {
	t.Parallel()
	bin, err := os.MkdirTemp("", "postgres-") // not t.TempDir: PostgreSQL runs as another user
	await.Must(t, err)
	defer os.RemoveAll(bin)
	await.Must(t, os.Chmod(bin, 0o755))
	real, err := pgserver.BinDir(t.Context(), "")
	await.Must(t, err)
	await.Must(t, os.Symlink(filepath.Join(real, "initdb"), filepath.Join(bin, "initdb")))
	await.Must(t, os.WriteFile(filepath.Join(bin, "postgres"), []byte("#!/bin/sh\necho 'FATAL:  no room'\nexit 1\n"), 0o755))
	cmd := serve(t, []string{"CDC_RELAY_TEST_POSTGRES_BIN=" + bin}, "true")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	err = cmd.Run()
	const want = "serve: start PostgreSQL: it has ended; the end of its log, bin/postgresql.log: FATAL:  no room\n"
	if cmd.ProcessState.ExitCode() != 1 || !strings.HasSuffix(stderr.String(), want) {
		t.Errorf("serve ends with %v and says\n%s", err, &stderr)
	}
	if log, err := os.ReadFile(filepath.Join(cmd.Dir, "bin", "postgresql.log")); err != nil || string(log) != "FATAL:  no room\n" {
		t.Errorf("the log is %q, %v", log, err)
	}
}
