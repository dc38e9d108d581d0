// A status as text, and the parts of it that are also shown while only the database answers.

package operate

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/ops"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/sink/drivers"
)

// writeStatus writes a status for people, in plain lines, or with color on a terminal.
func writeStatus(w io.Writer, s *ops.Status, colour bool) error {
	t := statusText{status: s, colour: colour}
	t.all()
	_, err := w.Write(t.out.Bytes())
	return err
}

// all writes the whole status: the state, then what somebody has to look at, then the rest.
func (t *statusText) all() {
	s := t.status
	t.state()
	down, off := !s.Broker.Up, s.Guard != nil && !s.Guard.Active && !s.Guard.Full
	t.danger()
	if down {
		t.broker()
	}
	t.paused()
	t.refused()
	if !off {
		t.guard()
	}
	t.dead()
	t.unsent()
	for _, n := range s.OpenGaps {
		t.line("gap", "%s%s", t.paint(gapText(n), yellow), t.asOf(s.AsOf.OpenGaps))
	}
	t.unheld()
	t.relay()
	t.slot()
	if !down {
		t.broker()
	}
	t.line("in flight", "%s, %s%s", command.Count(s.InFlight.Events, "event"), command.Bytes(s.InFlight.Bytes), t.age(", oldest from ", s.InFlight.OldestUnsettled))
	p99 := ""
	if s.Rates.LatencyP99Seconds != nil {
		p99 = ", p99 " + latencyText(*s.Rates.LatencyP99Seconds)
	}
	t.line("published", "%s, %.1f/s%s%s", command.Count(s.Totals.Published, "event"), s.Rates.PublishedPerSecond, p99, t.age(", last confirm ", s.Totals.LastConfirm))
	t.attempts()
	t.deferred()
	if off {
		t.guard()
	}
	t.retention()
	if s.UnreportedConfirmed > 0 {
		t.line("repeats", "%s confirmed behind one that is not; a crash now would send them again", command.Count(s.UnreportedConfirmed, "event"))
	}
}

// danger writes that the slot's WAL is lost or soon will be, and what to do.
func (t *statusText) danger() {
	text := slotDanger(&t.status.Slot)
	if text == "" {
		return
	}
	fix := "; " + raiseLimit
	if t.status.Slot.WALStatus == "lost" {
		fix = ": its WAL is removed; see cdc-relay check"
	}
	t.line("danger", "%s%s", t.paint("the "+text, red), fix)
}

// raiseLimit is the statement that gains time before a slot is lost. It needs no restart.
const raiseLimit = "raise the limit if the disk has room: ALTER SYSTEM SET max_slot_wal_keep_size = '…'; SELECT pg_reload_conf()"

// When a slot is in danger: it keeps more than dangerShare of what max_slot_wal_keep_size allows,
// as in the alert CdcRelaySlotNearLimit, or at the present pace it is lost within dangerSeconds.
const (
	dangerShare   = 0.7
	dangerSeconds = 15 * 60
)

// slotDanger says that the slot is lost, or is about to be. It returns "" for a slot that is in no
// danger.
func slotDanger(s *ops.SlotStatus) string {
	switch {
	case s.WALStatus == "lost":
		return "slot is lost"
	case s.SafeWALBytes != nil && *s.SafeWALBytes <= 0, s.WALStatus == "unreserved":
		return "slot is lost at the next checkpoint, unless it confirms more before"
	case s.SafeWALBytes == nil:
		return ""
	case float64(s.RetainedBytes) >= dangerShare*float64(s.RetainedBytes+*s.SafeWALBytes), s.SafeWALSeconds != nil && *s.SafeWALSeconds < dangerSeconds:
		return "slot is" + strings.TrimPrefix(lostText(s), ",")
	}
	return ""
}

// lostText says how much more WAL may be written before the slot is lost, and how soon that is.
func lostText(s *ops.SlotStatus) string {
	switch safe := s.SafeWALBytes; {
	case s.WALStatus == "lost" || s.CheckedAt.IsZero():
		return ""
	case safe == nil:
		return ", no limit but the disk"
	case *safe <= 0:
		return ", lost at the next checkpoint"
	}
	text := ", lost after " + command.Bytes(*s.SafeWALBytes) + " more"
	if s.SafeWALSeconds != nil {
		text += ", at this rate in about " + command.Age(time.Duration(*s.SafeWALSeconds*float64(time.Second)))
	}
	return text
}

