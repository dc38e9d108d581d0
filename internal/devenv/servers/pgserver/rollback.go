// A server whose storage goes back to an earlier state, as a volume that is restored from a
// snapshot.

package pgserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
)

// Image copies the data directory as it is at one moment: all processes of the server stand still
// meanwhile. It is removed with the server.
func (p *Postgres) Image(ctx context.Context) (image string, err error) {
	if p.server == nil {
		return "", fmt.Errorf("copy PostgreSQL's data: %w", processes.ErrNotOurs)
	}
	image, err = os.MkdirTemp(p.dir, "image-")
	if err != nil {
		return "", fmt.Errorf("make directory: %w", err)
	}
	thaw, err := p.Freeze()
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, thaw()) }()
	return image, copyDir(ctx, p.data(), filepath.Join(image, "data"))
}

// Freeze has all processes of the server stand still until thaw is called, or Kill.
func (p *Postgres) Freeze() (thaw func() error, err error) {
	var children []int
	thaw = func() error {
		for _, pid := range children {
			_ = syscall.Kill(pid, syscall.SIGCONT) //nolint:errcheck // one that has ended needs nothing
		}
		return p.server.Signal(syscall.SIGCONT)
	}
	if err := p.server.Freeze(); err != nil { // first the postmaster, which would start others
		return nil, err
	}
	if children, err = processes.ChildrenOf(p.server.Pid()); err != nil {
		return nil, errors.Join(err, thaw())
	}
	for _, pid := range children {
		if err := processes.FreezePID(pid); err != nil && !errors.Is(err, syscall.ESRCH) {
			return nil, errors.Join(fmt.Errorf("freeze PostgreSQL's process %d: %w", pid, err), thaw())
		}
	}
	return thaw, nil
}

// RollBack kills the server, if it runs, and puts the data of an Image in the place of its own. It
// does not start it.
func (p *Postgres) RollBack(ctx context.Context, image string) error {
	if p.server.Running() {
		if err := p.Kill(); err != nil {
			return err
		}
	}
	if err := errors.Join(p.removeSegment(), processes.RemoveDir(p.data())); err != nil {
		return err
	}
	return copyDir(ctx, filepath.Join(image, "data"), p.data())
}

// copyDir copies a directory with its owners and rights.
func copyDir(ctx context.Context, from, to string) error {
	if out, err := exec.CommandContext(ctx, "cp", "-a", "--reflink=auto", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("copy %s: %w: %s", filepath.Base(from), err, out)
	}
	return nil
}

// SkipTransactions has the next transaction get an id of a later segment of pg_xact, as after as
// many transactions. Replication slots do not survive it.
func (p *Postgres) SkipTransactions(ctx context.Context, segment uint32) error {
	if _, err := p.Stop("fast"); err != nil {
		return err
	}
	there, err := filepath.Glob(filepath.Join(p.data(), "pg_xact", "*"))
	if err != nil || len(there) == 0 {
		return fmt.Errorf("find a segment of pg_xact: %d files, %w", len(there), err)
	}
	name := filepath.Join(p.data(), "pg_xact", fmt.Sprintf("%04X", segment))
	if err := copyDir(ctx, there[0], name); err != nil {
		return err
	}
	if err := errors.Join(os.Truncate(name, 0), os.Truncate(name, 256<<10)); err != nil {
		return fmt.Errorf("empty %s: %w", name, err)
	}
	if err := p.runProgram(ctx, nil, "pg_resetwal", "-x", fmt.Sprint(segment<<20), "-D", p.data()); err != nil {
		return err
	}
	return p.Start(ctx)
}
