// Physical standbys.

package pgserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
)

// StartStandby starts a physical standby of a server, which is stopped and started for it: its data
// is copied as it lies. pg_basebackup would spare that, and is not among the binaries of every
// version that tests use.
func StartStandby(ctx context.Context, primary *Postgres) (*Postgres, error) {
	p, err := primary.sibling("standby")
	if err != nil {
		return nil, err
	}
	if _, err := primary.Stop("fast"); err != nil {
		return nil, err
	}
	if err := copyDir(ctx, primary.data(), p.data()); err != nil {
		return nil, err
	}
	port, err := processes.UnusedPort()
	if err != nil {
		return nil, err
	}
	if err := errors.Join(p.moveTo(port), p.follow(primary, ""), primary.Start(ctx)); err != nil {
		return nil, err
	}
	if err := p.Start(ctx); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// onlineCopy starts a standby at a port, from a copy of the data that is made while the primary
// runs: what pg_basebackup does. slot is the standby's on the primary and has kept its WAL since
// before the copy.
func (p *Postgres) onlineCopy(ctx context.Context, port int, slot string) (*Postgres, error) {
	to, err := p.sibling("standby")
	if err != nil {
		return nil, err
	}
	var label string
	err = OnConn(ctx, p.URL("postgres"), func(conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, "SELECT pg_backup_start('standby', true)"); err != nil {
			return fmt.Errorf("start backup: %w", err)
		}
		if err := copyRunning(ctx, p.data(), to.data()); err != nil {
			return err
		}
		return conn.QueryRow(ctx, "SELECT labelfile FROM pg_backup_stop(false)").Scan(&label)
	})
	if err != nil {
		return nil, err
	}
	if err := errors.Join(to.writeLabel(label), to.moveTo(port), to.follow(p, slot)); err != nil {
		return nil, err
	}
	if err := to.Start(ctx); err != nil {
		return nil, errors.Join(err, to.Close())
	}
	return to, nil
}

// writeLabel writes a file that the server renames, and so has to own.
func (p *Postgres) writeLabel(label string) error {
	path := filepath.Join(p.data(), "backup_label")
	err := os.WriteFile(path, []byte(label), 0o600)
	if id, err2 := postgresUser(); err == nil && id != nil {
		err = errors.Join(err2, os.Chown(path, int(id.Uid), int(id.Gid)))
	}
	if err != nil {
		return fmt.Errorf("write backup_label: %w", err)
	}
	return nil
}

// copyRunning copies the data of a server that runs, without what is of its lifetime and its slots,
// and without its WAL, which is streamed.
func copyRunning(ctx context.Context, from, to string) error {
	// Files that vanish meanwhile are no error: the WAL has what became of them.
	const script = `set -eu; mkdir -m 700 "$2"; chown --reference="$1" "$2"
		tar -C "$1" --exclude=./postmaster.pid --exclude='./pg_wal/*' --exclude='./pg_replslot/*' --exclude='./pg_stat_tmp/*' \
			--warning=no-file-changed --warning=no-file-removed --ignore-failed-read -cf - . | tar -C "$2" -xpf -`
	out, err := exec.CommandContext(ctx, "sh", "-c", script, "sh", from, to).CombinedOutput()
	if err != nil {
		return fmt.Errorf("copy the data of a server that runs: %w: %s", err, out)
	}
	return nil
}

// port is the one that the server listens on.
func (p *Postgres) port() (int, error) { return strconv.Atoi(p.Url.Port()) }

// moveTo gives the server another port, from its next start on.
func (p *Postgres) moveTo(port int) error {
	p.Url = serverURL(port)
	return p.addSettings(fmt.Sprintf("port = %d\n", port))
}

// follow makes the server a standby of another one from its next start on; slot "" is none. What
// ALTER SYSTEM has set before is the primary's affair.
func (p *Postgres) follow(primary *Postgres, slot string) error {
	if err := os.WriteFile(filepath.Join(p.data(), "standby.signal"), nil, 0o644); err != nil {
		return fmt.Errorf("write standby.signal: %w", err)
	}
	if err := os.Truncate(filepath.Join(p.data(), "postgresql.auto.conf"), 0); err != nil {
		return fmt.Errorf("write postgresql.auto.conf: %w", err)
	}
	return p.addSettings(fmt.Sprintf("primary_conninfo = 'host=%s port=%s user=postgres dbname=postgres sslmode=disable'\nprimary_slot_name = '%s'\n",
		primary.Url.Hostname(), primary.Url.Port(), slot))
}

// addSettings appends lines to postgresql.conf: later ones win.
func (p *Postgres) addSettings(lines string) error {
	conf, err := os.OpenFile(filepath.Join(p.data(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = conf.WriteString(lines)
		err = errors.Join(err, conf.Close())
	}
	if err != nil {
		return fmt.Errorf("write postgresql.conf: %w", err)
	}
	return nil
}

// Set is ALTER SYSTEM SET, and returns once new sessions have the value.
func (p *Postgres) Set(ctx context.Context, name, value string) error {
	sql := fmt.Sprintf("ALTER SYSTEM SET %s = '%s'", pgx.Identifier{name}.Sanitize(), strings.ReplaceAll(value, "'", "''"))
	if err := p.exec(ctx, sql); err != nil {
		return err
	}
	if err := p.exec(ctx, "SELECT pg_reload_conf()"); err != nil {
		return err
	}
	return processes.Poll(ctx, 10*time.Millisecond, func() (bool, error) {
		var now string
		err := p.Query(ctx, &now, "SELECT current_setting($1)", name)
		return now == value, err
	})
}
