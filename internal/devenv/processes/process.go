// Package processes starts programs for tests and ends them, whatever becomes of the test.
package processes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
)

// Process is a child that ends with this process at the latest (processes/watcher.go). Its output
// goes to a file, because a pipe inherited by a server's own children keeps "go test" waiting.
type Process struct {
	name    string
	LogPath string
	cmd     *exec.Cmd
	done    chan struct{} // closed when it has ended and was reaped
	State   *os.ProcessState
}

// Start starts cmd with its output appended to logPath (stdout only if nothing else is set
// for it). cmd.Env must be complete; the token is added to it.
func Start(name string, cmd *exec.Cmd, logPath string) (*Process, error) {
	o, err := StartOwner()
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open log of %s: %w", name, err)
	}
	defer log.Close()
	cmd.Stderr = log
	if cmd.Stdout == nil {
		cmd.Stdout = log
	}
	cmd.Env = append(cmd.Env, o.Variable)
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	// an interrupt at the terminal is for us, we stop the servers in order
	cmd.SysProcAttr.Setpgid = true
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &Process{name: name, LogPath: logPath, cmd: cmd, done: make(chan struct{})}
	go p.reap()
	return p, nil
}

func (p *Process) reap() {
	_ = p.cmd.Wait() //nolint:errcheck // the state says it all
	p.State = p.cmd.ProcessState
	close(p.done)
}

// Pid is the id that the process has, or had when it has ended.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Running reports whether the process has not ended yet; false for nil.
func (p *Process) Running() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Signal does nothing when the process has ended.
func (p *Process) Signal(sig os.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %v to %s: %w", sig, p.name, err)
	}
	return nil
}

// Wait returns when the process has ended, or with an error when ctx ends first or patience does.
func (p *Process) Wait(ctx context.Context) error {
	err := Poll(ctx, await.Every, func() (bool, error) { return !p.Running(), nil })
	if err != nil {
		return fmt.Errorf("wait for end of %s: %w", p.name, err)
	}
	return nil
}

// Kill ends the process with SIGKILL and waits until it is reaped.
func (p *Process) Kill() error {
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	return p.Wait(context.Background())
}

// ErrPatience ends a poll whose answer does not become true.
var ErrPatience = fmt.Errorf("not so for %v and longer", Patience)

const Patience = 2 * time.Minute

// Ready waits until a server that was just started answers. One that has ended has failed. So has
// one that does not answer and has written nothing for three minutes, or whatever it writes for
// ten: a slow machine's server goes on writing, and comes to an end of it.
func (p *Process) Ready(ctx context.Context, answers func(context.Context) bool) error {
	patience := 5 * time.Second
	asks := func() bool {
		// an answer to the next question may come sooner; that of a busy machine takes longer
		once, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		if answers(once) {
			return true
		}
		if once.Err() != nil {
			patience = min(2*patience, time.Minute)
		}
		return false
	}
	var size int64
	begin := time.Now()
	for written := begin; !asks(); {
		switch info, err := os.Stat(p.LogPath); {
		case !p.Running():
			return &StartError{p.name, "it has ended", ReadLog(p.LogPath)}
		case time.Since(written) > 3*time.Minute:
			return &StartError{p.name, "it does not answer and has written nothing for three minutes", ReadLog(p.LogPath)}
		case time.Since(begin) > 10*time.Minute:
			return &StartError{p.name, "it does not answer for ten minutes", ReadLog(p.LogPath)}
		case err == nil && info.Size() > size:
			size, written = info.Size(), time.Now()
		}
		select {
		case <-time.After(await.Every):
		case <-ctx.Done():
			return fmt.Errorf("start %s: %w", p.name, context.Cause(ctx))
		}
	}
	return nil
}

// StartError is a server that did not start.
type StartError struct {
	Server string // "RabbitMQ"
	Why    string
	Log    string // all that it has written
}

func (e *StartError) Error() string {
	return fmt.Sprintf("start %s: %s: %s", e.Server, e.Why, Tail(strings.TrimSpace(e.Log)))
}

// Poll calls done until it says true, returns an error, or ctx ends. It gives up after a number of
// answers, not of seconds: where answers take long it waits longer.
func Poll(ctx context.Context, every time.Duration, done func() (bool, error)) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for range Patience / every {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
		}
		ok, err := done()
		if ok || err != nil {
			return err
		}
		timer.Reset(every)
	}
	return ErrPatience
}

// ReadLog is the whole log of a process, tail its last lines for an error message.
func ReadLog(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// Tail is the last 2000 bytes of a log, after an ellipsis when it is longer.
func Tail(log string) string {
	const most = 2000
	if len(log) > most {
		return "…" + log[len(log)-most:]
	}
	return log
}
