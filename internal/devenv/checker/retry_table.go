// What the relay has set aside: the rows of cdc_relay.retry and cdc_relay.dead_letter.

package checker

import (
	"context"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
	"github.com/cdc-relay/cdc-relay/internal/event"
)

// RetryRowState is where an event is in the retry table.
type RetryRowState string

// The states: a row of the retry table, and those of a dead letter.
const (
	Deferred  RetryRowState = "deferred"
	Open      RetryRowState = "open"
	Replayed  RetryRowState = "replayed"
	Discarded RetryRowState = "discarded"
	Purged    RetryRowState = "purged"
)

// RetryRow is a row of the retry table or of the dead letters.
type RetryRow struct {
	ID       string // "" when it was purged
	Position event.Position
	State    RetryRowState
}

// ReadRetryTable reads the rows of a slot, in no order, without those of another system: of a
// database that this one is a copy of. A database without the tables has none.
func ReadRetryTable(ctx context.Context, dbURL, slot string) (all []RetryRow, err error) {
	err = pgserver.OnConn(ctx, dbURL, func(conn *pgx.Conn) error {
		var there bool
		err := conn.QueryRow(ctx, `SELECT to_regclass('cdc_relay.retry') IS NOT NULL AND to_regclass('cdc_relay.dead_letter') IS NOT NULL`).Scan(&there)
		if err != nil || !there {
			return err
		}
		const ours = ` WHERE slot = $1 AND system_id = (SELECT system_identifier::text FROM pg_control_system())`
		rows, err := conn.Query(ctx, `SELECT coalesce(id::text, ''), commit_lsn::text, idx, '`+string(Deferred)+`' FROM cdc_relay.retry`+ours+
			` UNION ALL SELECT coalesce(id::text, ''), commit_lsn::text, idx, state FROM cdc_relay.dead_letter`+ours, slot)
		if err != nil {
			return err
		}
		all, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (s RetryRow, err error) {
			var id, commit string
			var index uint32
			if err := row.Scan(&id, &commit, &index, &s.State); err != nil {
				return s, err
			}
			s.ID, s.Position, err = retryRowAt(id, commit, index)
			return s, err
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read retry table: %w", err)
	}
	return all, nil
}

// retryRowAt reads an id (the text of a bytea) and a position as the tables write them.
func retryRowAt(id, commit string, index uint32) (string, event.Position, error) {
	raw, err := hex.DecodeString(strings.TrimPrefix(id, `\x`))
	if err != nil {
		return "", event.Position{}, fmt.Errorf("id %s: %w", id, err)
	}
	lsn, err := pglogrepl.ParseLSN(commit)
	if err != nil {
		return "", event.Position{}, fmt.Errorf("position %s: %w", commit, err)
	}
	return string(raw), event.Position{Commit: lsn, Index: index}, nil
}

// Stay is a time that an event's row was in one of the tables: from the commit of transaction From
// until that of transaction Until, 0 when it is there still.
type Stay struct {
	ID          string
	Position    event.Position
	From, Until uint64
}

// Snapshot says which transactions had committed at a moment (PostgreSQL's pg_snapshot).
type Snapshot struct {
	Min, Max uint64 // all below Min had ended, all from Max on had not begun
	Running  []uint64
}

// Sees reports whether a transaction that has committed had done so by then.
func (s *Snapshot) Sees(transaction uint64) bool {
	if transaction >= s.Max {
		return false
	}
	for _, running := range s.Running {
		if running == transaction {
			return false
		}
	}
	return true
}

// Has reports whether the row of a stay was there.
func (s *Snapshot) Has(stay *Stay) bool {
	return s.Sees(stay.From) && (stay.Until == 0 || !s.Sees(stay.Until))
}

// String is pg_snapshot's text.
func (s *Snapshot) String() string {
	var running []string
	for _, n := range s.Running {
		running = append(running, strconv.FormatUint(n, 10))
	}
	return fmt.Sprintf("%d:%d:%s", s.Min, s.Max, strings.Join(running, ","))
}

// ParseSnapshot reads pg_snapshot's text: xmin:xmax:xip,xip.
func ParseSnapshot(text string) (*Snapshot, error) {
	parts := strings.Split(text, ":")
	if len(parts) != 3 {
		return nil, fmt.Errorf("parse snapshot %q: want three parts", text)
	}
	s := &Snapshot{}
	var err error
	if s.Min, err = strconv.ParseUint(parts[0], 10, 64); err == nil {
		s.Max, err = strconv.ParseUint(parts[1], 10, 64)
	}
	for _, number := range strings.FieldsFunc(parts[2], func(r rune) bool { return r == ',' }) {
		var running uint64
		if err == nil {
			running, err = strconv.ParseUint(number, 10, 64)
		}
		s.Running = append(s.Running, running)
	}
	if err != nil {
		return nil, fmt.Errorf("parse snapshot %q: %w", text, err)
	}
	return s, nil
}
