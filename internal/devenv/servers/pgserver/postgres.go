// Package pgserver runs real PostgreSQL servers.
package pgserver

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
	"github.com/cdc-relay/cdc-relay/internal/devenv/testcerts"
)

// Options says which PostgreSQL to start, and how.
type Options struct {
	// directory of initdb and postgres; "" = $CDC_RELAY_TEST_POSTGRES_BIN, else the system's newest
	BinDir string
	// more lines of postgresql.conf, the value as it stands in SQL without quotes
	Settings map[string]string
	// fsync=off: only where a crash of the machine is not the subject
	NoFsync bool
	// TLS is on, with their Server, and client certificates of their CA are checked; nil: it is off
	Certs *testcerts.Certificates
	// lines of pg_hba.conf; before them the superuser is let in without TLS. nil: everybody is let
	// in
	HBA []string
}

// Postgres is a private server: superuser "postgres", no password, logical replication on. The zero
// value is not usable. Its methods may be called from several goroutines, except Stop, Start, Kill
// and Close.
type Postgres struct {
	Url    *url.URL // the database in it does not matter
	bin    string
	dir    string
	server *processes.Process // nil: the server is not ours
}

// Start makes a fresh database cluster in a temporary directory and starts its server on a free
// port of 127.0.0.1. It returns when the server answers. As root the server runs as the user
// postgres, because it refuses root.
func Start(ctx context.Context, opt Options) (*Postgres, error) {
	bin, err := BinDir(ctx, opt.BinDir)
	if err != nil {
		return nil, err
	}
	dir, err := newDir("postgres")
	if err != nil {
		return nil, err
	}
	p := &Postgres{bin: bin, dir: dir}
	if err := p.initdb(ctx); err != nil {
		return nil, err
	}
	if err := p.configure(opt); err != nil {
		return nil, err
	}
	if err := p.Start(ctx); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

func (p *Postgres) initdb(ctx context.Context, more ...string) error {
	args := append([]string{"-D", p.data(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"}, more...)
	cmd, err := p.command(ctx, "initdb", args...)
	if err != nil {
		return err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("run initdb: %w: %s", err, out)
	}
	return nil
}

// command is a program of the server's package with its environment, as the user that may run it.
func (p *Postgres) command(ctx context.Context, name string, args ...string) (*exec.Cmd, error) {
	id, err := postgresUser()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(p.bin, name), args...)
	cmd.Dir = p.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: id}
	return cmd, nil
}

// configure writes our lines of postgresql.conf, with a new free port.
func (p *Postgres) configure(opt Options) error {
	port, err := processes.UnusedPort()
	if err != nil {
		return err
	}
	p.Url = serverURL(port)
	lines := []string{
		"listen_addresses = '127.0.0.1'",
		fmt.Sprintf("port = %d", port),
		"unix_socket_directories = ''", // a path of more than 107 bytes would be refused
		"max_connections = 200",
		"wal_level = logical",
		"max_replication_slots = 20",
		"max_wal_senders = 20",
		"log_line_prefix = '%m [%p] %a '",
		"timezone = 'UTC'",
	}
	if opt.NoFsync {
		lines = append(lines, "fsync = off", "full_page_writes = off")
	}
	for name, value := range opt.Settings { // later lines win
		lines = append(lines, fmt.Sprintf("%s = '%s'", name, strings.ReplaceAll(value, "'", "''")))
	}
	if opt.Certs != nil {
		secure, err := p.secure(opt.Certs)
		if err != nil {
			return err
		}
		lines = append(lines, secure...)
	}
	if opt.HBA != nil {
		if err := p.writeHBA(opt.HBA); err != nil {
			return err
		}
	}
	path := filepath.Join(p.data(), "postgresql.conf")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		return fmt.Errorf("write postgresql.conf: %w", err)
	}
	return nil
}

// Start starts the server again after Stop or Kill, on the same port and data, and returns when it
// answers.
func (p *Postgres) Start(ctx context.Context) error {
	if p.server.Running() {
		return fmt.Errorf("start PostgreSQL: it runs already")
	}
	cmd, err := p.command(context.WithoutCancel(ctx), "postgres", "-D", p.data())
	if err != nil {
		return err
	}
	if p.server, err = processes.Start("PostgreSQL", cmd, p.logPath()); err != nil {
		return err
	}
	return p.server.Ready(ctx, func(ctx context.Context) bool {
		conn, err := pgx.Connect(ctx, p.URL("postgres"))
		if err != nil {
			return false
		}
		conn.Close(ctx)
		return true
	})
}

// URL is the address of a database for pgx and for source.url.
func (p *Postgres) URL(db string) string {
	u := *p.Url
	u.Path = "/" + db
	return u.String()
}

// Addr is host:port.
func (p *Postgres) Addr() string { return p.Url.Host }

func (p *Postgres) logPath() string { return filepath.Join(p.dir, "log") }

// Log is everything the server has written.
func (p *Postgres) Log() string {
	if p.dir == "" {
		return ""
	}
	return processes.ReadLog(p.logPath())
}
