package devenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// process is a child that ends with this process at the latest (watcher.go). Its output goes to a file, because a pipe
// inherited by a server's own children keeps "go test" waiting.
type process struct {
	name    string
	logPath string
	cmd     *exec.Cmd
	done    chan struct{} // closed when it has ended and was reaped
	state   *os.ProcessState
}

// startProcess starts cmd with its output appended to logPath (stdout only if nothing else is set for it). cmd.Env must
// be complete; the token is added to it.
func startProcess(name string, cmd *exec.Cmd, logPath string) (*process, error) {
	o, err := startOwner()
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
	cmd.Env = append(cmd.Env, o.variable)
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true // an interrupt at the terminal is for us, we stop the servers in order
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &process{name: name, logPath: logPath, cmd: cmd, done: make(chan struct{})}
	go p.reap()
	return p, nil
}

func (p *process) reap() {
	_ = p.cmd.Wait() //nolint:errcheck // the state says it all
	p.state = p.cmd.ProcessState
	close(p.done)
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) running() bool {
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

// signal does nothing when the process has ended.
func (p *process) signal(sig os.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %v to %s: %w", sig, p.name, err)
	}
	return nil
}

// wait returns when the process has ended, or with an error when ctx ends first.
func (p *process) wait(ctx context.Context) error {
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for end of %s: %w", p.name, context.Cause(ctx))
	}
}

// kill ends the process with SIGKILL and waits until it is reaped.
func (p *process) kill() error {
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return p.wait(ctx)
}

// poll calls done until it says true, returns an error, or ctx ends.
func poll(ctx context.Context, every time.Duration, done func() (bool, error)) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
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
}

// readLog is the whole log of a process, tail its last lines for an error message.
func readLog(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func tail(log string) string {
	const most = 2000
	if len(log) > most {
		return "…" + log[len(log)-most:]
	}
	return log
}
