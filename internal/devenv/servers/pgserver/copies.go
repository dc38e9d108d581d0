// Other servers with a server's data: a copy of its files, a restored base backup, a restored dump.

package pgserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
)

// StartClone starts a server of its own with a copy of a server's files, slots included. That one
// is stopped for it and left stopped. promoted: it begins with a recovery and so has the next
// timeline; else nothing in the database distinguishes it.
func StartClone(ctx context.Context, of *Postgres, promoted bool) (*Postgres, error) {
	if _, err := of.Stop("fast"); err != nil {
		return nil, err
	}
	p, err := of.sibling("clone")
	if err != nil {
		return nil, err
	}
	if err := copyDir(ctx, of.data(), p.data()); err != nil {
		return nil, err
	}
	return p.startCopy(ctx, promoted)
}

// StartRestored takes a base backup of a server that runs, and starts it as a server of its own, on
// the next timeline and without slots.
func StartRestored(ctx context.Context, of *Postgres) (*Postgres, error) {
	p, err := of.sibling("restored")
	if err != nil {
		return nil, err
	}
	if err := p.runProgram(ctx, nil, "pg_basebackup", "-d", of.URL("postgres"), "-D", p.data(), "-X", "stream", "-c", "fast", "--no-sync"); err != nil {
		return nil, err
	}
	return p.startCopy(ctx, true)
}

// sibling is another server of the same binaries, without data.
func (p *Postgres) sibling(name string) (*Postgres, error) {
	if p.server == nil {
		return nil, fmt.Errorf("copy PostgreSQL: %w", processes.ErrNotOurs)
	}
	dir, err := newDir(name)
	return &Postgres{bin: p.bin, dir: dir}, err
}

// startCopy starts a copy on a port of its own, and returns when it can be written to.
func (p *Postgres) startCopy(ctx context.Context, promoted bool) (*Postgres, error) {
	port, err := processes.UnusedPort()
	if err != nil {
		return nil, err
	}
	p.Url = serverURL(port)
	lines := fmt.Sprintf("port = %d\n", port)
	if promoted { // the end of its own WAL is the end of the recovery
		lines += "restore_command = 'false'\n"
		if err := os.WriteFile(filepath.Join(p.data(), "recovery.signal"), nil, 0o644); err != nil {
			return nil, fmt.Errorf("write recovery.signal: %w", err)
		}
	}
	conf, err := os.OpenFile(filepath.Join(p.data(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("write postgresql.conf: %w", err)
	}
	_, err = conf.WriteString(lines)
	if err := errors.Join(err, conf.Close()); err != nil {
		return nil, fmt.Errorf("write postgresql.conf: %w", err)
	}
	if err := p.Start(ctx); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	err = processes.Poll(ctx, 20*time.Millisecond, func() (bool, error) {
		var recovers bool
		err := p.Query(ctx, &recovers, `SELECT pg_is_in_recovery()`)
		return !recovers, err
	})
	return p, err
}

// RestoreDump restores a dump of a database of another server, and that one's roles.
func (p *Postgres) RestoreDump(ctx context.Context, from *Postgres, name string) error {
	if err := p.CreateDatabase(ctx, name); err != nil {
		return err
	}
	return p.RestoreInto(ctx, from, name)
}

// RestoreInto is RestoreDump into a database that exists; options are more of pg_dump's.
func (p *Postgres) RestoreInto(ctx context.Context, from *Postgres, name string, options ...string) error {
	var roles, dump bytes.Buffer
	if err := p.runProgram(ctx, &roles, "pg_dumpall", "-d", from.URL("postgres"), "--roles-only"); err != nil {
		return err
	}
	if err := p.runProgram(ctx, &dump, "pg_dump", append([]string{"-d", from.URL(name)}, options...)...); err != nil {
		return err
	}
	// some roles are there already, which is an error of that script alone
	if err := p.feed(ctx, &roles, "postgres", "0"); err != nil {
		return err
	}
	return p.feed(ctx, &dump, name, "1")
}

// feed runs a script by psql.
func (p *Postgres) feed(ctx context.Context, script *bytes.Buffer, db, stopOnError string) error {
	cmd, err := p.command(ctx, "psql", "-X", "-q", "-d", p.URL(db), "-v", "ON_ERROR_STOP="+stopOnError)
	if err != nil {
		return err
	}
	cmd.Stdin = script
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("run psql: %w: %s", err, out)
	}
	return nil
}

// runProgram runs one of PostgreSQL's programs; out may be nil.
func (p *Postgres) runProgram(ctx context.Context, out *bytes.Buffer, name string, args ...string) error {
	cmd, err := p.command(ctx, name, args...)
	if err != nil {
		return err
	}
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if out != nil {
		cmd.Stdout = out
	}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("run %s: %w: %s", name, err, said.Bytes())
	}
	return nil
}
