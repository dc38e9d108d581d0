// Tests of the server itself.

package check

import (
	"context"
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

func (k *checker) replication(ctx context.Context) {
	conn, err := source.ConnectStream(ctx, k.c)
	if err != nil {
		k.add("replication connection", "", source.OrFatal(k.c, err))
		return
	}
	defer source.CloseStream(conn)
	_, err = slot.Identify(ctx, conn)
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
		k.warn(name, fmt.Sprintf("this role may have %d, the relay uses up to %d", role, need), fmt.Sprintf("ALTER ROLE %s CONNECTION LIMIT -1", k.roleName()))
	case database >= 0 && database < need:
		k.warn(name, fmt.Sprintf("this database may have %d, the relay uses up to %d", database, need), fmt.Sprintf("ALTER DATABASE %s CONNECTION LIMIT -1", source.QuoteName(k.database)))
	default:
		k.add(name, fmt.Sprintf("the relay uses up to %d; max_connections is %d", need, all), nil)
	}
}
