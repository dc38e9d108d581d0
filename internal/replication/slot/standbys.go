// The physical standbys of the server that is read. A standby that is promoted must have all that
// this relay has read of a failover slot, so the relay records which standbys do, and shows which
// ones delivery waits for. And no standby may be this relay itself: with it in
// synchronous_standby_names every commit of the cluster would wait for the broker.

package slot

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/lazy"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// Standbys is what the server shows of its standbys.
type Standbys struct {
	Named          []string      // slots that synchronized_standby_slots names, sorted
	Flushed        pglogrepl.LSN // the end of the server's durable WAL
	Slots          []StandbySlot // all physical ones, by name
	anyWithoutSlot bool          // some standby streams without a slot
}

// StandbySlot is the physical slot of a standby.
type StandbySlot struct {
	Name      string
	Active    bool // its standby is connected
	Lost      bool // it was invalidated
	Temporary bool
	at        pglogrepl.LSN // restart_lsn: its standby has flushed the WAL up to here; 0: none
}

// ReadStandbys reads the standbys (PostgreSQL 17+).
func ReadStandbys(ctx context.Context, q source.Querier) (*Standbys, error) {
	var v Standbys
	var named string
	// A role without pg_read_all_stats does not see the state of other roles' walsenders.
	err := source.Ask(ctx, q, "read synchronized_standby_slots", `SELECT coalesce(current_setting('synchronized_standby_slots', true), ''), pg_current_wal_flush_lsn(),
		EXISTS (SELECT FROM pg_stat_replication r WHERE coalesce(r.state, 'streaming') IN ('catchup', 'streaming')
			AND NOT EXISTS (SELECT FROM pg_replication_slots s WHERE s.active_pid = r.pid))`).Scan(&named, &v.Flushed, &v.anyWithoutSlot)
	if err != nil {
		return nil, err
	}
	v.Named = standbyNames(named)
	v.Slots, err = source.List(ctx, q, "read pg_replication_slots", func(row pgx.CollectableRow) (s StandbySlot, err error) {
		return s, row.Scan(&s.Name, &s.Active, &s.Lost, &s.Temporary, &s.at)
	}, `SELECT slot_name, active, invalidation_reason IS NOT NULL, temporary, coalesce(restart_lsn, '0/0'::pg_lsn)
		FROM pg_replication_slots WHERE slot_type = 'physical' ORDER BY 1`)
	return &v, err
}

