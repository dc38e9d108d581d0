package main

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/cdc-relay/cdc-relay/internal/ops"
)

// writeStatus describes a status for people, in plain lines, or with colour on a terminal.
func writeStatus(w io.Writer, s *ops.Status, colour bool) error {
	t := statusText{status: s, colour: colour}
	t.head()
	t.rest()
	_, err := w.Write(t.out.Bytes())
	return err
}

// rest is all but the head.
func (t *statusText) rest() {
	s := t.status
	t.slot()
	t.broker()
	t.paused()
	t.line("in flight", "%s, %s%s", count(s.InFlight.Events, "event"), showBytes(s.InFlight.Bytes), t.age(", oldest from ", s.InFlight.OldestUnsettled))
	t.line("published", "%s, %.1f/s%s", count(s.Totals.Published, "event"), s.Rates.PublishedPerSecond, t.age(", last confirm ", s.Totals.LastConfirm))
	t.attempts()
	t.parked()
	t.refused()
	t.dead()
	if s.UnreportedConfirmed > 0 {
		t.line("repeats", "%s confirmed behind one that is not; a crash now would send them again", count(s.UnreportedConfirmed, "event"))
	}
}

type statusText struct {
	status *ops.Status
	colour bool
	out    bytes.Buffer
}

// The colours of a state: it works, it waits for somebody, somebody has to do something.
const (
	green  = "32"
	yellow = "33"
	red    = "31"
)

var stateColours = map[string]string{
	ops.StateStreaming: green, ops.StateIdle: green, ops.StateStandby: green,
	ops.StateStarting: yellow, ops.StateStopping: yellow, ops.StateCatchingUp: yellow, ops.StatePaused: yellow, ops.StateParking: yellow,
	ops.StateWaiting: red, ops.StateBrokerDown: red, ops.StateStopped: red,
}

func (t *statusText) paint(text, colour string) string {
	if !t.colour || colour == "" {
		return text
	}
	return "\x1b[1;" + colour + "m" + text + "\x1b[0m"
}

// line writes a label in a column of its own and what it says.
func (t *statusText) line(label, format string, args ...any) {
	fmt.Fprintf(&t.out, "%-11s"+format+"\n", append([]any{label}, args...)...)
}

func (t *statusText) head() {
	s := t.status
	t.line("state", "%s%s", t.paint(s.State, stateColours[s.State]), clean(strings.TrimPrefix(stateWords(s), s.State)))
	up := ""
	if !s.StartedAt.IsZero() {
		up = ", up " + showAge(s.Now.Sub(s.StartedAt))
	}
	t.line("relay", "%s, version %s%s", s.Role, clean(s.Version), up)
}

// stateWords is the state, and why.
func stateWords(s *ops.Status) string {
	if s.Why == "" {
		return s.State
	}
	return s.State + ": " + s.Why
}

func (t *statusText) slot() {
	slot := t.status.Slot
	lag := showLag(slot.LagSeconds)
	if slot.CheckedAt.IsZero() {
		t.line("slot", "%s, lag %s; the server has not been asked yet", clean(slot.Name), lag)
		return
	}
	checked := showAge(t.status.Now.Sub(slot.CheckedAt))
	if slot.Known(t.status.Now) {
		t.line("slot", "%s, lag %s and %s, retains %s", clean(slot.Name), lag, showBytes(slot.LagBytes), showBytes(slot.RetainedBytes))
	} else {
		t.line("slot", "%s, lag %s; not known for %s, before that %s behind, retained %s", clean(slot.Name), lag, t.paint(checked, red), showBytes(slot.LagBytes), showBytes(slot.RetainedBytes))
	}
	reader := "read by a process"
	if !slot.Active {
		reader = "read by nobody"
	}
	safe := ""
	if slot.SafeWALBytes != nil {
		safe = ", lost after " + showBytes(*slot.SafeWALBytes) + " more"
	}
	wal := slot.WALStatus
	if wal == "unreserved" || wal == "lost" {
		wal = t.paint(wal, red)
	}
	t.line("", "confirmed %s of %s, %s, WAL %s%s, asked %s ago",
		slot.ConfirmedFlushLSN, slot.CurrentWALLSN, reader, wal, safe, checked)
}

func showLag(seconds *float64) string {
	if seconds == nil {
		return "not known"
	}
	return showSeconds(*seconds)
}

// showBehind is how much WAL the slot is behind.
func showBehind(s *ops.Status) string {
	if !s.Slot.Known(s.Now) {
		return "WAL not known"
	}
	return showBytes(s.Slot.LagBytes)
}

