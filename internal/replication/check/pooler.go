// What tells that a connection pooler is between the relay and PostgreSQL.

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

// keptBack are the settings that the relay has sent with the connection, and that are not in force.
func keptBack(ctx context.Context, q source.Querier, c *source.Config) ([]string, error) {
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

// direct finds a connection pooler in between: it may keep back the settings that the relay sends,
// and the number of the backend that it tells its clients is its own, and not that of the one that
// answers.
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
		lost, err = keptBack(ctx, conn, k.c)
	}
	if err != nil {
		k.add(name, "", err)
		return
	}
	k.between(conn.Conn().PgConn().PID() == pid, lost)
}

// between judges what direct has found. The proxy of a hosting service hands on everything but the
// number, and harms nothing.
func (k *checker) between(samePID bool, lost []string) {
	const name = "connection pooler"
	switch {
	case len(lost) > 0:
		k.fail(name, "something between the relay and PostgreSQL, as PgBouncer is, keeps back settings of the relay's sessions: "+strings.Join(lost, ", "), source.FixPooler)
	case !samePID:
		k.warn(name, "something between the relay and PostgreSQL answers for it. A proxy that gives each connection a session of its own does no harm; a pooler that hands sessions out does",
			"if it is a pooler, "+source.FixPooler)
	default:
		k.add(name, "none in between", nil)
	}
}
