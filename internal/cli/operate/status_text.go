// A status as text: of the relay, or of what the database knows while none answers.

package operate

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/cli/client"
	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/cli/output"
	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/ops"
	"github.com/cdc-relay/cdc-relay/internal/printable"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/retry/postgres"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink/drivers"
	"github.com/cdc-relay/cdc-relay/internal/wiring"
)

// writeStatus describes a status for people, in plain lines, or with colour on a terminal.
func writeStatus(w io.Writer, s *ops.Status, colour bool) error {
	t := statusText{status: s, colour: colour}
	t.all()
	_, err := w.Write(t.out.Bytes())
	return err
}

func (t *statusText) all() {
	s := t.status
	t.head()
	t.slot()
	t.broker()
	t.paused()
	t.line("in flight", "%s, %s%s", output.Count(s.InFlight.Events, "event"), output.Bytes(s.InFlight.Bytes), t.age(", oldest from ", s.InFlight.OldestUnsettled))
	t.line("published", "%s, %.1f/s%s", output.Count(s.Totals.Published, "event"), s.Rates.PublishedPerSecond, t.age(", last confirm ", s.Totals.LastConfirm))
	t.attempts()
	t.deferred()
	t.guard()
	t.refused()
	t.dead()
	t.retention()
	t.unsent()
	t.unheld()
	if s.UnreportedConfirmed > 0 {
		t.line("repeats", "%s confirmed behind one that is not; a crash now would send them again", output.Count(s.UnreportedConfirmed, "event"))
	}
}

type statusText struct {
	status *ops.Status
	colour bool
	out    bytes.Buffer
}

// The colours of a state: it works, it waits, somebody has to act.
const (
	green  = "32"
	yellow = "33"
	red    = "31"
)

var stateColours = map[string]string{
	ops.StateStreaming: green, ops.StateIdle: green, ops.StateStandby: green,
	ops.StateStarting: yellow, ops.StateStopping: yellow, ops.StateCatchingUp: yellow, ops.StatePaused: yellow, ops.StateDeferring: yellow,
	ops.StateWaiting: red, ops.StateBrokerDown: red, ops.StateStopped: red,
}

// painted is a text of ours, perhaps with a colour.
type painted string

func (t *statusText) paint(text, colour string) painted {
	text = output.Clean(text)
	if t.colour && colour != "" {
		text = "\x1b[1;" + colour + "m" + text + "\x1b[0m"
	}
	return painted(text)
}

// line writes a labelled line. Texts in it are cleaned: they are the broker's, the server's, or of
// whoever answers at the relay's address.
func (t *statusText) line(label, format string, args ...any) {
	for i, arg := range args {
		if text, ok := arg.(string); ok {
			args[i] = output.Clean(text)
		}
	}
	fmt.Fprintf(&t.out, "%-11s"+format+"\n", append([]any{label}, args...)...)
}

func (t *statusText) head() {
	s := t.status
	t.line("state", "%s%s", t.paint(s.State, stateColours[s.State]), output.Clean(strings.TrimPrefix(StateText(s), s.State)))
	up := ""
	if !s.StartedAt.IsZero() {
		up = ", up " + output.Age(s.Now.Sub(s.StartedAt))
	}
	t.line("relay", "%s, version %s%s", s.Role, s.Version, up)
}

// StateText is the state, and why.
func StateText(s *ops.Status) string {
	if s.Why == "" {
		return s.State
	}
	return s.State + ": " + s.Why
}

