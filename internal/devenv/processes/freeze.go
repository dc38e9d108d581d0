// A process that stands still.

package processes

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// Freeze stops the process by SIGSTOP, and returns when each of its threads stands: one that runs
// on another processor stops a moment after the signal was sent, and may answer somebody until
// then.
func (p *Process) Freeze() error { return FreezePID(p.Pid()) }

// FreezePID is Freeze by process id. It is no error when the process ends meanwhile.
func FreezePID(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	tasks := filepath.Join("/proc", strconv.Itoa(pid), "task")
	err := Poll(context.Background(), time.Millisecond, func() (bool, error) {
		threads, err := os.ReadDir(tasks)
		if err != nil {
			return true, nil // it has ended
		}
		for _, t := range threads {
			switch state, _ := ProcStat(filepath.Join(tasks, t.Name(), "stat")); state {
			case "T", "t", "Z", "X", "": // stopped, or gone
			default:
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("freeze process %d: %w", pid, err)
	}
	return nil
}
