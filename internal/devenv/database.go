package devenv

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// CreateDatabase creates an empty database.
func (p *Postgres) CreateDatabase(ctx context.Context, name string) error {
	return p.exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize())
}

// DropDatabase drops a database with all that holds it: its sessions are terminated, its slots dropped.
func (p *Postgres) DropDatabase(ctx context.Context, name string) error {
	if err := p.exec(ctx, "ALTER DATABASE "+pgx.Identifier{name}.Sanitize()+" ALLOW_CONNECTIONS false"); err != nil {
		return err
	}
	// A slot can be dropped only once its walsender, which was just asked to end, is gone.
	err := poll(ctx, 20*time.Millisecond, func() (bool, error) {
		if err := p.exec(ctx, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name); err != nil {
			return false, err
		}
		if err := p.exec(ctx, "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = $1 AND NOT active", name); err != nil {
			return false, nil // taken again between the two conditions: the next round
		}
		var left int
		err := p.query(ctx, &left, "SELECT (SELECT count(*) FROM pg_replication_slots WHERE database = $1) + (SELECT count(*) FROM pg_stat_activity WHERE datname = $1)", name)
		return left == 0, err
	})
	if err != nil {
		return fmt.Errorf("end sessions and slots of database %s: %w", name, err)
	}
	return p.exec(ctx, "DROP DATABASE "+pgx.Identifier{name}.Sanitize())
}

// Database makes a database for one test and returns its address; it is dropped when the test ends.
func (p *Postgres) Database(t testing.TB) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	name := "t" + strings.ToLower(rand.Text()[:12])
	if err := p.CreateDatabase(ctx, name); err != nil {
		t.Fatalf("make database: %v", err)
	}
	t.Cleanup(func() {
		if p.server != nil && !p.server.running() {
			return // it goes with the server's directory
		}
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		if err := p.DropDatabase(ctx, name); err != nil {
			t.Errorf("drop database: %v", err)
		}
	})
	return p.URL(name)
}

func (p *Postgres) exec(ctx context.Context, sql string, args ...any) error {
	return onConn(ctx, p.URL("postgres"), func(conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, sql, args...); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
		return nil
	})
}

func (p *Postgres) query(ctx context.Context, to any, sql string, args ...any) error {
	return onConn(ctx, p.URL("postgres"), func(conn *pgx.Conn) error {
		if err := conn.QueryRow(ctx, sql, args...).Scan(to); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
		return nil
	})
}

// onConn runs do on a connection of its own.
func onConn(ctx context.Context, dbURL string, do func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, dbURL)
	if err != nil {
		return fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return do(conn)
}