func (t *statusText) slot() {
	slot := t.status.Slot
	lag := showLag(slot.LagSeconds)
	if slot.CheckedAt.IsZero() {
		t.line("slot", "%s, lag %s; the server has not been asked yet", slot.Name, lag)
		return
	}
	checked := output.Age(t.status.Now.Sub(slot.CheckedAt))
	if slot.IsFresh(t.status.Now) {
		t.line("slot", "%s, lag %s and %s, retains %s", slot.Name, lag, output.Bytes(slot.LagBytes), output.Bytes(slot.RetainedBytes))
	} else {
		t.line("slot", "%s, lag %s; not known for %s, before that %s behind, retained %s", slot.Name, lag, t.paint(checked, red), output.Bytes(slot.LagBytes), output.Bytes(slot.RetainedBytes))
	}
	reader := "read by a process"
	if !slot.Active {
		reader = "read by nobody"
	}
	safe := ""
	if slot.SafeWALBytes != nil {
		safe = ", lost after " + output.Bytes(*slot.SafeWALBytes) + " more"
	}
	wal := t.paint(slot.WALStatus, "")
	if slot.WALStatus == "unreserved" || slot.WALStatus == "lost" {
		wal = t.paint(slot.WALStatus, red)
	}
	t.line("", "confirmed %s of %s, %s, WAL %s%s, asked %s ago",
		slot.ConfirmedFlushLSN, slot.CurrentWALLSN, reader, wal, safe, checked)
	for _, line := range heldText(t.status.WALHeldBy) {
		t.line("", "%s", t.paint(line, yellow))
	}
	if waiting := t.status.WaitingForStandby; len(waiting) > 0 {
		t.line("", "%s, which does not have what was committed since", t.paint("waiting for standby "+strings.Join(waiting, ", "), yellow))
	}
}

// heldText says which transactions make the slot keep WAL, and what to do.
func heldText(list []ops.OpenTransaction) []string {
	if len(list) == 0 {
		return nil
	}
	lines, open := []string{"keeps WAL until these transactions end:"}, make([]source.OpenTransaction, len(list))
	for i, t := range list {
		open[i] = source.OpenTransaction(t)
		lines = append(lines, open[i].String())
	}
	return append(lines, source.EndOpen(open))
}

func showLag(seconds *float64) string {
	if seconds == nil {
		return "not known"
	}
	return output.Age(time.Duration(*seconds * float64(time.Second)))
}

// showBehind is how much WAL the slot is behind.
func showBehind(s *ops.Status) string {
	if !s.Slot.IsFresh(s.Now) {
		return "WAL not known"
	}
	return output.Bytes(s.Slot.LagBytes)
}

func (t *statusText) broker() {
	b := t.status.Broker
	if !b.Up {
		t.line("broker", "%s: %s", t.paint("down", red), b.Why)
		return
	}
	channels := ""
	if d := drivers.Named(b.Kind); d != nil && d.Broker == "" {
		t.line("broker", "up, %s", b.Kind)
		return
	}
	if b.Channels > 0 {
		channels = ", " + output.Count(b.Channels, "channel")
	}
	t.line("broker", "up, %s, %s%s, %s unanswered", b.Kind, output.Count(b.Connections, "connection"), channels, output.Count(b.PendingConfirms, "message"))
	if b.Ignored > 0 {
		t.line("", "%s returned, as no queue took it, and ignored (sink.rabbitmq.unroutable)", output.Count(int(b.Ignored), "message"))
	}
}

func (t *statusText) paused() {
	b := t.status.Broker
	if b.PausedTotal == 0 {
		return
	}
	t.line("paused", "%s; their events are deferred until the broker takes them", t.paint(output.Count(b.PausedTotal, "destination"), red))
	for _, p := range b.Paused {
		t.line("", "%s: %s: %s; since %s", p.Destination, p.Reason, p.Error, output.Age(t.status.Now.Sub(p.Since)))
		if p.Fix != "" {
			t.line("", "  %s", p.Fix)
		}
	}
	t.more(b.PausedTotal - len(b.Paused))
}

// attempts adds the failed and the retried attempts.
func (t *statusText) attempts() {
	n, r := t.status.Totals, t.status.Rates
	if n.Failed > 0 {
		t.line("failed", "%s, repeated", output.Count(n.Failed, "attempt"))
	}
	if n.Retries > 0 {
		t.line("retried", "%s to send deferred events, %.1f/s", output.Count(n.Retries, "attempt"), r.RetriesPerSecond)
	}
}