// standbyNames are the names in a value of synchronized_standby_slots, read as the server reads it:
// a name may be in quotes, and one without quotes is in lower case whatever is written. No name of
// a slot has a comma or a quote.
func standbyNames(setting string) (list []string) {
	for name := range strings.SplitSeq(setting, ",") {
		name = strings.TrimSpace(name)
		if quoted := strings.Trim(name, `"`); quoted != name {
			name = quoted
		} else {
			name = strings.ToLower(name)
		}
		if name != "" {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// flushedBy is the position up to which a standby is known to have all WAL; 0 means that it is not
// known.
func (v *Standbys) flushedBy(name string) pglogrepl.LSN {
	for _, s := range v.Slots {
		if s.Name == name && !s.Lost && !s.Temporary {
			return s.at
		}
	}
	return 0
}

// AllHave reports whether each standby of synchronized_standby_slots has all WAL up to a position.
func (v *Standbys) AllHave(to pglogrepl.LSN) bool {
	return !slices.ContainsFunc(v.Named, func(name string) bool { return v.flushedBy(name) < to })
}

// HavingAll returns the named standbys that have all WAL up to received, and whether there may be
// other standbys. A standby that the record has stays in it while it is named: since then the
// server has sent us nothing that the standby lacks. The caller has read received before v.
func (v *Standbys) HavingAll(rec *Record, received pglogrepl.LSN) (have []string, others bool) {
	have = []string{}
	for _, name := range v.Named {
		if at := v.flushedBy(name); at != 0 && at >= received || slices.Contains(rec.Standbys, name) {
			have = append(have, name)
		}
	}
	others = v.anyWithoutSlot
	for _, s := range v.Slots {
		others = others || !slices.Contains(have, s.Name)
	}
	return have, others
}

// RecordStandbys writes to the record which standbys have all that was read, under the epoch of the
// term, unless rec has it already. CheckUse judges a promoted server by this record.
func (v *Standbys) RecordStandbys(ctx context.Context, q source.Querier, c *source.Config, epoch int64, rec *Record, received pglogrepl.LSN) error {
	have, others := v.HavingAll(rec, received)
	if slices.Equal(have, rec.Standbys) && others == rec.OtherStandbys {
		return nil
	}
	_, err := source.Execute(ctx, q, "write cdc_relay.slots", `UPDATE cdc_relay.slots SET standbys = $2, other_standbys = $3 WHERE slot = $1 AND epoch = $4 AND state = 'ready'`,
		c.Slot, have, others, epoch)
	return err
}

// StandbyWait finds out which standbys delivery waits for, by comparing each check with the one
// before.
type StandbyWait struct {
	received, flushed pglogrepl.LSN // at the last check
}

// StandbysBehind returns the standbys that delivery waits for: those of synchronized_standby_slots
// that have not yet flushed what the server had flushed at the last check. There are none if
// something was received since, or if there was nothing to receive: of a failover slot the server
// sends nothing before these standbys have it. busy means that the reader works on a message, so it
// does not wait for the server.
func (w *StandbyWait) StandbysBehind(v *Standbys, received pglogrepl.LSN, busy bool) (behind []string) {
	stands := !busy && received == w.received && received < w.flushed
	if stands {
		for _, name := range v.Named {
			if v.flushedBy(name) < w.flushed {
				behind = append(behind, name)
			}
		}
		if len(behind) > 0 {
			return behind // and compared with the same position the next time
		}
	}
	w.received, w.flushed = received, v.Flushed
	return nil
}

// quorumSyntax is synchronous_standby_names with a number of standbys, as in FIRST 2 (a, b).
var quorumSyntax = lazy.Regexp(`(?is)^\s*(?:(?:first|any)\s+)?\d+\s*\((.*)\)\s*$`)

// namesStandby reports whether a value of synchronous_standby_names names the application, by
// itself or by `*`. Names compare without case, as the server's own comparison does.
func namesStandby(setting, application string) bool {
	if setting == "" {
		return false
	}
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
// relay (I10). Any walsender that is named there is a candidate, a logical one too: commits of the
// whole cluster would wait for our reports, which wait for the broker.
func RefuseSyncStandby(ctx context.Context, q source.Querier, c *source.Config) error {
	var setting string
	if err := source.Ask(ctx, q, "read synchronous_standby_names", `SELECT current_setting('synchronous_standby_names')`).Scan(&setting); err != nil {
		return err
	}
	return refuseNamed(c, setting)
}

// refuseNamed is RefuseSyncStandby for a value of synchronous_standby_names.
func refuseNamed(c *source.Config, setting string) error {
	if !namesStandby(setting, c.ApplicationName()) {
		return nil
	}
	return syncStandbyStop(c, fmt.Sprintf("synchronous_standby_names = %s names this relay (application_name %s)",
		source.QuoteText(setting), c.ApplicationName()))
}

// syncStandbyStop is the Stop for a relay that the server takes for a synchronous standby.
func syncStandbyStop(c *source.Config, what string) *event.Stop {
	return &event.Stop{
		Code: event.ExitFailure, Reason: "sync_standby",
		What: what + ": every commit of the cluster would wait for the broker",
		Fix:  "list the real standbys by name in synchronous_standby_names, without * and " + c.ApplicationName(),
	}
}

// CheckSyncState checks what the server itself says of our walsender, in case we read the setting
// wrongly. "" (this role may not see it) and async are harmless.
func CheckSyncState(c *source.Config, view *View) error {
	switch view.HolderState {
	case "", "async":
		return nil
	}
	return syncStandbyStop(c, fmt.Sprintf("the server counts this relay as a %s standby", view.HolderState))
}