// statusText writes a status into out.
type statusText struct {
	status *ops.Status
	colour bool
	out    bytes.Buffer
}

// The colors of a state: it works, it waits, somebody has to act.
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

// painted is a text of ours, which may have control sequences for color. line does not clean it.
type painted string

func (t *statusText) paint(text, colour string) painted {
	text = command.Clean(text)
	if t.colour && colour != "" {
		text = "\x1b[1;" + colour + "m" + text + "\x1b[0m"
	}
	return painted(text)
}

// line writes a line with a label. It cleans the texts in it, which are from the broker, the server
// or whoever answers at the relay's address.
func (t *statusText) line(label, format string, args ...any) {
	for i, arg := range args {
		if text, ok := arg.(string); ok {
			args[i] = command.Clean(text)
		}
	}
	fmt.Fprintf(&t.out, "%-11s"+format+"\n", append([]any{label}, args...)...)
}

func (t *statusText) state() {
	s := t.status
	t.line("state", "%s%s", t.paint(s.State, stateColours[s.State]), command.Clean(strings.TrimPrefix(StateText(s), s.State)))
}

func (t *statusText) relay() {
	s := t.status
	up := ""
	if !s.StartedAt.IsZero() {
		up = ", up " + command.Age(s.Now.Sub(s.StartedAt))
	}
	t.line("relay", "%s, version %s%s", s.Role, s.Version, up)
	if len(s.Standbys) > 0 {
		t.line("standbys", "%s", standbysText(s.Standbys))
	}
}

// standbysText names the relays that stand by.
func standbysText(list []ops.Relay) string {
	names := make([]string, len(list))
	for i, r := range list {
		names[i] = r.Name + command.If(r.Address != "", " ("+r.Address+")")
	}
	return strings.Join(names, ", ")
}

// StateText returns the state, and why.
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
	checked := command.Age(t.status.Now.Sub(slot.CheckedAt))
	if slot.IsFresh(t.status.Now) {
		t.line("slot", "%s, lag %s and %s, retains %s", slot.Name, lag, command.Bytes(slot.LagBytes), command.Bytes(slot.RetainedBytes))
	} else {
		t.line("slot", "%s, lag %s; not known for %s, before that %s behind, retained %s", slot.Name, lag, t.paint(checked, red), command.Bytes(slot.LagBytes), command.Bytes(slot.RetainedBytes))
	}
	reader := "read by a process"
	if !slot.Active {
		reader = "read by nobody"
	}
	wal := t.paint(slot.WALStatus, "")
	if slot.WALStatus == "unreserved" || slot.WALStatus == "lost" {
		wal = t.paint(slot.WALStatus, red)
	}
	t.line("", "confirmed %s of %s, %s, WAL %s%s%s",
		slot.ConfirmedFlushLSN, slot.CurrentWALLSN, reader, wal, lostText(&slot), t.asOf(&slot.CheckedAt))
	for _, line := range heldText(t.status.WALHeldBy) {
		t.line("", "%s", t.paint(line, yellow))
	}
	if waiting := t.status.WaitingForStandby; len(waiting) > 0 {
		t.line("", "%s, which does not have what was committed since", t.paint("waiting for standby "+strings.Join(waiting, ", "), yellow))
	}
}

// heldText says which transactions make the slot keep WAL, and how to end them.
func heldText(list []ops.OpenTransaction) []string {
	if len(list) == 0 {
		return nil
	}
	lines, open := []string{"keeps WAL until these transactions end:"}, make([]source.OpenTransaction, len(list))
	for i, t := range list {
		open[i] = source.OpenTransaction(t)
		lines = append(lines, open[i].String())
	}
	return append(lines, source.EndTransactionsHint(open))
}

func showLag(seconds *float64) string {
	if seconds == nil {
		return "not known"
	}
	return command.Age(time.Duration(*seconds * float64(time.Second)))
}

// showBehind says how much WAL the slot is behind, if that is known.
func showBehind(s *ops.Status) string {
	if !s.Slot.IsFresh(s.Now) {
		return "WAL not known"
	}
	return command.Bytes(s.Slot.LagBytes)
}