func (t *statusText) deferred() {
	p := t.status.Deferred
	if p.Events+p.Queued+p.WaitingKeys == 0 {
		return
	}
	rate := ""
	if r := t.status.Rates.DeferredPerSecond; r > 0 {
		rate = fmt.Sprintf(", %.1f/s come", r)
	}
	t.line("deferred", "%s%s%s", t.paint(output.Count(p.Events, "event"), yellow), t.age(", oldest from ", p.Oldest), rate)
	if p.Queued+p.Feeding > 0 {
		t.line("", "%s being written, %s being sent again", output.Thousands(uint64(p.Queued)), output.Thousands(uint64(p.Feeding)))
	}
	if p.WaitingKeys > 0 {
		t.line("", "%s waiting: later events wait behind a deferred one, or a dead letter", output.Count(p.WaitingKeys, "key"))
	}
}

// guard says what the disk guard does, and what it may still defer.
func (t *statusText) guard() {
	left := func(g *ops.Guard) string {
		if g.Left == nil {
			return ""
		}
		return ", " + output.Bytes(*g.Left) + " of guard.max_bytes left"
	}
	switch g := t.status.Guard; {
	case g == nil:
	case g.Full:
		t.line("guard", "%s: the tables and what is in flight have reached guard.max_bytes; %s deferred, and no more: the slot keeps WAL until the broker is back",
			t.paint("full", red), output.Count(g.Deferred, "event"))
	case g.Active:
		t.line("guard", "%s: the broker is away, and events are deferred so that the slot keeps less WAL; %s so far%s",
			t.paint("active", yellow), output.Count(g.Deferred, "event"), left(g))
	case g.Left != nil:
		t.line("guard", "off%s", left(g))
	}
}

func (t *statusText) refused() {
	p := t.status.Deferred
	if p.RefusedTotal == 0 {
		return
	}
	t.line("refused", "%s by the database; each is retried until it is accepted, and blocks its key and the slot",
		t.paint(output.Count(p.RefusedTotal, "row"), red))
	for _, r := range p.Refused {
		t.line("", "%s (%s): %s; for %s, %s behind it", r.ID, r.Position, r.Error,
			output.Age(t.status.Now.Sub(r.Since)), output.Count(r.Behind, "event"))
	}
	t.more(p.RefusedTotal - len(p.Refused))
}

func (t *statusText) dead() {
	if d := t.status.DeadLetters; d.Open > 0 {
		t.line("dead", "%s open%s", t.paint(output.Count(d.Open, "dead letter"), yellow), output.Since(t.status.Now, ", the first for ", d.Oldest, ""))
	}
}

// retention is shown of a leader that deletes.
func (t *statusText) retention() {
	r := t.status.Retention
	if r.Mode != "delete" || t.status.Role != ops.RoleLeader {
		return
	}
	t.line("retention", "%s deleted%s", output.Count(r.Deleted, "delivered row"), output.Since(t.status.Now, ", looked ", r.LastPass, " ago"))
	if r.Error != "" {
		t.line("", "%s: %s", t.paint("rows stay", red), r.Error)
	}
	if r.HeldBy != "" {
		t.line("", "%s, which reads the same tables and has not delivered their old rows", t.paint("held by slot "+r.HeldBy, yellow))
	}
}

// unsent names the tables that have rows of which nobody knows that they were sent.
func (t *statusText) unsent() {
	const most = 10_000 // that are counted
	for _, table := range slices.Sorted(maps.Keys(t.status.UnsentRows)) {
		rows, more := t.status.UnsentRows[table], ""
		if rows == 0 {
			continue
		}
		if rows >= most {
			more = " or more"
		}
		t.line("unsent", "%s", t.paint(fmt.Sprintf("%s of %s%s not known to be sent: see cdc-relay resend --unsent --dry-run", output.Count(uint64(rows), "row"), table, more), yellow))
	}
}

// unheld names the slots of other relays in which something waits for nobody.
func (t *statusText) unheld() {
	for _, u := range t.status.UnheldSlots {
		t.line("unheld", "%s", t.paint(unheldText(u), yellow))
	}
}

