// Databases of a test's own, and statements in them.

package pgserver

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
)

// CreateDatabase creates an empty database.
func (p *Postgres) CreateDatabase(ctx context.Context, name string) error {
	return p.createDatabase(ctx, name, "")
}

func (p *Postgres) createDatabase(ctx context.Context, name, options string) error {
	return OnConn(ctx, p.URL("postgres"), func(conn *pgx.Conn) error {
		sql := "CREATE DATABASE " + pgx.Identifier{name}.Sanitize() + options
		// As before PostgreSQL 15, its files are copied: written to WAL, they would be seven
		// megabytes for each walsender to read.
		if version := conn.PgConn().ParameterStatus("server_version"); !strings.HasPrefix(version, "14.") {
			sql += " STRATEGY file_copy"
		}
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
		return nil
	})
}

// DropDatabase drops a database with all that holds it: its sessions are terminated, its slots
// dropped.
func (p *Postgres) DropDatabase(ctx context.Context, name string) error {
	return OnConn(ctx, p.URL("postgres"), func(conn *pgx.Conn) error {
		quoted := pgx.Identifier{name}.Sanitize()
		if _, err := conn.Exec(ctx, "ALTER DATABASE "+quoted+" ALLOW_CONNECTIONS false"); err != nil {
			return fmt.Errorf("close database %s: %w", name, err)
		}
		// A slot can be dropped only once its walsender, which was just asked to end, is gone.
		err := processes.Poll(ctx, 20*time.Millisecond, func() (bool, error) {
			if _, err := conn.Exec(ctx, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name); err != nil {
				return false, err
			}
			if _, err := conn.Exec(ctx, "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = $1 AND NOT active", name); err != nil {
				return false, nil // taken again between the two conditions: the next round
			}
			var left int
			err := conn.QueryRow(ctx, "SELECT (SELECT count(*) FROM pg_replication_slots WHERE database = $1) + (SELECT count(*) FROM pg_stat_activity WHERE datname = $1)", name).Scan(&left)
			return left == 0, err
		})
		if err != nil {
			return fmt.Errorf("end sessions and slots of database %s: %w", name, err)
		}
		if _, err := conn.Exec(ctx, "DROP DATABASE "+quoted); err != nil {
			return fmt.Errorf("drop database %s: %w", name, err)
		}
		return nil
	})
}

// Database makes a database for one test and returns its address; it is dropped when the test ends.
func (p *Postgres) Database(t testing.TB) string {
	t.Helper()
	return p.database(t, "")
}

// DatabaseOf is Database with another encoding than UTF-8.
func (p *Postgres) DatabaseOf(t testing.TB, encoding string) string {
	t.Helper()
	return p.database(t, " TEMPLATE template0 LOCALE 'C' ENCODING '"+encoding+"'")
}

func (p *Postgres) database(t testing.TB, options string) string {
	t.Helper()
	ctx := context.Background()
	name := "t" + strings.ToLower(rand.Text()[:12])
	if err := p.createDatabase(ctx, name, options); err != nil {
		t.Fatalf("make database: %v", err)
	}
	t.Cleanup(func() {
		if p.server != nil && !p.server.Running() {
			return // it goes with the server's directory
		}
		ctx := context.Background()
		if err := p.DropDatabase(ctx, name); err != nil {
			t.Errorf("drop database: %v", err)
		}
	})
	return p.URL(name)
}

func (p *Postgres) exec(ctx context.Context, sql string, args ...any) error {
	return OnConn(ctx, p.URL("postgres"), func(conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, sql, args...); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
		return nil
	})
}

// Query runs SQL in the database postgres, on a connection of its own, and scans the first row's
// only column into to. Without a row it returns pgx.ErrNoRows, wrapped.
func (p *Postgres) Query(ctx context.Context, to any, sql string, args ...any) error {
	return OnConn(ctx, p.URL("postgres"), func(conn *pgx.Conn) error {
		if err := conn.QueryRow(ctx, sql, args...).Scan(to); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
		return nil
	})
}

// OnConn runs do on a connection of its own.
func OnConn(ctx context.Context, dbURL string, do func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, dbURL)
	if err != nil {
		return fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return do(conn)
}

// ResetSettings takes back what ALTER SYSTEM has set, and returns once new sessions have what was
// before.
func (p *Postgres) ResetSettings(ctx context.Context) error {
	if err := p.exec(ctx, "ALTER SYSTEM RESET ALL"); err != nil {
		return err
	}
	if err := p.exec(ctx, "SELECT pg_reload_conf()"); err != nil {
		return err
	}
	return processes.Poll(ctx, 10*time.Millisecond, func() (bool, error) {
		var altered int
		err := p.Query(ctx, &altered, "SELECT count(*) FROM pg_settings WHERE sourcefile LIKE '%postgresql.auto.conf'")
		return altered == 0, err
	})
}
