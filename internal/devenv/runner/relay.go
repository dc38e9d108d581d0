// A relay that runs: its start, its log, signals and its end.

package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
	"github.com/cdc-relay/cdc-relay/internal/devenv/sentinel"
)

// Relay is a running "cdc-relay run". Its methods may be called from several goroutines.
type Relay struct {
	proc    *processes.Process
	dir     string
	admin   string
	earlier bool
	socket  string
	leaks   leaks
}

// Start starts "binary run -c FILE args...", FILE holding config, and does not wait for anything.
// admin.listen is overridden by a free port through the environment. When the test ends the relay
// is killed if it still runs. The test fails if what the relay says has personal data (Sentinel),
// and a failed test shows the end of the log.
func Start(t testing.TB, binary, config string, args ...string) *Relay {
	t.Helper()
	return StartRelayIn(t, nil, binary, config, args...)
}

// StartRelayIn is Start with more environment: NAME=VALUE.
func StartRelayIn(t testing.TB, env []string, binary, config string, args ...string) *Relay {
	t.Helper()
	r, err := LaunchRelayIn(env, binary, config, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.CheckLeaks(t)
		if err := r.Kill(); err != nil {
			t.Error(err)
		}
		log := r.Log()
		if t.Failed() {
			t.Logf("log of relay %d:\n%s", r.proc.Pid(), processes.Tail(log))
		}
	})
	return r
}

// LaunchRelay is Start outside of tests. The relay ends with this process at the latest.
func LaunchRelay(binary, config string, args ...string) (*Relay, error) {
	return LaunchRelayIn(nil, binary, config, args...)
}

// Earlier in the environment says that the binary is of a version before admin.socket: its API,
// open to this host, is asked by the network.
const Earlier = "CDC_RELAY_TEST_EARLIER=1"

// LaunchRelayIn is LaunchRelay with more environment: NAME=VALUE.
func LaunchRelayIn(env []string, binary, config string, args ...string) (*Relay, error) {
	dir, err := processes.NewDir("relay")
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "cdc-relay.yaml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		return nil, fmt.Errorf("write config of relay: %w", err)
	}
	port, err := processes.UnusedPort()
	if err != nil {
		return nil, err
	}
	stdout, err := os.Create(filepath.Join(dir, "stdout"))
	if err != nil {
		return nil, fmt.Errorf("make file for the relay's output: %w", err)
	}
	defer stdout.Close()
	r := &Relay{dir: dir, admin: fmt.Sprintf("127.0.0.1:%d", port)}
	cmd := exec.Command(binary, append([]string{"run", "-c", path}, args...)...)
	cmd.Dir = dir
	cmd.Stdout = stdout
	cmd.Env = append(append(processes.EnvironWithout(processes.OwnerVariable), "CDC_RELAY_ADMIN__LISTEN="+r.admin), env...)
	if own := ownSocket.FindStringSubmatch(config); own != nil {
		r.socket = own[1]
	} else if r.earlier = slices.Contains(env, Earlier); !r.earlier {
		r.socket = filepath.Join(dir, "admin.sock")
		cmd.Env = append(cmd.Env, "CDC_RELAY_ADMIN__SOCKET="+r.Socket())
	}
	if r.proc, err = processes.Start("relay", cmd, filepath.Join(dir, "log")); err != nil {
		return nil, err
	}
	return r, nil
}

// Admin is the base URL of the admin server.
func (r *Relay) Admin() string { return "http://" + r.admin }

// Socket is the path of the admin server's Unix socket.
func (r *Relay) Socket() string { return r.socket }

// ownSocket is that of a configuration which has one.
var ownSocket = regexp.MustCompile(`\bsocket: ([^ ,}\n]+)`)

// AdminSocket is the socket as the commands' --admin takes it: nobody needs a token there.
func (r *Relay) AdminSocket() string { return "unix:" + r.Socket() }

// ConfigPath is the file that the relay was started with.
func (r *Relay) ConfigPath() string { return filepath.Join(r.dir, "cdc-relay.yaml") }

// Pid is the process id.
func (r *Relay) Pid() int { return r.proc.Pid() }

// Log is what the relay has written to stderr so far.
func (r *Relay) Log() string { return processes.ReadLog(r.proc.LogPath) }

// Stdout is what the relay has written to stdout so far.
func (r *Relay) Stdout() string { return processes.ReadLog(filepath.Join(r.dir, "stdout")) }

// Signal sends a signal; nothing happens when the relay has ended.
func (r *Relay) Signal(sig os.Signal) error { return r.proc.Signal(sig) }

// Freeze stops the process by SIGSTOP until Thaw. It stands still when this returns.
func (r *Relay) Freeze() error { return r.proc.Freeze() }

// Thaw lets a frozen relay go on.
func (r *Relay) Thaw() error { return r.proc.Signal(syscall.SIGCONT) }

// Kill ends the relay by SIGKILL and waits until it has ended.
func (r *Relay) Kill() error { return r.proc.Kill() }

// Running reports whether the relay has not ended.
func (r *Relay) Running() bool { return r.proc.Running() }

// Exit waits for the relay's end and returns its exit code; -1 when a signal ended it.
func (r *Relay) Exit(ctx context.Context) (int, error) {
	if err := r.proc.Wait(ctx); err != nil {
		return 0, err
	}
	return r.proc.State.ExitCode(), nil
}

// End stops the relay, and kills it when it has not ended after a second.
func (r *Relay) End() error {
	if err := r.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if _, err := r.Exit(ctx); err != nil {
		return r.Kill()
	}
	return nil
}

