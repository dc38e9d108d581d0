// PgBouncer in front of a server.

package pgserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
)

// PgBouncer is a real connection pooler in front of a server.
type PgBouncer struct {
	url    *url.URL
	dir    string
	server *processes.Process
}

const pgbouncerMissing = "PgBouncer is not installed; install it with: make deps (as root: apt-get install -y --no-install-recommends pgbouncer)"

// StartPgBouncer starts one in front of the server on a free port of 127.0.0.1, with more lines of
// the section pgbouncer. It lets the user postgres in, without a password, to all databases. It
// returns when it listens.
func StartPgBouncer(ctx context.Context, p *Postgres, settings ...string) (*PgBouncer, error) {
	binary, err := exec.LookPath("pgbouncer")
	if err != nil {
		binary = "/usr/sbin/pgbouncer" // not on everybody's PATH
		if _, err := os.Stat(binary); err != nil {
			return nil, errors.New(pgbouncerMissing)
		}
	}
	id, err := postgresUser() // it refuses root, too
	if err != nil {
		return nil, err
	}
	dir, err := newDir("pgbouncer")
	if err != nil {
		return nil, err
	}
	port, err := processes.UnusedPort()
	if err != nil {
		return nil, err
	}
	lines := append([]string{
		"[databases]", fmt.Sprintf("* = host=%s port=%s", p.Url.Hostname(), p.Url.Port()),
		"[pgbouncer]", "listen_addr = 127.0.0.1", fmt.Sprintf("listen_port = %d", port), "unix_socket_dir =",
		"auth_type = trust", "auth_file = " + filepath.Join(dir, "users"),
	}, settings...)
	for name, text := range map[string]string{"ini": strings.Join(lines, "\n") + "\n", "users": `"postgres" ""` + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return nil, fmt.Errorf("write configuration of PgBouncer: %w", err)
		}
	}
	b := &PgBouncer{dir: dir, url: serverURL(port)}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), binary, filepath.Join(dir, "ini"))
	cmd.Dir, cmd.Env = dir, []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: id}
	if b.server, err = processes.Start("PgBouncer", cmd, filepath.Join(dir, "log")); err != nil {
		return nil, err
	}
	err = b.server.Ready(ctx, func(ctx context.Context) bool {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", b.url.Host)
		if err != nil {
			return false
		}
		conn.Close()
		return true
	})
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// URL is the address of a database through it.
func (b *PgBouncer) URL(db string) string {
	u := *b.url
	u.Path = "/" + db
	return u.String()
}

// Close ends it.
func (b *PgBouncer) Close() error {
	if b.server.Running() {
		if err := b.server.Kill(); err != nil {
			return err
		}
	}
	return processes.RemoveDir(b.dir)
}