func (t *statusText) broker() {
	b := t.status.Broker
	if !b.Up {
		t.line("broker", "%s: %s", t.paint("down", red), clean(b.Why))
		return
	}
	channels := ""
	switch b.Kind {
	case ops.SinkStdout:
		t.line("broker", "up, %s", b.Kind)
		return
	case ops.SinkRabbitMQ:
		channels = ", " + count(b.Channels, "channel")
	}
	t.line("broker", "up, %s, %s%s, %s unanswered", clean(b.Kind), count(b.Connections, "connection"), channels, count(b.PendingConfirms, "message"))
}

func (t *statusText) paused() {
	b := t.status.Broker
	if b.PausedTotal == 0 {
		return
	}
	t.line("paused", "%s; their events are parked until the broker takes them", t.paint(count(b.PausedTotal, "destination"), red))
	for _, p := range b.Paused {
		t.line("", "%s: %s: %s; since %s", clean(p.Destination), clean(p.Reason), clean(p.Error), showAge(t.status.Now.Sub(p.Since)))
	}
	t.more(b.PausedTotal - len(b.Paused))
}

// attempts are those that did not publish at the first go.
func (t *statusText) attempts() {
	n, r := t.status.Totals, t.status.Rates
	if n.Failed > 0 {
		t.line("failed", "%s, made again", count(n.Failed, "attempt"))
	}
	if n.Retries > 0 {
		t.line("retried", "%s to send parked events, %.1f/s", count(n.Retries, "attempt"), r.RetriesPerSecond)
	}
}

func (t *statusText) parked() {
	p := t.status.Parked
	if p.Events+p.Queued+p.WaitingKeys == 0 {
		return
	}
	rate := ""
	if r := t.status.Rates.ParkedPerSecond; r > 0 {
		rate = fmt.Sprintf(", %.1f/s come", r)
	}
	t.line("parked", "%s%s%s", t.paint(count(p.Events, "event"), yellow), t.age(", oldest from ", p.Oldest), rate)
	if p.Queued+p.Feeding > 0 {
		t.line("", "%s being written, %s being sent again", thousands(uint64(p.Queued)), thousands(uint64(p.Feeding)))
	}
	if p.WaitingKeys > 0 {
		t.line("", "%s held: their later events wait behind a parked one, or a dead letter", count(p.WaitingKeys, "key"))
	}
}

func (t *statusText) refused() {
	p := t.status.Parked
	if p.RefusedTotal == 0 {
		return
	}
	t.line("refused", "%s by the database; each is tried again for ever, and keeps its key and the WAL from there on",
		t.paint(count(p.RefusedTotal, "row"), red))
	for _, r := range p.Refused {
		t.line("", "%s (%s): %s; for %s, %s behind it", clean(r.ID), clean(r.Position), clean(r.Error),
			showAge(t.status.Now.Sub(r.Since)), count(r.Behind, "event"))
	}
	t.more(p.RefusedTotal - len(p.Refused))
}

func (t *statusText) dead() {
	if d := t.status.DeadLetters; d.Open > 0 {
		t.line("dead", "%s open%s", t.paint(count(d.Open, "letter"), yellow), since(t.status.Now, ", the first for ", d.Oldest, ""))
	}
}

// more is the line for what a list does not name.
func (t *statusText) more(n int) {
	if n > 0 {
		t.line("", "and %s more", thousands(uint64(n)))
	}
}

// age is label and how long ago at was, or nothing.
func (t *statusText) age(label string, at *time.Time) string {
	return since(t.status.Now, label, at, " ago")
}

// since is how long ago at was between two words, or nothing.
func since(now time.Time, before string, at *time.Time, after string) string {
	if at == nil {
		return ""
	}
	return before + showAge(now.Sub(*at)) + after
}

// clean replaces what a terminal would obey rather than show: ids and a broker's words come from elsewhere.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

func count[N int | uint64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return thousands(uint64(n)) + " " + noun + "s"
}

// thousands groups digits: 1,234,567.
func thousands(n uint64) string {
	digits := strconv.FormatUint(n, 10)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

func showBytes(n int64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return strconv.FormatInt(n, 10) + " B"
	}
	value, unit := float64(n)/1024, 0
	for value >= 1024 && unit < len(units)-1 {
		value /= 1024
		unit++
	}
	return fmt.Sprintf("%.1f %ciB", value, units[unit])
}

// showAge is as exact as it is of use: 0.3s, 42s, 5m7s, 3h2m, 4d5h. Clocks that disagree make no negative age.
func showAge(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d <= 0:
		return "0s"
	case d < 10*time.Second:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + "s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second)
	case d < day:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
}
