// Tests of the server itself, and of what is between it and the relay.

package check

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/jackc/pgx/v5"
)

func (k *checker) replication(ctx context.Context) {
	conn, err := source.ConnectStream(ctx, k.c)
	if err != nil {
		k.add("replication connection", "", source.OrFatal(k.c, err))
		return
	}
	defer source.CloseStream(conn)
	k.id, err = slot.Identify(ctx, conn)
	k.add("replication connection", "this role may replicate", source.OrFatal(k.c, err))
}

// room checks for a free slot and a free walsender. Ours are not counted: they may exist already.
func (k *checker) room(ctx context.Context) {
	var slots, maxSlots, senders, maxSenders int
	err := k.pool.QueryRow(ctx, `SELECT (SELECT count(*) FROM pg_replication_slots WHERE slot_name <> $1), current_setting('max_replication_slots')::int,
		(SELECT count(*) FROM pg_stat_replication WHERE application_name IS DISTINCT FROM $2), current_setting('max_wal_senders')::int`,
		k.c.Slot, k.c.ApplicationName()).Scan(&slots, &maxSlots, &senders, &maxSenders)
	if err != nil {
		k.cannotAsk("replication slots", err)
		return
	}
	if detail := fmt.Sprintf("%d of %d used by others", slots, maxSlots); slots < maxSlots {
		k.add("replication slots", detail, nil)
	} else {
		k.fail("replication slots", detail+": none is left for the relay",
			fmt.Sprintf("ALTER SYSTEM SET max_replication_slots = %d, then restart the server; or drop an unused one (SELECT slot_name, active FROM pg_replication_slots)", maxSlots+4))
	}
	detail := fmt.Sprintf("%d of %d used by others", senders, maxSenders)
	if senders+1 >= maxSenders {
		k.warn("wal senders", detail+": the relay needs one, and a second relay another while it starts",
			fmt.Sprintf("ALTER SYSTEM SET max_wal_senders = %d, then restart the server", max(10, maxSenders+4)))
		return
	}
	k.add("wal senders", detail, nil)
}

// connections compares the limits of role and database with what the relay opens.
func (k *checker) connections(ctx context.Context) {
	const name = "connections"
	const need = source.PoolConnections + 1
	var role, database, all int
	err := k.pool.QueryRow(ctx, `SELECT (SELECT rolconnlimit FROM pg_roles WHERE rolname = session_user),
		(SELECT datconnlimit FROM pg_database WHERE datname = current_database()), current_setting('max_connections')::int`).Scan(&role, &database, &all)
	switch {
	case k.cannotAsk(name, err):
	case role >= 0 && role < need:
		k.warn(name, fmt.Sprintf("this role may have %d, the relay uses up to %d", role, need), fmt.Sprintf("ALTER ROLE %s CONNECTION LIMIT -1", source.QuoteName(k.user)))
	case database >= 0 && database < need:
		k.warn(name, fmt.Sprintf("this database may have %d, the relay uses up to %d", database, need), fmt.Sprintf("ALTER DATABASE %s CONNECTION LIMIT -1", source.QuoteName(k.database)))
	default:
		k.add(name, fmt.Sprintf("the relay uses up to %d; max_connections is %d", need, all), nil)
	}
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
