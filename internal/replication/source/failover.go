// Failover slots: when the relay makes one, and what the server must be for it.

package source

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// The values of Config.FailoverSlot; "" counts as FailoverAuto.
const (
	FailoverAuto = "auto"
	FailoverOn   = "on" // also for a slot that exists
	FailoverOff  = "off"
)

// failover slots came with 17
const oldestFailover = 170000

// MakesFailoverSlot reports whether a slot that is made over conn is a failover slot. The server
// says its version when it connects; one that cannot be read makes none, unless it must.
func (c *Config) MakesFailoverSlot(conn *pgconn.PgConn) bool {
	switch c.FailoverSlot {
	case FailoverOn:
		return true
	case FailoverOff:
		return false
	}
	text := conn.ParameterStatus("server_version")
	end := strings.IndexFunc(text, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(text)
	}
	major, err := strconv.Atoi(text[:end])
	return err == nil && major*10_000 >= oldestFailover
}

// CheckFailoverSlot returns a Stop with exit code event.ExitUsage if a failover slot is asked for
// on a server that has none.
func CheckFailoverSlot(ctx context.Context, q Querier, c *Config) error {
	if c.FailoverSlot != FailoverOn {
		return nil
	}
	var version int
	var text string
	err := q.QueryRow(ctx, `SELECT current_setting('server_version_num')::int, current_setting('server_version')`).Scan(&version, &text)
	if err != nil {
		return fmt.Errorf("read server_version: %w", err)
	}
	if version < oldestFailover {
		return &event.Stop{
			Code: event.ExitUsage, Reason: "config",
			What: fmt.Sprintf("source.failover_slot: on needs PostgreSQL 17 or newer, and this server is %s", text),
			Fix:  "set source.failover_slot to auto, or upgrade PostgreSQL",
		}
	}
	return nil
}
