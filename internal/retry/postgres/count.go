// Counting rows.

package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
)

// statsSQL takes the first row by position as the oldest one. Commit times have no index, and their
// order differs from that of positions by milliseconds at most.
var statsSQL = dlq.ByState + ` SELECT
	(SELECT count(*) FROM (SELECT FROM cdc_relay.retry WHERE slot = $1::text AND system_id = $2 LIMIT $3) r),
	(SELECT extract(epoch FROM clock_timestamp() - commit_time)::float8 FROM cdc_relay.retry WHERE slot = $1 AND system_id = $2
		ORDER BY incarnation, commit_lsn, idx LIMIT 1),
	(SELECT count(*) FROM (SELECT FROM cdc_relay.dead_letter WHERE slot = $1 AND system_id = $2 AND state = 'open' LIMIT $3) d),
	(SELECT max(extract(epoch FROM clock_timestamp() - died_at)::float8) FROM g CROSS JOIN LATERAL (SELECT t.died_at FROM cdc_relay.dead_letter t
		WHERE t.slot = $1 AND t.system_id = $2 AND t.state = g.state AND t.class = g.class AND t.reason = g.reason ORDER BY t.died_at, t.n LIMIT 1) d
		WHERE g.state = 'open'),
	pg_total_relation_size('cdc_relay.retry') + pg_total_relation_size('cdc_relay.dead_letter')`

// Count counts what the tables hold of a slot; a result of limit means limit or more. A database
// without these tables holds no rows.
func Count(ctx context.Context, db dlq.Querier, slot, systemID string, limit int) (store.Stats, error) {
	ctx, cancel := context.WithTimeout(ctx, standard.patience(0))
	defer cancel()
	var t store.Stats
	var deferred, dead *float64
	// It is planned again each time, as all statements on these tables are (see Store.run).
	err := db.QueryRow(ctx, statsSQL, pgx.QueryExecModeCacheDescribe, slot, systemID, limit).Scan(&t.Deferred, &deferred, &t.Dead, &dead, &t.Bytes)
	t.At = time.Now()
	var no *pgconn.PgError
	switch {
	case errors.As(err, &no) && no.Code == "42P01":
		return store.Stats{At: t.At}, nil
	case err != nil:
		return store.Stats{}, fmt.Errorf("count deferred events and dead letters: %w", err)
	}
	t.OldestDeferred, t.OldestDead = ago(t.At, deferred), ago(t.At, dead)
	return t, nil
}

// ago converts an age by the database's clock to a time by this process's clock.
func ago(now time.Time, seconds *float64) time.Time {
	if seconds == nil {
		return time.Time{}
	}
	return now.Add(-time.Duration(*seconds * float64(time.Second)))
}
