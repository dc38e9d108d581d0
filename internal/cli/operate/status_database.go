// What status shows of a relay that does not answer: what the database knows of it.

package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/ops"
	"github.com/cdc-relay/cdc-relay/internal/printable"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/retry/postgres"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/wiring"
)

// databaseStatus is what the database knows of the relay of a slot.
type databaseStatus struct {
	State string // stopped, or not answering while the slot is active
	Why   string
	Now   time.Time

	// Finding is the ID that `cdc-relay accept` takes when the next start would stop (exit 3).
	Finding string

	Relay         string // why it did not answer
	Slot          ops.SlotStatus
	SlotExists    bool
	SlotActive    bool
	Holder        string
	Confirmed     string
	LagBytes      int64
	RetainedBytes int64
	WALStatus     string
	SafeWALBytes  *int64 // nil when it is unlimited, or there is no slot

	WALHeldBy []ops.OpenTransaction // as in the status of a relay

	LastLeader  string
	Standbys    []ops.Relay // as in the status of a relay
	RecordState string

	Deferred    *deferredCount // nil when the rows could not be counted
	DeadLetters *deadLetterCount
	NotCounted  string // why the rows could not be counted

	UnheldSlots []ops.UnheldSlot // as in the status of a relay; nil when they are not known
	OpenGaps    []int64          // nil when they are not known
	// what the next start stops at, with which Why ends; "" when it would not stop
	next string
}

type deferredCount struct {
	Events int
	OrMore bool
	Oldest *time.Time // commit time; nil when there is no deferred event
}

type deadLetterCount struct {
	Open   int
	OrMore bool
	Oldest *time.Time // when it died; nil when there is no dead letter
}

// showDatabase prints what the database knows. Its error is of exit 1 when nobody holds the slot.
func showDatabase(ctx context.Context, w io.Writer, c *config.Config, g *command.Options, asJSON bool, cause error) error {
	ctx, cancel := context.WithTimeout(ctx, command.DatabaseTimeout)
	defer cancel()
	v, err := queryDatabase(ctx, g)
	var stop *event.Stop
	if errors.As(err, &stop) && stop.Code == event.ExitUsage {
		return err
	}
	var refused *command.RefusedError
	switch {
	case err != nil && errors.As(cause, &refused):
		return fmt.Errorf("%w; and the database does not answer: %w", cause, err)
	case err != nil:
		return fmt.Errorf("no relay answers (%w), and the database does not either: %w", cause, err)
	}
	v.setCause(cause)
	if asJSON {
		err = command.JSON(w, v.json())
	} else if _, err = fmt.Fprintf(w, "%-11s%s: %s\n", "state", v.State, command.Clean(v.Why)); err == nil {
		err = v.write(w, c.Source.Slot)
	}
	if err == nil && !v.SlotActive {
		// the text above says so already
		err = command.Logged{Err: &event.Stop{Code: event.ExitFailure, Reason: "not_running", What: "no relay runs"}}
	}
	return err
}

// queryDatabase asks the database for everything that status shows.
func queryDatabase(ctx context.Context, g *command.Options) (*databaseStatus, error) {
	_, rc, _, err := g.Source()
	if err != nil {
		return nil, err
	}
	rc.Log = zap.NewNop()
	v, err := readDatabase(ctx, rc)
	if err != nil {
		return nil, err
	}
	v.Now = time.Now().UTC()
	v.judge()
	if v.RecordState == "" || v.SlotActive {
		return &v, nil
	}
	// A role that may not ask gets less.
	if stop, err := nextStop(ctx, g); err == nil && stop != nil {
		v.next = "; the next start stops: " + stop.Error()
		v.Why += v.next
		v.Finding = stop.Finding
	}
	return &v, nil
}

// nextStop returns the Stop (exit 3) with which the next start would end, or nil when it would not
// stop.
func nextStop(ctx context.Context, g *command.Options) (*event.Stop, error) {
	_, rc, _, err := g.Source()
	if err != nil {
		return nil, err
	}
	rc.Log = zap.NewNop()
	stop, err := slot.ReadNextStop(ctx, rc)
	if err != nil || stop == nil || stop.Code != event.ExitOperator {
		return nil, err
	}
	return stop, nil
}

// judge sets the state, which depends on whether somebody holds the slot.
func (v *databaseStatus) judge() {
	v.State, v.Why = ops.StateStopped, "no relay answers, and "+v.holderText()
	if v.SlotActive {
		v.State, v.Why = stateNotAnswering, "no relay answers at the address that was asked, and "+v.holderText()
	}
}

// holderText says who holds the slot.
func (v *databaseStatus) holderText() string {
	switch {
	case v.SlotActive:
		return v.Holder + " holds the slot"
	case v.SlotExists:
		return "nobody holds the slot"
	}
	return "there is no slot"
}

// setCause adds why the database was asked instead of the relay.
func (v *databaseStatus) setCause(cause error) {
	v.Relay = notAsked(cause)
	var refused *command.RefusedError
	if errors.As(cause, &refused) {
		v.State = stateNoAccess
		v.Why = refused.Error() + "; " + v.holderText() + v.next
	}
}

// notAsked says why the relay has given no status.
func notAsked(cause error) string {
	var answered *command.AnswerError
	var refused *command.RefusedError
	switch {
	case errors.As(cause, &answered):
		return "does not answer with its status: " + answered.Text
	case errors.As(cause, &refused):
		return "does not tell: " + refused.Error()
	}
	return "does not answer: " + cause.Error()
}

