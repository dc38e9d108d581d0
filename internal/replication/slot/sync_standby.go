// The refusal to be a synchronous standby (I10). A walsender with a name in
// synchronous_standby_names is a candidate, a logical one too: commits of the whole cluster would
// wait for our reports, which wait for the broker.

package slot

import (
	"context"
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/lazy"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

var quorumSyntax = lazy.Regexp(`(?is)^\s*(?:(?:first|any)\s+)?\d+\s*\((.*)\)\s*$`)

// namesStandby reports whether a value of synchronous_standby_names names the application, by
// itself or by `*`. Names compare without case, as the server's own comparison does.
func namesStandby(setting, application string) bool {
	if m := quorumSyntax().FindStringSubmatch(setting); m != nil {
		setting = m[1]
	}
	for name := range strings.SplitSeq(setting, ",") {
		name = strings.TrimSpace(name)
		if len(name) > 1 && name[0] == '"' && name[len(name)-1] == '"' {
			name = strings.ReplaceAll(name[1:len(name)-1], `""`, `"`)
		}
		if name == "*" || strings.EqualFold(name, application) { // quoted or not
			return true
		}
	}
	return false
}

// RefuseSyncStandby returns a Stop with reason sync_standby if synchronous_standby_names names this
// relay.
func RefuseSyncStandby(ctx context.Context, q source.Querier, c *source.Config) error {
	var setting string
	if err := q.QueryRow(ctx, `SELECT current_setting('synchronous_standby_names')`).Scan(&setting); err != nil {
		return fmt.Errorf("read synchronous_standby_names: %w", err)
	}
	if namesStandby(setting, c.ApplicationName()) {
		return syncStandbyStop(c, fmt.Sprintf("synchronous_standby_names = %s names this relay (application_name %s)",
			source.QuoteText(setting), c.ApplicationName()))
	}
	return nil
}

func syncStandbyStop(c *source.Config, what string) *event.Stop {
	return &event.Stop{
		Code: event.ExitFailure, Reason: "sync_standby",
		What: what + ": every commit of the cluster would wait for the broker",
		Fix:  "list the real standbys by name in synchronous_standby_names, without * and " + c.ApplicationName(),
	}
}

// CheckSyncState checks the server's own view of our walsender, independent of how we parsed the
// setting: "" (this role may not see it) and async are harmless.
func CheckSyncState(c *source.Config, view *View) error {
	switch view.HolderState {
	case "", "async":
		return nil
	}
	return syncStandbyStop(c, fmt.Sprintf("the server counts this relay as a %s standby", view.HolderState))
}