func unheldText(u ops.UnheldSlot) string {
	s := slot.Unheld(u)
	return fmt.Sprintf("slot %s: %s, and nobody holds it; %s", u.Name, s.Waits(), s.Fix())
}

// more adds the number of items that a list leaves out.
func (t *statusText) more(n int) {
	if n > 0 {
		t.line("", "and %s more", output.Thousands(uint64(n)))
	}
}

// age is label and how long ago at was, or nothing.
func (t *statusText) age(label string, at *time.Time) string {
	return output.Since(t.status.Now, label, at, " ago")
}

// databaseStatus is what is printed when no relay answers.
type databaseStatus struct {
	State string    `json:"state"` // stopped, or not answering while the slot is active
	Why   string    `json:"why"`
	Now   time.Time `json:"now"`

	// what the next start would stop at (exit 3): the ID that `cdc-relay accept` takes
	Finding string `json:"finding,omitempty"`

	Relay         string `json:"relay"` // why it did not answer
	SlotExists    bool   `json:"slot_exists"`
	SlotActive    bool   `json:"slot_active"`
	Holder        string `json:"holder,omitempty"`
	Confirmed     string `json:"confirmed_flush_lsn,omitempty"`
	LagBytes      int64  `json:"lag_bytes"`
	RetainedBytes int64  `json:"retained_bytes"`
	WALStatus     string `json:"wal_status,omitempty"`
	SafeWALBytes  *int64 `json:"safe_wal_bytes"` // null: unlimited, or there is no slot

	WALHeldBy []ops.OpenTransaction `json:"wal_held_by"` // as of a relay

	LastLeader  string `json:"last_leader,omitempty"`
	RecordState string `json:"record_state,omitempty"`

	Deferred    *deferredCount   `json:"deferred,omitempty"` // absent: they could not be counted
	DeadLetters *deadLetterCount `json:"dead_letters,omitempty"`
	NotCounted  string           `json:"not_counted,omitempty"` // why

	UnheldSlots []ops.UnheldSlot `json:"unheld_slots"` // as of a relay; null: not known
}

type deferredCount struct {
	Events int        `json:"events"`
	OrMore bool       `json:"or_more"`
	Oldest *time.Time `json:"oldest"` // commit time; null: there is none
}

type deadLetterCount struct {
	Open   int        `json:"open"`
	OrMore bool       `json:"or_more"`
	Oldest *time.Time `json:"oldest"` // when it died; null: there is none
}

func showDatabase(ctx context.Context, w io.Writer, c *config.Config, g *command.Options, asJSON bool, cause error) error {
	ctx, cancel := context.WithTimeout(ctx, command.DatabaseTimeout)
	defer cancel()
	v, err := queryDatabase(ctx, g)
	var stop *event.Stop
	if errors.As(err, &stop) && stop.Code == event.ExitUsage {
		return err
	}
	if err != nil {
		return fmt.Errorf("no relay answers (%w), and the database does not either: %w", cause, err)
	}
	v.setCause(cause)
	if asJSON {
		err = output.JSON(w, v)
	} else if _, err = fmt.Fprintf(w, "%-11s%s: %s\n", "state", v.State, output.Clean(v.Why)); err == nil {
		err = v.write(w, c.Source.Slot)
	}
	if err == nil && !v.SlotActive {
		// it was printed above
		err = command.Logged{Err: &event.Stop{Code: event.ExitFailure, Reason: "not_running", What: "no relay runs"}}
	}
	return err
}

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
	switch {
	case v.SlotActive:
		v.State, v.Why = stateNotAnswering, "no relay answers at the address that was asked, and "+v.Holder+" holds the slot"
	case v.SlotExists:
		v.State, v.Why = ops.StateStopped, "no relay answers, and nobody holds the slot"
	default:
		v.State, v.Why = ops.StateStopped, "no relay answers, and there is no slot"
	}
	if v.RecordState == "" || v.SlotActive {
		return &v, nil
	}
	// what the next start would stop at; a role that may not ask is told less
	if stop, err := slot.NextStop(ctx, rc); err == nil && stop != nil && stop.Code == event.ExitOperator {
		v.Why += "; the next start stops: " + stop.Error()
		v.Finding = stop.Finding
	}
	return &v, nil
}

