// Physical standbys.

package pgserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
)

// StartStandby starts a physical standby of a server, which is stopped and started for it: its data
// is copied as it lies. pg_basebackup would spare that, and is not among the binaries of every
// version that tests use.
func StartStandby(ctx context.Context, primary *Postgres) (*Postgres, error) {
	if primary.server == nil {
		return nil, fmt.Errorf("start standby: %w", processes.ErrNotOurs)
	}
	dir, err := newDir("standby")
	if err != nil {
		return nil, err
	}
	p := &Postgres{bin: primary.bin, dir: dir}
	if _, err := primary.Stop("fast"); err != nil {
		return nil, err
	}
	if err := p.copyOf(ctx, primary); err != nil {
		return nil, err
	}
	if err := errors.Join(primary.Start(ctx), p.Start(ctx)); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// copyOf makes the data of a standby from that of a server which is stopped.
func (p *Postgres) copyOf(ctx context.Context, primary *Postgres) error {
	if err := copyDir(ctx, primary.data(), p.data()); err != nil {
		return err
	}
	port, err := processes.UnusedPort()
	if err != nil {
		return err
	}
	p.Url = serverURL(port)
	conf, err := os.OpenFile(filepath.Join(p.data(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("write postgresql.conf: %w", err)
	}
	_, err = fmt.Fprintf(conf, "port = %d\nprimary_conninfo = 'host=%s port=%s user=postgres sslmode=disable'\n",
		port, primary.Url.Hostname(), primary.Url.Port())
	if err := errors.Join(err, conf.Close()); err != nil {
		return fmt.Errorf("write postgresql.conf: %w", err)
	}
	if err := os.WriteFile(filepath.Join(p.data(), "standby.signal"), nil, 0o644); err != nil {
		return fmt.Errorf("write standby.signal: %w", err)
	}
	return nil
}
