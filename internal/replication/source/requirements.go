// What the relay requires of the server: its version and wal_level, and a limit on WAL where the
// disk guard is a share of it.

package source

import (
	"context"
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/guard"
)

// logical messages in the stream and pg_stat_replication_slots came with 14
const oldestServer = 140000

// CheckServer checks the server version and wal_level.
func CheckServer(ctx context.Context, q Querier) error {
	var version int
	var walLevel, versionText string
	err := q.QueryRow(ctx, `SELECT current_setting('server_version_num')::int, current_setting('server_version'), current_setting('wal_level')`).
		Scan(&version, &versionText, &walLevel)
	if err != nil {
		return fmt.Errorf("read server settings: %w", err)
	}
	if version < oldestServer {
		return &event.Stop{
			Code: event.ExitFailure, Reason: "server_version",
			What: "PostgreSQL " + versionText + " is too old", Fix: "14 or newer is needed",
		}
	}
	if walLevel != "logical" {
		return &event.Stop{
			Code: event.ExitFailure, Reason: "wal_level",
			What: fmt.Sprintf("wal_level is %s, not logical", walLevel),
			Fix:  "ALTER SYSTEM SET wal_level = logical, then restart the server",
		}
	}
	return nil
}

// KeepSize is max_slot_wal_keep_size in bytes; below 0: it is unlimited. The setting is in MB.
const KeepSize = `(SELECT CASE WHEN setting::bigint < 0 THEN -1 ELSE setting::bigint * 1048576 END FROM pg_settings WHERE name = 'max_slot_wal_keep_size')`

// CheckGuard wants a max_slot_wal_keep_size where the disk guard begins at a share of it.
func CheckGuard(ctx context.Context, q Querier, limits guard.Limits) error {
	if limits.Percent == 0 {
		return nil
	}
	var keep int64
	if err := q.QueryRow(ctx, `SELECT `+KeepSize).Scan(&keep); err != nil {
		return fmt.Errorf("read max_slot_wal_keep_size: %w", err)
	}
	_, err := limits.At(keep)
	return err
}
