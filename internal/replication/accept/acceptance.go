// One run of the command: what it was told, what it has found, and the audit of what it did.

package accept

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// acceptance is one Run.
type acceptance struct {
	c      *source.Config
	pool   *pgxpool.Pool
	opt    Options
	found  *slot.Found
	result Result
}

// moved reports whether the record is of another server, or of another timeline of it.
func (a *acceptance) moved() bool { return a.found.Record.OfOther(a.found.Server) }

// onOtherSystem reports whether the server has another system identifier than the one that the slot
// was read from. A promoted standby and a restored backup have the same.
func (a *acceptance) onOtherSystem() bool {
	return a.moved() && a.found.Record.SystemID != a.found.Server.SystemID
}

// audit records who accepted what; who is the session's user.
func (a *acceptance) audit(ctx context.Context, tx pgx.Tx, what string) error {
	how := ""
	for flag, set := range map[string]bool{"new slot": a.opt.NewSlot, "same data": a.opt.SameData, "copy": a.opt.Copy} {
		if set {
			how += " (" + flag + ")"
		}
	}
	switch a.opt.Delivered {
	case DeliveredAll:
		how += fmt.Sprintf(" (all was delivered: recover leaves out %d rows)", a.result.Recorded)
	case DeliveredUnknown:
		how += " (what was delivered is unknown)"
	}
	_, err := slot.Audit(ctx, tx, a.c.Slot, a.found.Server.SystemID, "accept", a.opt.Reason, auditResult(a.opt.ID, what+how))
	return err
}

// before is when and by whom the ID was accepted, with this result; "": it was not.
func (a *acceptance) before(ctx context.Context, what string) (string, error) {
	var at, who string
	err := a.pool.QueryRow(ctx, `SELECT to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), who FROM cdc_relay.audit
		WHERE slot = $1 AND action = 'accept' AND starts_with(result, $2) ORDER BY seq DESC LIMIT 1`, a.c.Slot, auditResult(a.opt.ID, what)).Scan(&at, &who)
	switch {
	case source.IsNoRows(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("read cdc_relay.audit: %w", err)
	}
	return "at " + at + " by " + who, nil
}

// auditResult is the audit's result for an accepted finding.
func auditResult(id, what string) string { return "finding " + id + ": " + what }
