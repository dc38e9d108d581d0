// The state of the source as status, health and metrics show it: the stream's phase, its slot, the
// other slots of the server, sizes and lag. The stream and the survey write it, and whoever asks
// gets a copy.

package slot

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/replication/schema"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// Phase is what the stream is doing, in one word, for people.
type Phase string

// The phases.
const (
	Starting  Phase = "starting"
	Waiting   Phase = "waiting" // for PostgreSQL; Why says what it answered
	Standby   Phase = "standby" // another relay holds the slot
	Streaming Phase = "streaming"
	Stopping  Phase = "stopping"
)

// Snapshot is the state of the stream for status, health and metrics.
type Snapshot struct {
	Phase Phase
	Why   string // also while Streaming, when the server's walsender sends nothing
	Since time.Time
	// Leader is who leads, as cdc_relay.slots has it: this relay, or while it stands by the other
	// one; "" means not known
	Leader string
	// Standbys are the relays that stand by for the slot, as ReadStandbyRelays has them; only the
	// leader asks; nil means not known
	Standbys []string
	Slot     SlotSeen

	HeldBy []source.OpenTransaction // see View.HeldBy

	// WaitingForStandby has the standbys of synchronized_standby_slots that hold delivery back; it
	// is set only while Streaming
	WaitingForStandby []string

	// Hosts has the other hosts of source.url, as the leader of a failover slot has last asked them
	Hosts []HostSlot

	OtherSlots []SlotSeen // the server's other logical slots, those first that keep the most WAL
	OtherTotal int        // OtherSlots may have fewer
	Unheld     []Unheld   // of the leader; nil: not known yet
	UnheldAt   time.Time  // when it was read
	// TableBytes is the size of the outbox tables, with indexes and partitions; nil means that it
	// is not known yet, or that there are none
	TableBytes *int64
}

// HostSlot says of another host of source.url whether a relay could go on with the slot there.
type HostSlot struct {
	Host   string // host:port
	Synced bool   // the slot is there, synced and ready; also false if the host did not answer
}

// SlotSeen is the slot's row in pg_replication_slots, as it was at the time Checked.
type SlotSeen struct {
	View
	Checked time.Time // zero: not yet
	// BehindSince is when WAL after ConfirmedFlush was first seen, by walTimes; zero means that
	// there is no such WAL. Only OtherSlots have it.
	BehindSince time.Time
}

// Status is the current Snapshot behind a lock.
type Status struct {
	mu   sync.Mutex
	snap Snapshot
}

// Snapshot returns a copy of the current state; its phase is Starting until another one was set.
func (s *Status) Snapshot() Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	snap := s.snap
	if snap.Phase == "" {
		snap.Phase = Starting
	}
	return snap
}

// EnterPhase sets the phase and its reason: what PostgreSQL answered, or who leads. When the phase
// changes it forgets the leader, except at Stopping.
func (s *Status) EnterPhase(p Phase, why string) {
	s.changeSnapshot(func(snap *Snapshot) {
		if snap.Phase != p {
			snap.Phase, snap.Since, snap.Standbys = p, time.Now(), nil
			if p != Stopping {
				snap.Leader = ""
			}
		}
		snap.Why = why
		if p != Streaming {
			snap.WaitingForStandby = nil
		}
	})
}

// SetLeader sets who leads in the phase that was entered last.
func (s *Status) SetLeader(name string) {
	s.changeSnapshot(func(snap *Snapshot) { snap.Leader = name })
}

// WaitForStandby sets the standbys that hold delivery back, and returns those that were set before,
// so that the caller logs only a change.
func (s *Status) WaitForStandby(names []string) (was []string) {
	s.changeSnapshot(func(snap *Snapshot) {
		was = snap.WaitingForStandby
		if snap.Phase == Streaming {
			snap.WaitingForStandby = names
		}
	})
	return was
}

// SetStreamingReason sets the reason why nothing comes while the phase is Streaming; "" removes the
// reason.
func (s *Status) SetStreamingReason(why string) {
	s.changeSnapshot(func(snap *Snapshot) {
		if snap.Phase == Streaming {
			snap.Why = why
		}
	})
}

// SetSlot sets what was read of the slot; nil means that the slot does not exist.
func (s *Status) SetSlot(v *View) {
	var now SlotSeen
	if v != nil {
		now = SlotSeen{View: *v, Checked: time.Now()}
	}
	s.changeSnapshot(func(snap *Snapshot) { snap.Slot = now })
}

// changeSnapshot changes the snapshot under the lock.
func (s *Status) changeSnapshot(change func(*Snapshot)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.snap)
}

// Relay is what the database knows about a relay. The command status shows it when the relay itself
// does not answer.
type Relay struct {
	Slot     *SlotSeen // nil: no such slot
	HeldBy   []source.OpenTransaction
	Leader   string   // as the last leader named itself; "" when no relay ever led
	Standbys []string // as in Snapshot
	State    string   // of the slot's row in cdc_relay.slots; "" when there is none
	SystemID string   // likewise

	Unheld    []Unheld // nil: there is no schema, or UnheldErr says why it is not known
	UnheldErr error
}