// setCause explains why the database was asked instead of the relay.
func (v *databaseStatus) setCause(cause error) {
	v.Relay = notAsked(cause)
	var refused *client.RefusedError
	if errors.As(cause, &refused) && v.SlotActive {
		v.Why = refused.Error() + "; " + v.Holder + " holds the slot"
	}
}

// notAsked says why there is no status, of a relay.
func notAsked(cause error) string {
	var answered *client.AnswerError
	var refused *client.RefusedError
	switch {
	case errors.As(cause, &answered):
		return "does not answer with its status: " + answered.Text
	case errors.As(cause, &refused):
		return "does not tell: " + refused.Error()
	}
	return "does not answer: " + cause.Error()
}

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
	v.WALHeldBy = wiring.OpenTransactions(known.HeldBy)
	if s := known.Slot; s != nil {
		v.SlotExists, v.SlotActive, v.Holder = true, s.Active(), s.Holder
		v.Confirmed, v.WALStatus, v.SafeWALBytes = s.ConfirmedFlush.String(), s.WALStatus, s.SafeWALBytes
		snapshot := wiring.SlotSnapshot(s.Name, *s)
		v.LagBytes, v.RetainedBytes = snapshot.LagBytes(), snapshot.RetainedBytes()
	}
	if known.State != "" {
		v.countRows(ctx, pool, rc.Slot, known.SystemID)
	}
	if known.UnheldErr != nil {
		v.NotCounted = cmp.Or(v.NotCounted, known.UnheldErr.Error())
	}
	return v, nil
}

// countRows counts all rows, or a few when that takes too long.
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

const minCountLimit = 10_000

func timeOrNil(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}

func (v *databaseStatus) write(w io.Writer, slot string) error {
	leader := output.If(v.LastLeader != "", "  last leader: "+output.Clean(v.LastLeader)+"\n")
	_, err := fmt.Fprintf(printable.Text(w), "The relay %s.\nWhat the database knows of slot %q:\n%s%s%s", output.Clean(v.Relay), slot, v.slotText(), leader, v.rowsText(time.Now()))
	return err
}

// slotText shows who holds the slot, and how much of the primary's disk it retains.
func (v *databaseStatus) slotText() string {
	holder, safe := "nobody holds it", ""
	switch {
	case !v.SlotExists:
		return "  it does not exist\n"
	case v.SlotActive:
		holder = "held by " + output.Clean(v.Holder)
	}
	if v.SafeWALBytes != nil {
		safe = ", lost after " + output.Bytes(*v.SafeWALBytes) + " more"
	}
	text := fmt.Sprintf("  %s, confirmed %s, %s behind, retains %s, WAL %s%s\n", holder, output.Clean(v.Confirmed), output.Bytes(v.LagBytes), output.Bytes(v.RetainedBytes), output.Clean(v.WALStatus), safe)
	for _, line := range heldText(v.WALHeldBy) {
		text += "  " + output.Clean(line) + "\n"
	}
	return text
}

// rowsText shows how many rows the tables have, if any.
func (v *databaseStatus) rowsText(now time.Time) (text string) {
	if p := v.Deferred; p != nil && p.Events > 0 {
		text += fmt.Sprintf("  %s%s deferred%s\n", output.If(p.OrMore, "at least "), output.Count(p.Events, "event"), output.Since(now, ", oldest from ", p.Oldest, " ago"))
	}
	if d := v.DeadLetters; d != nil && d.Open > 0 {
		text += fmt.Sprintf("  %s%s open%s\n", output.If(d.OrMore, "at least "), output.Count(d.Open, "dead letter"), output.Since(now, ", the first for ", d.Oldest, ""))
	}
	if v.NotCounted != "" {
		text += fmt.Sprintf("  what is deferred or dead is not known: %s\n", output.Clean(v.NotCounted))
	}
	for _, u := range v.UnheldSlots {
		text += "  " + output.Clean(unheldText(u)) + "\n"
	}
	return text
}
