// Statements whose locks keep writers waiting for moments.

package setup

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// patience says how long a lock is waited for.
type patience struct {
	each  time.Duration // at a time; whoever comes behind, waits as long
	pause time.Duration // then they go first
	all   time.Duration // in all
}

var forLocks = patience{each: 200 * time.Millisecond, pause: 800 * time.Millisecond, all: time.Minute}

// change runs statements in one transaction, again and again while somebody else has the table.
func (a *adding) change(ctx context.Context, statements ...string) error {
	a.log.Info("running", zap.Strings("sql", statements))
	for began, told := time.Now(), false; ; {
		err := a.try(ctx, statements)
		if source.SQLState(err) != "55P03" {
			return err
		}
		waited := time.Since(began)
		if waited >= a.locks.all {
			return &event.Stop{
				Code: event.ExitFailure, Reason: "locked",
				What: fmt.Sprintf("table %s could not be locked within %s, because of %s", a.table, a.locks.all, a.holders(ctx)),
				Fix:  "wait for its end, or end it with SELECT pg_terminate_backend(<process>), and run this again",
			}
		}
		if waited >= time.Second && !told {
			told = true
			a.log.Warn("waiting for a lock", zap.String("table", a.table.String()), zap.String("held_by", a.holders(ctx)))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(a.locks.pause):
		}
	}
}

func (a *adding) try(ctx context.Context, statements []string) error {
	return pgx.BeginFunc(ctx, a.pool, func(tx pgx.Tx) error {
		timeout := fmt.Sprintf("SET LOCAL lock_timeout = %d", a.locks.each.Milliseconds())
		for _, sql := range append([]string{timeout}, statements...) {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return fmt.Errorf("%s: %w", sql, err)
			}
		}
		return nil
	})
}

// holders names who has the table, or a partition or an index of it: at most three, the oldest
// first.
func (a *adding) holders(ctx context.Context) string {
	var list string
	err := a.pool.QueryRow(ctx, treeSQL+`
		SELECT coalesce(string_agg(text, '; '), '')
		FROM (SELECT DISTINCT coalesce(xact_start, prepared) AS since,
				CASE WHEN gid IS NOT NULL THEN format('prepared transaction %L of role %I', gid, owner)
					ELSE format('process %s%s%s', l.pid, ' of role ' || usename, ' (' || nullif(application_name, '') || ')') END
				|| coalesce(format(', since %s', coalesce(xact_start, prepared)::timestamptz(0)), '') AS text
			FROM pg_locks l
				LEFT JOIN pg_stat_activity a ON a.pid = l.pid
				LEFT JOIN pg_prepared_xacts p ON l.virtualtransaction = '-1/' || p.transaction
			WHERE l.granted AND l.pid IS DISTINCT FROM pg_backend_pid()
				AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
				AND (relation IN (SELECT oid FROM tree) OR relation IN (SELECT indexrelid FROM pg_index WHERE indrelid IN (SELECT oid FROM tree)))
			ORDER BY since LIMIT 3) holders`, a.column.Schema, a.column.Table).Scan(&list)
	if err != nil || list == "" {
		return "another session"
	}
	return list
}

// concurrently runs a statement that keeps no writer waiting. It waits for old transactions itself.
func (a *adding) concurrently(ctx context.Context, sql string) error {
	a.log.Info("running", zap.String("sql", sql))
	conn, err := a.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	for _, s := range []string{"SET statement_timeout = 0", "SET lock_timeout = 0", sql} {
		if _, err := conn.Exec(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	_, err = conn.Exec(ctx, "RESET statement_timeout; RESET lock_timeout")
	return err
}
