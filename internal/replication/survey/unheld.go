// The other slots of relays that nobody holds, and what waits there.

package survey

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// Unheld is a slot of cdc_relay.slots that no walsender reads, with what waits there until a relay
// holds it.
type Unheld struct {
	Name          string
	Deferred      int
	DeadLetters   int   // that are open
	OrMore        bool  // where one of these two is unheldLimit
	RetainedBytes int64 // WAL that the slot keeps; 0: none, as when it is gone
	Lost          bool  // the server has invalidated it: what its WAL had is in the tables alone
}

const (
	unheldLimit = 10_000 // rows that are counted of a slot
	maxUnheld   = 100    // slots
)

// unheldSQL counts along an index: ORDER BY names one, and ReadUnheld forbids a sort. Otherwise the
// planner takes a slot's rows for a large part of the table and reads all of it, to find three, or
// takes them for few and sorts a million.
//
// A record of another system does not count: this database is a copy, or has come from a dump. Rows
// of that system are not sent from here, whoever holds the slot. A relay that is started with it
// stops with exit 3 until somebody has said which of the two it is. system_id is empty in a record
// that was written by hand for a first start. A slot of that name in another database is not ours.
// A name that no relay can have is nobody's slot, and Fix is to be copied to a shell.
const unheldSQL = `SELECT s.slot::text, d.n, l.n, w.bytes, w.lost
	FROM cdc_relay.slots s LEFT JOIN pg_replication_slots r ON r.slot_name = s.slot AND r.database = current_database()
	CROSS JOIN LATERAL (SELECT greatest(0, coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), r.restart_lsn), 0))::bigint AS bytes, coalesce(r.wal_status = 'lost', false) AS lost) w
	CROSS JOIN LATERAL (SELECT count(*)::int AS n FROM (SELECT FROM cdc_relay.retry t WHERE t.slot = s.slot::text AND t.system_id = s.system_id
		ORDER BY t.incarnation, t.commit_lsn, t.idx LIMIT $2) t) d
	CROSS JOIN LATERAL (SELECT count(*)::int AS n FROM (SELECT FROM cdc_relay.dead_letter t WHERE t.slot = s.slot::text AND t.system_id = s.system_id
		AND t.state = 'open' ORDER BY t.class, t.reason, t.died_at DESC, t.n DESC LIMIT $2) t) l
	WHERE s.slot <> $1 AND s.slot::text ~ '^[a-z0-9_]+$' AND r.active_pid IS NULL
		AND s.system_id IN ('', (SELECT system_identifier::text FROM pg_control_system()))
		AND (d.n + l.n + w.bytes > 0 OR w.lost)
	ORDER BY s.slot LIMIT $3`

// ReadUnheld reads the slots but ours that nobody holds and in which something waits. It does not
// wait for a lock: its connection is one of few. It is planned again each time, as all statements
// on these tables are.
func ReadUnheld(ctx context.Context, pool *pgxpool.Pool, ours string) (list []Unheld, err error) {
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '100ms'; SET LOCAL enable_sort = off"); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, unheldSQL, pgx.QueryExecModeCacheDescribe, ours, unheldLimit, maxUnheld)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (u Unheld, err error) {
			err = row.Scan(&u.Name, &u.Deferred, &u.DeadLetters, &u.RetainedBytes, &u.Lost)
			u.OrMore = u.Deferred == unheldLimit || u.DeadLetters == unheldLimit
			return u, err
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the slots that nobody holds: %w", err)
	}
	return list, nil
}

// Waits is what waits in the slot, for people.
func (u Unheld) Waits() string {
	var parts []string
	count := func(n int, what string) {
		switch {
		case n == unheldLimit:
			parts = append(parts, fmt.Sprintf("at least %d %ss", n, what))
		case n > 1:
			parts = append(parts, strconv.Itoa(n)+" "+what+"s")
		case n == 1:
			parts = append(parts, "1 "+what)
		}
	}
	count(u.Deferred, "deferred event")
	count(u.DeadLetters, "open dead letter")
	switch {
	case u.Lost:
		parts = append(parts, "WAL that can no longer be read (wal_status lost)")
	case u.RetainedBytes > 0:
		parts = append(parts, source.BytesText(uint64(u.RetainedBytes))+" of WAL")
	}
	return strings.Join(parts, ", ")
}

// Fix is what ends it.
func (u Unheld) Fix() string {
	first := ""
	if u.Lost {
		first = "CDC_RELAY_SOURCE__SLOT=" + u.Name + " cdc-relay recover, which sends what is still in the outbox table; then "
	}
	return first + fmt.Sprintf("start a relay with source.slot: %s until nothing waits there, then CDC_RELAY_SOURCE__SLOT=%[1]s cdc-relay teardown --yes; with --force it drops what still waits", u.Name)
}

// askUnheld looks for them once a minute, as the leader: it is the same for all relays of the slot.
func (v *surveyor) askUnheld(ctx context.Context) error {
	if v.seen.Snapshot().Phase != Streaming {
		v.seen.update(func(snap *Snapshot) { snap.Unheld = nil })
		v.looked = time.Time{}
		return nil
	}
	if time.Since(v.looked) < measureEvery {
		return nil
	}
	list, err := ReadUnheld(ctx, v.pool, v.c.Slot)
	if source.SQLState(err) == "55P03" { // somebody alters a table: the next time
		return nil
	}
	if err != nil {
		return err
	}
	v.seen.update(func(snap *Snapshot) { snap.Unheld = list })
	say, fresh := v.unheld.add(list)
	for _, u := range say {
		v.c.Log.Warn("nobody holds a slot in which something waits", zap.String("slot", u.Name), zap.String("waits", u.Waits()), zap.String("fix", u.Fix()))
	}
	if v.looked = time.Now(); fresh {
		v.looked = time.Time{}
	}
	return nil
}

// unheldNames are the slots that were found last; true: they were logged.
type unheldNames map[string]bool

// add replaces them, and returns those to log: each once, for as long as nobody holds it. A slot
// between two relays is unheld for some seconds. So those that are fresh are not logged before they
// are found again, in the next round.
func (n *unheldNames) add(list []Unheld) (say []Unheld, fresh bool) {
	now := make(unheldNames, len(list))
	for _, u := range list {
		said, again := (*n)[u.Name]
		if again && !said {
			say = append(say, u)
		}
		now[u.Name] = again
		fresh = fresh || !again
	}
	*n = now
	return say, fresh
}
