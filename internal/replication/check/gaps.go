// Accepted gaps of which nobody has sent the rows.

package check

import (
	"context"
	"fmt"
	"time"
)

// gaps names the gaps of the slot that an operator has accepted, and of which it is open whether
// their rows need to be sent.
func (c *checker) gaps(ctx context.Context) {
	const name = "accepted gap"
	rows, err := c.pool.Query(ctx, `SELECT g.id, g.accepted_at, g.reason, count(*) OVER () FROM cdc_relay.gap g JOIN cdc_relay.slots s ON s.slot = g.slot AND s.system_id = g.system_id
		WHERE g.slot = $1 AND g.recovered_at IS NULL ORDER BY g.id LIMIT 3`, c.c.Slot)
	if err != nil {
		c.add(name, "", fmt.Errorf("read cdc_relay.gap: %w", err))
		return
	}
	defer rows.Close()
	for rows.Next() {
		var id, all int64
		var at time.Time
		var reason string
		if err := rows.Scan(&id, &at, &reason, &all); err != nil {
			break
		}
		more := ""
		if all > 1 {
			more = fmt.Sprintf("; %d gaps are open", all)
		}
		c.warn(name, fmt.Sprintf("gap %d, accepted at %s (%s): rows of it may never have been sent%s", id, at.UTC().Format(time.RFC3339), reason, more),
			fmt.Sprintf("once the relay was started after that, `cdc-relay resend --gap %d` sends what is not known to be sent, also while the relay runs; `cdc-relay resend --gap %[1]d --none --reason TEXT` closes it by your word", id))
	}
	if err := rows.Err(); err != nil {
		c.add(name, "", fmt.Errorf("read cdc_relay.gap: %w", err))
	}
}
