// Detects a connection pooler between the relay and PostgreSQL.

package check

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/jackc/pgx/v5"
)

// droppedSettings returns the settings that the relay sent with the connection and that are not in
// effect.
func droppedSettings(ctx context.Context, q source.Querier, c *source.Config) ([]string, error) {
	sent := source.Settings(c.ApplicationName())
	rows, err := q.Query(ctx, `SELECT n, coalesce(current_setting(n, true), '') FROM unnest($1::text[]) n`, slices.Sorted(maps.Keys(sent)))
	if err != nil {
		return nil, err
	}
	var name, value string
	var lost []string
	_, err = pgx.ForEachRow(rows, []any{&name, &value}, func() error {
		if value != sent[name] {
			lost = append(lost, fmt.Sprintf("%s is %q", name, value))
		}
		return nil
	})
	return lost, err
}

// direct detects a connection pooler: it may drop the settings that the relay sends, and it gives
// its clients a backend pid of its own instead of the server's.
func (k *checker) direct(ctx context.Context) {
	const name = "connection pooler"
	conn, err := k.pool.Acquire(ctx)
	if err != nil {
		k.add(name, "", err)
		return
	}
	defer conn.Release()
	var pid uint32
	err = conn.QueryRow(ctx, `SELECT pg_backend_pid()`).Scan(&pid)
	var lost []string
	if err == nil {
		lost, err = droppedSettings(ctx, conn, k.c)
	}
	if err != nil {
		k.add(name, "", err)
		return
	}
	k.between(conn.Conn().PgConn().PID() == pid, lost)
}

// between judges what direct has found. The proxy of a hosting service passes on everything but the
// pid and is harmless.
func (k *checker) between(samePID bool, lost []string) {
	const name = "connection pooler"
	switch {
	case len(lost) > 0:
		k.fail(name, "something between the relay and PostgreSQL, such as PgBouncer, drops settings of the relay's sessions: "+strings.Join(lost, ", "), source.FixPooler)
	case !samePID:
		k.warn(name, "something between the relay and PostgreSQL answers for it. A proxy that gives each connection its own session is harmless; a pooler that shares sessions is not",
			"if it is a pooler, "+source.FixPooler)
	default:
		k.add(name, "none in between", nil)
	}
}