// readDatabase reads the slot, its leader and the counts of rows.
func readDatabase(ctx context.Context, rc source.Config) (v databaseStatus, err error) {
	pool, err := source.Connect(ctx, rc)
	if err != nil {
		return v, err
	}
	defer pool.Close()
	known, err := slot.ReadRelay(ctx, pool, rc.Slot)
	if err != nil {
		return v, err
	}
	v.LastLeader, v.RecordState, v.UnheldSlots = known.Leader, known.State, wiring.UnheldSlots(known.Unheld)
	v.Standbys = wiring.Relays(known.Standbys)
	v.WALHeldBy = wiring.OpenTransactions(known.HeldBy)
	if s := known.Slot; s != nil {
		v.SlotExists, v.SlotActive, v.Holder = true, s.Active(), s.Holder
		v.Confirmed, v.WALStatus, v.SafeWALBytes = s.ConfirmedFlush.String(), s.WALStatus, s.SafeWALBytes
		snapshot := wiring.SlotSnapshot(s.Name, *s)
		v.LagBytes, v.RetainedBytes = snapshot.LagBytes(), snapshot.RetainedBytes()
		// a standby does not know the commits either, so its status has the same fields
		like := ops.Snapshot{Phase: ops.Standby, Slot: snapshot}
		v.Slot = like.Status(ops.RatesStatus{}, ops.TotalsStatus{}, time.Now()).Slot
	}
	if known.State != "" {
		// check says why gaps cannot be read
		if gaps, err := dlq.New(pool, rc.Slot).OpenGaps(ctx); err == nil {
			v.OpenGaps = gaps
		}
		v.countRows(ctx, pool, rc.Slot, known.SystemID)
	}
	if known.UnheldErr != nil {
		v.NotCounted = cmp.Or(v.NotCounted, known.UnheldErr.Error())
	}
	return v, nil
}

// countRows counts deferred events and dead letters. When that takes too long, it counts fewer of
// them.
func (v *databaseStatus) countRows(ctx context.Context, pool *pgxpool.Pool, slot, systemID string) {
	for _, limit := range []int{store.StatsLimit, store.StatsLimit / 10, minCountLimit} {
		ctx, cancel := context.WithTimeout(ctx, command.DatabaseTimeout/3)
		t, err := postgres.Count(ctx, pool, slot, systemID, limit)
		cancel()
		if err == nil {
			v.Deferred = &deferredCount{t.Deferred, t.Deferred == limit, timeOrNil(t.OldestDeferred)}
			v.DeadLetters = &deadLetterCount{t.Dead, t.Dead == limit, timeOrNil(t.OldestDead)}
			v.NotCounted = ""
			return
		}
		v.NotCounted = err.Error()
	}
}

// minCountLimit is the lowest number at which counting stops.
const minCountLimit = 10_000

func timeOrNil(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}

func (v *databaseStatus) write(w io.Writer, slot string) error {
	leader := command.If(v.LastLeader != "", "  last leader: "+command.Clean(v.LastLeader)+"\n")
	leader += command.If(len(v.Standbys) > 0, "  stand by: "+command.Clean(standbysText(v.Standbys))+"\n")
	relay := "The relay " + command.Clean(v.Relay) + ".\n"
	if v.State == stateNoAccess { // the line state says it already
		relay = ""
	}
	_, err := fmt.Fprintf(printable.Text(w), "%sWhat the database knows of slot %q:\n%s%s%s", relay, slot, v.slotText(), leader, v.rowsText(time.Now()))
	return err
}

// slotText says who holds the slot, and how much of the server's disk it retains.
func (v *databaseStatus) slotText() string {
	holder := "nobody holds it"
	switch {
	case !v.SlotExists:
		return "  it does not exist\n"
	case v.SlotActive:
		holder = "held by " + command.Clean(v.Holder)
	}
	text := fmt.Sprintf("  %s, confirmed %s, %s behind, retains %s, WAL %s%s\n", holder, command.Clean(v.Confirmed), command.Bytes(v.LagBytes), command.Bytes(v.RetainedBytes), command.Clean(v.WALStatus), lostText(&ops.SlotStatus{CheckedAt: time.Now(), WALStatus: v.WALStatus, SafeWALBytes: v.SafeWALBytes}))
	for _, line := range heldText(v.WALHeldBy) {
		text += "  " + command.Clean(line) + "\n"
	}
	return text
}

// rowsText says how many rows wait in the tables, if any.
func (v *databaseStatus) rowsText(now time.Time) (text string) {
	if p := v.Deferred; p != nil && p.Events > 0 {
		text += fmt.Sprintf("  %s%s deferred%s\n", command.If(p.OrMore, "at least "), command.Count(p.Events, "event"), command.Since(now, ", oldest from ", p.Oldest, " ago"))
	}
	if d := v.DeadLetters; d != nil && d.Open > 0 {
		text += fmt.Sprintf("  %s%s open%s\n", command.If(d.OrMore, "at least "), command.Count(d.Open, "dead letter"), command.Since(now, ", the first for ", d.Oldest, "")+": cdc-relay dead-letters list")
	}
	if v.NotCounted != "" {
		text += fmt.Sprintf("  what is deferred or dead is not known: %s\n", command.Clean(v.NotCounted))
	}
	for _, n := range v.OpenGaps {
		text += "  " + gapText(n) + "\n"
	}
	for _, u := range v.UnheldSlots {
		text += "  " + command.Clean(unheldText(u)) + "\n"
	}
	return text
}