func (t *statusText) broker() {
	b := t.status.Broker
	if !b.Up {
		why := command.If(b.Why != t.status.Why, ": "+b.Why) // the line state has the same reason
		t.line("broker", "%s%s%s", t.paint("down", red), downText(t.status), why)
		return
	}
	channels := ""
	if d := drivers.ByName(b.Kind); d != nil && d.Broker == "" {
		t.line("broker", "up, %s", b.Kind)
		return
	}
	if b.Channels > 0 {
		channels = ", " + command.Count(b.Channels, "channel")
	}
	t.line("broker", "up, %s, %s%s, %s unanswered", b.Kind, command.Count(b.Connections, "connection"), channels, command.Count(b.PendingConfirms, "message"))
	if b.Ignored > 0 {
		t.line("", "%s returned, as no queue took it, and ignored (sink.rabbitmq.unroutable)", command.Count(int(b.Ignored), "message"))
	}
}

// downText says for how long the broker has been down, if that is known.
func downText(s *ops.Status) string {
	at := s.Broker.DownSince
	if at == nil {
		return ""
	}
	return command.Since(s.Now, " for ", at, ", since "+at.UTC().Format(time.RFC3339))
}

func (t *statusText) paused() {
	b := t.status.Broker
	if b.PausedTotal == 0 {
		return
	}
	t.line("paused", "%s; their events are deferred until the broker takes them", t.paint(command.Count(b.PausedTotal, "destination"), red))
	for _, p := range b.Paused {
		next := ""
		if p.NextProbe != nil {
			next = ", tried again in " + command.Age(p.NextProbe.Sub(t.status.Now))
		}
		t.line("", "%s: %s: %s; since %s%s", p.Destination, p.Reason, p.Error, command.Age(t.status.Now.Sub(p.Since)), next)
		if p.Events != nil {
			t.line("", "  %s%s%s%s", command.If(p.OrMore, "at least "), command.Count(*p.Events, "event"), t.age(", oldest from ", p.Oldest), t.asOf(t.status.AsOf.Deferred))
		}
		if p.Fix != "" {
			t.line("", "  %s", p.Fix)
		}
		// events that wait only in a lane have no row
		if name := p.RetryName(); name != "" && p.Events != nil && *p.Events > 0 {
			t.line("", "  `cdc-relay deferred retry %s` tries one event now", shellWord(name))
		}
	}
	t.more(b.PausedTotal - len(b.Paused))
}

// shellWord quotes a text so that it is one word of a shell.
func shellWord(text string) string {
	if text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-./:@%+=,", r))
	}) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// attempts writes how many attempts have failed, and how many events were retried.
