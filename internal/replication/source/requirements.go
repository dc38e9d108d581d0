// What the relay requires of the server: its version and wal_level, and a limit on WAL where the
// disk guard is a share of it.

package source

import (
	"context"
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/event"
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

// Guard is the configuration of the disk guard; without one it is zero.
type Guard struct {
	DeferAt  int64 // bytes of WAL; 0: Percent counts
	Percent  int   // of max_slot_wal_keep_size
	MaxBytes int64 // of the relay's own tables
}

// IsSet reports whether there is a guard.
func (g Guard) IsSet() bool { return g.MaxBytes > 0 }

// KeepSize is max_slot_wal_keep_size in bytes; below 0: it is unlimited. The setting is in MB.
const KeepSize = `(SELECT CASE WHEN setting::bigint < 0 THEN -1 ELSE setting::bigint * 1048576 END FROM pg_settings WHERE name = 'max_slot_wal_keep_size')`

// At is how much WAL the slot may keep until the guard begins, with that max_slot_wal_keep_size. A
// percentage of no limit is an error that a configuration cannot show.
func (g Guard) At(keep int64) (int64, error) {
	switch {
	case g.Percent == 0:
		return g.DeferAt, nil
	case keep < 0:
		return 0, &event.Stop{
			Code: event.ExitUsage, Reason: "config",
			What: fmt.Sprintf("guard.defer_at is %d%% of max_slot_wal_keep_size, which is -1: the server sets no limit", g.Percent),
			Fix:  "set guard.defer_at to a size such as 2GiB, or ALTER SYSTEM SET max_slot_wal_keep_size",
		}
	}
	return keep / 100 * int64(g.Percent), nil
}

// CheckGuard is At for the server's present max_slot_wal_keep_size.
func CheckGuard(ctx context.Context, q Querier, g Guard) error {
	if g.Percent == 0 {
		return nil
	}
	var keep int64
	if err := q.QueryRow(ctx, `SELECT `+KeepSize).Scan(&keep); err != nil {
		return fmt.Errorf("read max_slot_wal_keep_size: %w", err)
	}
	_, err := g.At(keep)
	return err
}
