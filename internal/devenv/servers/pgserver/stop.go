// Stopping and killing a server, and its shared memory.

package pgserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
)

// Stop shuts the server down by the signal that pg_ctl sends for the mode (smart, fast or
// immediate) and waits until it has ended, as pg_ctl -w does. It returns how long that took.
func (p *Postgres) Stop(mode string) (time.Duration, error) {
	if p.server == nil {
		return 0, fmt.Errorf("stop PostgreSQL: %w", processes.ErrNotOurs)
	}
	signal, ok := map[string]os.Signal{"smart": syscall.SIGTERM, "fast": syscall.SIGINT, "immediate": syscall.SIGQUIT}[mode]
	if !ok {
		return 0, fmt.Errorf("stop PostgreSQL: mode %q is none of smart, fast, immediate", mode)
	}
	start := time.Now()
	if err := p.server.Signal(signal); err != nil {
		return 0, err
	}
	err := p.server.Wait(context.Background())
	return time.Since(start), err
}

// Kill ends the postmaster and all its children at once by SIGKILL, as the machine's death would.
func (p *Postgres) Kill() error {
	if p.server == nil {
		return fmt.Errorf("kill PostgreSQL: %w", processes.ErrNotOurs)
	}
	// A stopped postmaster neither starts children nor tells those that live to end.
	if err := p.server.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	children, err := processes.ChildrenOf(p.server.Pid())
	if err != nil {
		return err
	}
	for _, pid := range children {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("kill PostgreSQL's process %d: %w", pid, err)
		}
	}
	if err := p.server.Kill(); err != nil {
		return err
	}
	// A child that lives keeps the shared memory, and the next start refuses.
	return processes.Poll(context.Background(), 5*time.Millisecond, func() (bool, error) {
		for _, pid := range children {
			if processes.Alive(pid) {
				return false, nil
			}
		}
		return true, nil
	})
}

// Close ends the server and removes its data.
func (p *Postgres) Close() error {
	if p.server == nil {
		return nil
	}
	if p.server.Running() {
		if err := p.Kill(); err != nil {
			return err
		}
	}
	return errors.Join(p.removeSegment(), processes.RemoveDir(p.dir))
}

// removeSegment removes the segment of shared memory that a server which was killed leaves behind:
// the system has room for some thousands, and no server starts any more when they are used up. (One
// that is started again does it itself.)
func (p *Postgres) removeSegment() error {
	id, ok := p.Segment()
	if !ok {
		return nil
	}
	// it is gone
	if _, err := unix.SysvShmCtl(id, unix.IPC_RMID, nil); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EIDRM) {
		return fmt.Errorf("remove PostgreSQL's shared memory: %w", err)
	}
	return nil
}

// Segment is the id of the server's segment, while there is one: the second number of the 7th line
// of postmaster.pid. https://www.postgresql.org/docs/current/storage-file-layout.html
func (p *Postgres) Segment() (id int, ok bool) {
	text, err := os.ReadFile(filepath.Join(p.data(), "postmaster.pid"))
	lines := strings.Split(string(text), "\n")
	if err != nil || len(lines) < 7 {
		return 0, false // it has ended in good order
	}
	n, err := fmt.Sscan(lines[6], new(int), &id)
	return id, n == 2 && err == nil
}