// ReadRelay reads what the database knows about the relay of a slot.
func ReadRelay(ctx context.Context, pool *pgxpool.Pool, name string) (Relay, error) {
	view, err := ReadView(ctx, pool, name)
	if err != nil {
		return Relay{}, err
	}
	var v Relay
	// perhaps as another role than the relays': that it sees none then says nothing
	if names, err := ReadStandbyRelays(ctx, pool, &source.Config{Slot: name}); err == nil && len(names) > 0 {
		v.Standbys = names
	}
	if view != nil {
		v.Slot = &SlotSeen{View: *view, Checked: time.Now()}
		if v.HeldBy, err = view.HeldBy(ctx, pool); err != nil {
			return Relay{}, err
		}
	}
	if err := schema.Verify(ctx, pool, schema.Trust{Replication: true}); err != nil {
		return v, err
	}
	version, err := schema.Version(ctx, pool)
	if err != nil || version == 0 {
		return v, err
	}
	v.Unheld, v.UnheldErr = ReadUnheld(ctx, pool, name)
	rec, err := ReadRecord(ctx, pool, name)
	if rec != nil {
		v.Leader, v.State, v.SystemID = rec.Leader, rec.State, rec.SystemID
	}
	return v, err
}

// Unheld is a slot of cdc_relay.slots that no session holds, with what waits there until a relay
// holds it. Somebody may have renamed source.slot and forgotten the old slot.
type Unheld struct {
	Name          string
	Deferred      int
	DeadLetters   int   // open ones
	OrMore        bool  // Deferred or DeadLetters is unheldLimit, where counting ends
	RetainedBytes int64 // WAL that the slot keeps; 0: none, as when it is gone
	Lost          bool  // the server has invalidated it: what its WAL had is in the tables alone
}

const (
	unheldLimit = 10_000 // rows of a slot that are counted at most
	maxUnheld   = 100    // slots that are read at most
)

// unheldSQL reads the slots for ReadUnheld. It counts along an index: ORDER BY names the index, and
// ReadUnheld forbids a sort. Otherwise the planner takes a slot's rows for a large part of the
// table and reads all of the table to find three rows, or takes them for few and sorts a million.
//
// A record of another system does not count: this database is a copy, or has come from a dump. Rows
// of that system are not sent from here, whoever holds the slot. A relay that is started with it
// stops with exit 3 until somebody has said which of the two it is. system_id is empty in a record
// that was written by hand for a first start. A slot of that name in another database is not ours.
// A slot with a name that no relay can have is left out, because Fix is a command to be copied to a
// shell.
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

// ReadUnheld reads the slots, except ours, that nobody holds and in which something waits. The
// statement is planned again each time, as all statements on these tables are.
func ReadUnheld(ctx context.Context, pool *pgxpool.Pool, ours string) (list []Unheld, err error) {
	err = waitingForNoLock(ctx, pool, "read the slots that nobody holds", "; SET LOCAL enable_sort = off", func(ctx context.Context, tx pgx.Tx) error {
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
	return list, err
}

// Waits describes what waits in the slot, for people.
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

// Fix is the command that gets what waits out of the slot and then removes it.
func (u Unheld) Fix() string {
	first := ""
	if u.Lost {
		first = "CDC_RELAY_SOURCE__SLOT=" + u.Name + " cdc-relay recover, which sends what is still in the outbox table; then "
	}
	return first + fmt.Sprintf("start a relay with source.slot: %s until nothing waits there, then CDC_RELAY_SOURCE__SLOT=%[1]s cdc-relay teardown --yes; with --force it drops what still waits", u.Name)
}

// askUnheld looks for slots that nobody holds, once a minute. Only the leader looks, because the
// answer is the same for all relays of the slot.
func (v *surveyor) askUnheld(ctx context.Context) error {
	if v.status.Snapshot().Phase != Streaming {
		v.status.changeSnapshot(func(snap *Snapshot) { snap.Unheld = nil })
		v.unheldLookedAt = time.Time{}
		return nil
	}
	if time.Since(v.unheldLookedAt) < measureEvery {
		return nil
	}
	list, err := ReadUnheld(ctx, v.pool, v.c.Slot)
	if source.SQLState(err) == "55P03" { // somebody alters a table: the next time
		return nil
	}
	if err != nil {
		return err
	}
	v.status.changeSnapshot(func(snap *Snapshot) { snap.Unheld, snap.UnheldAt = list, time.Now() })
	say, fresh := v.unheld.replaceWith(list)
	for _, u := range say {
		v.c.Log.Warn("nobody holds a slot in which something waits", zap.String("slot", u.Name), zap.String("waits", u.Waits()), zap.String("fix", u.Fix()))
	}
	if v.unheldLookedAt = time.Now(); fresh {
		v.unheldLookedAt = time.Time{}
	}
	return nil
}

// unheldNames are the slots that the last round found; true means that the slot was logged.
type unheldNames map[string]bool

// replaceWith replaces the slots by those of a new round, and returns the ones to log. A slot is
// logged once for as long as nobody holds it, and only when it is found a second time: a slot
// between two relays is unheld for some seconds. fresh means that a slot was found for the first
// time, so the next round should come soon.
func (n *unheldNames) replaceWith(list []Unheld) (say []Unheld, fresh bool) {
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
