// A limit of memory as containers have it, for tests that run as root.

package processes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// MemoryLimit is a control group of the kernel. A process in it that needs more memory is killed.
type MemoryLimit struct{ dir string }

// LimitMemory makes a group of so many bytes, without swap, in version 1 or 2 of the kernel's
// hierarchy, whichever the machine has. Who may not make one, such as in most containers, gets an
// error.
func LimitMemory(name string, bytes int64) (*MemoryLimit, error) {
	const root = "/sys/fs/cgroup"
	g, file, swap, none := &MemoryLimit{filepath.Join(root, "memory", name)}, "memory.limit_in_bytes", "memory.memsw.limit_in_bytes", bytes
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err == nil {
		g.dir, file, swap, none = filepath.Join(root, name), "memory.max", "memory.swap.max", 0
	}
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		return nil, fmt.Errorf("make a memory limit: %w", err)
	}
	err := os.WriteFile(filepath.Join(g.dir, file), []byte(strconv.FormatInt(bytes, 10)), 0o644)
	if err == nil {
		err = os.WriteFile(filepath.Join(g.dir, swap), []byte(strconv.FormatInt(none, 10)), 0o644)
	}
	if errors.Is(err, os.ErrNotExist) { // the kernel counts no swap
		err = nil
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("set a memory limit: %w", err), g.Remove())
	}
	return g, nil
}

// Add puts a process under the limit, for what it takes from now on.
func (g *MemoryLimit) Add(pid int) error {
	if err := os.WriteFile(filepath.Join(g.dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644); err != nil {
		return fmt.Errorf("limit the memory of process %d: %w", pid, err)
	}
	return nil
}

// Remove removes the group, whose processes have ended.
func (g *MemoryLimit) Remove() error { return os.Remove(g.dir) }
