// Where PostgreSQL's programs are, whom they run as, and where a server's data is.

package pgserver

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
)

const postgresMissing = "PostgreSQL (initdb, postgres) is not installed; install it with: make deps (as root: apt-get install -y --no-install-recommends postgresql)"

// BinDir is the absolute directory of PostgreSQL's programs: dir, else
// $CDC_RELAY_TEST_POSTGRES_BIN, else Debian's newest, else what pg_config says. It fails when
// initdb or postgres is not in it.
func BinDir(ctx context.Context, dir string) (string, error) {
	if dir == "" {
		dir = os.Getenv("CDC_RELAY_TEST_POSTGRES_BIN")
	}
	if dir == "" {
		dir = newestPostgres()
	}
	if dir == "" {
		if out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
			dir = strings.TrimSpace(string(out))
		}
	}
	for _, name := range []string{"initdb", "postgres"} {
		if _, err := os.Stat(filepath.Join(dir, name)); dir == "" || err != nil {
			return "", fmt.Errorf("find %s in %q: %s", name, dir, postgresMissing)
		}
	}
	return filepath.Abs(dir)
}

// newestPostgres is where Debian's packages put the binaries; "" when there are none.
func newestPostgres() string {
	const packages = "/usr/lib/postgresql"
	entries, err := os.ReadDir(packages)
	if err != nil {
		return ""
	}
	newest, dir := 0, ""
	for _, entry := range entries {
		major, err := strconv.Atoi(entry.Name())
		bin := filepath.Join(packages, entry.Name(), "bin")
		if _, missing := os.Stat(filepath.Join(bin, "postgres")); err == nil && missing == nil && major > newest {
			newest, dir = major, bin
		}
	}
	return dir
}

// VersionDir is the directory of the programs of a major version that scripts/postgres.sh has
// fetched.
func VersionDir(major int) (string, error) {
	cache, err := processes.CacheDir()
	if err != nil {
		return "", fmt.Errorf("find PostgreSQL %d: %w", major, err)
	}
	dirs, err := filepath.Glob(filepath.Join(cache, fmt.Sprintf("postgres-%d.*", major), "native", "bin"))
	if err != nil || len(dirs) == 0 {
		return "", fmt.Errorf("find PostgreSQL %d in %s: fetch it with scripts/postgres.sh %[1]d", major, cache)
	}
	return slices.Max(dirs), nil
}

// FailoverBinDir is BinDir("") if that version has failover slots, else the VersionDir of 17.
func FailoverBinDir(ctx context.Context) (string, error) {
	dir, err := BinDir(ctx, "")
	if err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return "", fmt.Errorf("run postgres --version: %w", err)
	}
	var major int
	if _, err := fmt.Sscanf(string(out), "postgres (PostgreSQL) %d", &major); err == nil && major >= 17 {
		return dir, nil
	}
	return VersionDir(17)
}

// postgresUser is whom the server runs as; nil means as we are.
func postgresUser() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err1 == nil && err2 == nil {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
		}
	}
	return nil, fmt.Errorf("look up user postgres or nobody: neither exists, and PostgreSQL refuses to run as root")
}

func (p *Postgres) data() string { return filepath.Join(p.dir, "data") }

// newDir makes a directory that belongs to the user whom the server runs as.
func newDir(name string) (string, error) {
	id, err := postgresUser()
	if err != nil {
		return "", err
	}
	dir, err := processes.NewDir(name)
	if err == nil && id != nil {
		err = os.Chown(dir, int(id.Uid), int(id.Gid))
	}
	if err != nil {
		return "", fmt.Errorf("make directory of user postgres: %w", err)
	}
	return dir, nil
}

// serverURL is the address of a server at a port of 127.0.0.1.
func serverURL(port int) *url.URL {
	return &url.URL{Scheme: "postgres", User: url.User("postgres"), Host: fmt.Sprintf("127.0.0.1:%d", port), RawQuery: "sslmode=disable"}
}