// Stop looks for leaks, asks the relay to stop by SIGTERM, waits for its end and returns its exit
// code.
func (r *Relay) Stop(t testing.TB) int {
	t.Helper()
	r.LookForLeaks()
	if err := r.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	code, err := r.Exit(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return code
}

var errRelayEnded = errors.New("the relay has ended")

// WaitLog returns when the log contains text.
func (r *Relay) WaitLog(ctx context.Context, text string) error {
	var seen int64 = -1
	err := processes.Poll(ctx, 10*time.Millisecond, func() (bool, error) {
		running := r.Running() // before the log is read: its last lines count
		info, err := os.Stat(r.proc.LogPath)
		if err != nil {
			return false, fmt.Errorf("read log of relay: %w", err)
		}
		if info.Size() != seen && strings.Contains(r.Log(), text) {
			return true, nil
		}
		seen = info.Size()
		if !running {
			return false, errRelayEnded
		}
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("wait for %q in the relay's log: %w: %s", text, err, processes.Tail(r.Log()))
	}
	return nil
}

// WaitReady returns when GET /readyz answers 200.
func (r *Relay) WaitReady(ctx context.Context) error {
	// A relay takes a second or more, and is busy meanwhile: each question keeps it from its work.
	err := processes.Poll(ctx, 25*time.Millisecond, func() (bool, error) {
		code, _, err := r.Get(ctx, "/readyz")
		if err != nil && !r.Running() {
			return false, errRelayEnded
		}
		return err == nil && code == http.StatusOK, nil
	})
	if err != nil {
		return fmt.Errorf("wait until the relay is ready: %w: %s", err, processes.Tail(r.Log()))
	}
	return nil
}

// Get asks the admin server for a path and returns the status code and the body. It asks by the
// socket, which may read everything.
func (r *Relay) Get(ctx context.Context, path string) (int, string, error) {
	if r.earlier {
		return r.GetByNetwork(ctx, path)
	}
	return r.get(ctx, path, func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", r.Socket())
	})
}

// GetByNetwork is Get as anybody on the network asks: without a token.
func (r *Relay) GetByNetwork(ctx context.Context, path string) (int, string, error) {
	return r.get(ctx, path, nil)
}

func (r *Relay) get(ctx context.Context, path string, dial func(ctx context.Context, network, address string) (net.Conn, error)) (int, string, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.Admin()+path, nil)
	if err != nil {
		return 0, "", fmt.Errorf("get %s: %w", path, err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: dial}}
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", fmt.Errorf("get %s: %w", path, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, "", fmt.Errorf("get %s: %w", path, err)
	}
	r.leaks.look(path, string(body))
	return resp.StatusCode, string(body), nil
}

var vmHWM = regexp.MustCompile(`(?m)^VmHWM:\s+(\d+) kB$`)

// PeakRSS is the most memory the process has had resident so far, in bytes (VmHWM, proc(5); of one
// that has ended, getrusage(2)).
func (r *Relay) PeakRSS() (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.Pid()))
	if m := vmHWM.FindSubmatch(status); err == nil && m != nil {
		kB, err := strconv.ParseInt(string(m[1]), 10, 64)
		return kB << 10, err
	}
	ctx := context.Background()
	if err := r.proc.Wait(ctx); err != nil {
		return 0, fmt.Errorf("read peak memory of relay: %w", err)
	}
	usage, ok := r.proc.State.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0, fmt.Errorf("read peak memory of relay: the system does not say")
	}
	return usage.Maxrss << 10, nil
}

// Result is what a command of the relay has said.
type Result struct {
	Code           int
	Stdout, Stderr string
}

// RunCommand runs "binary args... -c FILE", FILE holding config (no -c when it is empty), to its
// end, at most as long as ctx. A non-zero exit code is not an error.
func RunCommand(ctx context.Context, binary, config string, args ...string) (Result, error) {
	if config != "" {
		dir, err := processes.NewDir("command")
		if err != nil {
			return Result{}, err
		}
		path := filepath.Join(dir, "cdc-relay.yaml")
		if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
			return Result{}, fmt.Errorf("write config of relay: %w", err)
		}
		args = append(args[:len(args):len(args)], "-c", path)
	}
	var out, errOut strings.Builder
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Stdout, cmd.Stderr = &out, &errOut
	o, err := processes.StartOwner()
	if err != nil {
		return Result{}, err
	}
	cmd.Env = append(processes.EnvironWithout(processes.OwnerVariable), o.Variable)
	cmd.WaitDelay = 5 * time.Second
	err = cmd.Run()
	if exit := new(exec.ExitError); errors.As(err, &exit) && ctx.Err() == nil {
		err = nil
	}
	if err != nil {
		return Result{}, fmt.Errorf("run cdc-relay %s: %w: %s", strings.Join(args, " "), err, errOut.String())
	}
	return Result{Code: cmd.ProcessState.ExitCode(), Stdout: out.String(), Stderr: errOut.String()}, nil
}

// LookForLeaks asks a relay that runs for what CheckLeaks searches, and for more. One that is
// stopped is asked before.
func (r *Relay) LookForLeaks(more ...string) {
	if !r.Running() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, path := range append(more, "/metrics", "/api/v1/status", "/readyz", "/healthz", "/api/v1/slots") {
		if _, _, err := r.Get(ctx, path); err != nil {
			return // it is frozen, or ends just now
		}
	}
}

// CheckLeaks fails the test when what the relay has said so far has personal data: its log, metrics
// and status, and all that was asked of its admin server before.
func (r *Relay) CheckLeaks(t testing.TB) {
	t.Helper()
	r.LookForLeaks()
	r.leaks.mu.Lock()
	first := r.leaks.first
	r.leaks.mu.Unlock()
	for _, err := range []error{first, sentinel.Leak("the relay's log", r.Log())} {
		if err != nil {
			t.Error(err)
		}
	}
}