func (t *statusText) attempts() {
	n, r := t.status.Totals, t.status.Rates
	if n.Failed > 0 {
		t.line("failed", "%s, repeated", command.Count(n.Failed, "attempt"))
	}
	if n.Retries > 0 {
		t.line("retried", "%s to send deferred events, %.1f/s", command.Count(n.Retries, "attempt"), r.RetriesPerSecond)
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
	t.line("deferred", "%s%s%s%s", t.paint(command.Count(p.Events, "event"), yellow), t.age(", oldest from ", p.Oldest), rate, t.asOf(t.status.AsOf.Deferred))
	if p.Queued+p.Feeding > 0 {
		t.line("", "%s being written, %s being sent again", command.Thousands(uint64(p.Queued)), command.Thousands(uint64(p.Feeding)))
	}
	if p.WaitingKeys > 0 {
		t.line("", "%s waiting: later events wait behind a deferred one, or a dead letter", command.Count(p.WaitingKeys, "key"))
	}
}

// guard writes what the disk guard does, and how much more it may defer.
func (t *statusText) guard() {
	left := func(g *ops.Guard) string {
		if g.Left == nil {
			return ""
		}
		return ", " + command.Bytes(max(0, *g.Left)) + " of guard.max_bytes left"
	}
	switch g := t.status.Guard; {
	case g == nil:
	case g.Full:
		t.line("guard", "%s: the tables and what is in flight have reached guard.max_bytes; %s deferred, and no more: the slot keeps WAL until the broker is back",
			t.paint("full", red), command.Count(g.Deferred, "event"))
	case g.Active:
		t.line("guard", "%s: the broker is away, and events are deferred so that the slot keeps less WAL; %s so far%s",
			t.paint("active", yellow), command.Count(g.Deferred, "event"), left(g))
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
		t.paint(command.Count(p.RefusedTotal, "row"), red))
	for _, r := range p.Refused {
		t.line("", "%s (%s): %s; for %s, %s behind it", r.ID, r.Position, r.Error,
			command.Age(t.status.Now.Sub(r.Since)), command.Count(r.Behind, "event"))
	}
	t.more(p.RefusedTotal - len(p.Refused))
}

func (t *statusText) dead() {
	if d := t.status.DeadLetters; d.Open > 0 {
		t.line("dead", "%s open%s%s: cdc-relay dead-letters list", t.paint(command.Count(d.Open, "dead letter"), yellow), command.Since(t.status.Now, ", the first for ", d.Oldest, ""), t.asOf(t.status.AsOf.DeadLetters))
	}
}

// retention writes what retention deletes. Only a leader that deletes has the line.
func (t *statusText) retention() {
	r := t.status.Retention
	if r.Mode != "delete" || t.status.Role != ops.RoleLeader {
		return
	}
	t.line("retention", "%s deleted%s", command.Count(r.Deleted, "delivered row"), command.Since(t.status.Now, ", looked ", r.LastPass, " ago"))
	if r.Error != "" {
		t.line("", "%s: %s", t.paint("rows stay", red), r.Error)
	}
	if r.HeldBy != "" {
		t.line("", "%s, which reads the same tables and has not delivered their old rows", t.paint("held by slot "+r.HeldBy, yellow))
	}
}

// unsent names the tables with rows that are not known to be sent.
func (t *statusText) unsent() {
	const most = 10_000 // so many are counted at most
	for _, table := range slices.Sorted(maps.Keys(t.status.UnsentRows)) {
		rows, more := t.status.UnsentRows[table], ""
		if rows == 0 {
			continue
		}
		if rows >= most {
			more = " or more"
		}
		t.line("unsent", "%s", t.paint(fmt.Sprintf("%s of %s%s not known to be sent: see cdc-relay resend --unsent --dry-run", command.Count(uint64(rows), "row"), table, more), yellow)+painted(t.asOf(t.status.AsOf.UnsentRows)))
	}
}

// gapText says what to do about an accepted gap that is open.
func gapText(n int64) string {
	return fmt.Sprintf("gap %d was accepted: rows of it may never have been sent; see cdc-relay resend --gap %[1]d --dry-run", n)
}

// unheld names the slots of other relays in which something waits and that nobody holds.
func (t *statusText) unheld() {
	for _, u := range t.status.UnheldSlots {
		t.line("unheld", "%s%s", t.paint(unheldText(u), yellow), t.asOf(t.status.AsOf.UnheldSlots))
	}
}

func unheldText(u ops.UnheldSlot) string {
	s := slot.Unheld(u)
	return fmt.Sprintf("slot %s: %s, and nobody holds it; %s", u.Name, s.Waits(), s.Fix())
}

// more says how many items a list leaves out.
func (t *statusText) more(n int) {
	if n > 0 {
		t.line("", "and %s more", command.Thousands(uint64(n)))
	}
}

// freshText is the age from which on a number is shown with its age.
const freshText = time.Second

// asOf says when a number was read that is read at intervals. It returns "" when that was just now
// or is not known.
func (t *statusText) asOf(at *time.Time) string {
	if at == nil || at.IsZero() || t.status.Now.Sub(*at) <= freshText {
		return ""
	}
	return t.age(", as of ", at)
}

// age returns label and how long ago at was, or "" when at is nil.
func (t *statusText) age(label string, at *time.Time) string {
	return command.Since(t.status.Now, label, at, " ago")
}

// latencyText writes a latency, which is a few milliseconds as a rule.
func latencyText(seconds float64) string {
	switch {
	case seconds < 0.01:
		return fmt.Sprintf("%.1f ms", seconds*1000)
	case seconds < 1:
		return fmt.Sprintf("%.0f ms", seconds*1000)
	}
	return command.Age(time.Duration(seconds * float64(time.Second)))
}
