// Package standbys is the physical standbys of the server that is read: which of them have all that
// was read of a failover slot, and which of them delivery waits for.
package standbys

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// View is the server's standbys as it shows them.
type View struct {
	Named   []string      // by synchronized_standby_slots, sorted
	Flushed pglogrepl.LSN // the end of the durable WAL
	Slots   []Slot        // physical ones, by name
	without bool          // a standby streams without a slot
}

// Slot is a physical slot.
type Slot struct {
	Name      string
	Active    bool // its standby is connected
	Lost      bool // it was invalidated
	Temporary bool
	at        pglogrepl.LSN // restart_lsn: its standby has flushed the WAL up to here; 0: none
}

// Read reads the standbys (PostgreSQL 17+).
func Read(ctx context.Context, q source.Querier) (*View, error) {
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	var v View
	var named string
	// A role without pg_read_all_stats does not see the state of other roles' walsenders.
	err := q.QueryRow(ctx, `SELECT coalesce(current_setting('synchronized_standby_slots', true), ''), pg_current_wal_flush_lsn(),
		EXISTS (SELECT FROM pg_stat_replication r WHERE coalesce(r.state, 'streaming') IN ('catchup', 'streaming')
			AND NOT EXISTS (SELECT FROM pg_replication_slots s WHERE s.active_pid = r.pid))`).Scan(&named, &v.Flushed, &v.without)
	if err != nil {
		return nil, fmt.Errorf("read synchronized_standby_slots: %w", err)
	}
	v.Named = names(named)
	rows, err := q.Query(ctx, `SELECT slot_name, active, invalidation_reason IS NOT NULL, temporary, coalesce(restart_lsn, '0/0'::pg_lsn)
		FROM pg_replication_slots WHERE slot_type = 'physical' ORDER BY 1`)
	if err != nil {
		return nil, fmt.Errorf("read pg_replication_slots: %w", err)
	}
	v.Slots, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (s Slot, err error) {
		return s, row.Scan(&s.Name, &s.Active, &s.Lost, &s.Temporary, &s.at)
	})
	if err != nil {
		return nil, fmt.Errorf("read pg_replication_slots: %w", err)
	}
	return &v, nil
}

// names are those in a value of synchronized_standby_slots, as the server reads it: with or without
// quotes, and without them in any case. No name of a slot has a comma or a quote.
func names(setting string) (list []string) {
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

// flushed is how far a named standby is known to have all WAL; 0: not known.
func (v *View) flushed(name string) pglogrepl.LSN {
	for _, s := range v.Slots {
		if s.Name == name && !s.Lost && !s.Temporary {
			return s.at
		}
	}
	return 0
}

// HaveAll reports whether each named standby has all WAL up to a position.
func (v *View) HaveAll(to pglogrepl.LSN) bool {
	return !slices.ContainsFunc(v.Named, func(name string) bool { return v.flushed(name) < to })
}

// Have returns the named standbys that have all that was received, and whether there may be other
// standbys. One that is recorded stays so while it is named: the server has sent nothing since that
// it does not have. received was read before the view.
func (v *View) Have(rec *slot.Record, received pglogrepl.LSN) (have []string, others bool) {
	have = []string{}
	for _, name := range v.Named {
		if at := v.flushed(name); at != 0 && at >= received || slices.Contains(rec.Standbys, name) {
			have = append(have, name)
		}
	}
	others = v.without
	for _, s := range v.Slots {
		others = others || !slices.Contains(have, s.Name)
	}
	return have, others
}

// Record makes durable which standbys have all that was read, under the epoch of the term, unless
// rec has it already. A promoted server is judged by it (slot.CheckUse).
func (v *View) Record(ctx context.Context, q source.Querier, c *source.Config, epoch int64, rec *slot.Record, received pglogrepl.LSN) error {
	have, others := v.Have(rec, received)
	if slices.Equal(have, rec.Standbys) && others == rec.OtherStandbys {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	_, err := q.Exec(ctx, `UPDATE cdc_relay.slots SET standbys = $2, other_standbys = $3 WHERE slot = $1 AND epoch = $4 AND state = 'ready'`,
		c.Slot, have, others, epoch)
	if err != nil {
		return fmt.Errorf("write cdc_relay.slots: %w", err)
	}
	return nil
}

// Wait finds the standbys that delivery waits for, from one check to the next.
type Wait struct {
	received, flushed pglogrepl.LSN // at the last check
}

// For returns the named standbys that have not flushed what the server had flushed at the last
// check, if nothing was received since although there was something: the server sends nothing of a
// failover slot before. busy: the reader waits for the broker, and not for the server.
func (w *Wait) For(v *View, received pglogrepl.LSN, busy bool) (behind []string) {
	stands := !busy && received == w.received && received < w.flushed
	if stands {
		for _, name := range v.Named {
			if v.flushed(name) < w.flushed {
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
