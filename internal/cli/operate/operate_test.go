package operate

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/devenv/sentinel"
	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/ops"
	"github.com/cdc-relay/cdc-relay/internal/printable"
)

// No text of an event, of a broker, of the database or of another operator reaches the terminal as
// more than text, whichever field it is in.
func TestTerminalEscapesInEveryField(t *testing.T) {
	var detail dlq.Detail
	var page dlq.Page
	var located dlq.Event
	var groups dlq.Groups
	var events dlq.EventList
	var jobs [1]dlq.Job
	var requests [2]dlq.Request
	for _, v := range []any{&detail, &page, &located, &groups, &events, &jobs, &requests} {
		sentinel.FillWithAttack(v)
	}
	open := detail // of a row that waits, and of a dead letter
	open.State, open.Fault, open.DiedAt = dlq.Waiting, nil, nil
	base64 := detail
	base64.Payload = &dlq.Content{Base64: detail.Payload.Text}
	cancelled := requests
	cancelled[0].State, cancelled[1].State = dlq.RequestCancelled, dlq.RequestWaits
	running := jobs[0]
	running.State = dlq.JobRuns

	report := func(res result, of func(*result) error) func(io.Writer) error {
		return func(w io.Writer) error {
			res.out = printable.Text(w)
			if err := of(&res); err == nil {
				return errors.New("nothing has failed")
			}
			return nil
		}
	}
	rows := result{requests: requests[:], notes: []string{sentinel.TerminalAttack}, errors: []rowError{{N: 1, Error: sentinel.TerminalAttack, err: errors.New(sentinel.TerminalAttack)}}}
	for name, show := range map[string]func(io.Writer) error{
		"show":             func(w io.Writer) error { return printDetail(w, &detail) },
		"show of deferred": func(w io.Writer) error { return printDetail(w, &open) },
		"show of bytes":    func(w io.Writer) error { return printDetail(w, &base64) },
		"list":             func(w io.Writer) error { return printRows(w, dlq.DeadLetters, page, true) },
		"list of deferred": func(w io.Writer) error { return printRows(w, dlq.Deferred, page, true) },
		"list that fits":   func(w io.Writer) error { return printRows(w, dlq.DeadLetters, page, false) },
		"groups":           func(w io.Writer) error { return printGroups(w, dlq.Deferred, &groups) },
		"events list":      func(w io.Writer) error { return printEvents(w, &events, true) },
		"events followed":  func(w io.Writer) error { return new(followed).show(w, w, &events) },
		"events show":      func(w io.Writer) error { return printEvent(w, &located) },
		"jobs":             func(w io.Writer) error { return printJobs(w, jobs[:]) },
		"a job":            report(rows, func(r *result) error { return r.reportJob(jobs[0], true) }),
		"a running job":    report(rows, func(r *result) error { return r.reportJob(running, false) }),
		"requests":         report(rows, func(r *result) error { return r.report(true) }),
		"more requests":    report(result{requests: cancelled[:], notes: rows.notes}, func(r *result) error { return r.report(false) }),
		"request":          func(w io.Writer) error { return printRequest(w, &requests[0]) },
	} {
		var out bytes.Buffer
		if err := show(&out); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		sentinel.CheckPrintedLines(t, name, out.String())
	}
	for name, v := range map[string]any{"detail": detail, "page": page, "event": located, "job": jobs, "request": requests} {
		var out bytes.Buffer
		if err := command.JSON(&out, v); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		sentinel.CheckPrintedLines(t, "--json of "+name, out.String())
	}
}

// The status comes from whoever answers at the relay's address, and has texts of the broker and of
// the database: none is more than text, whichever field it is in.
func TestTerminalEscapesInAStatus(t *testing.T) {
	var up ops.Status
	var known databaseStatus
	sentinel.FillWithAttack(&up)
	sentinel.FillWithAttack(&known)
	up.Broker.PausedTotal, up.Deferred.RefusedTotal = 2, 2
	down := up
	up.Broker.Up, known.SlotExists, known.SlotActive = true, true, true
	down.Slot.CheckedAt = time.Time{}
	attack := errors.New(sentinel.TerminalAttack)
	for name, seen := range map[string]*snapshot{
		"the broker is up":     {status: &up},
		"the broker is down":   {status: &down},
		"the relay is silent":  {noAnswer: attack, database: &known},
		"another relay":        {noAnswer: &command.AnswerError{Text: sentinel.TerminalAttack}, databaseErr: attack},
		"the database is down": {noAnswer: attack, databaseErr: attack},
	} {
		if seen.database != nil {
			var out bytes.Buffer
			if err := seen.database.write(&out, "cdc_relay"); err != nil {
				t.Error(err)
			}
			sentinel.CheckPrintedLines(t, name, out.String())
		}
		for _, asJSON := range []bool{false, true} {
			var out bytes.Buffer
			if err := seen.print(&out, asJSON); err != nil {
				t.Error(err)
			}
			sentinel.CheckPrintedLines(t, name+", a line", out.String())
		}
		if seen.status == nil {
			continue
		}
		for _, colour := range []bool{false, true} {
			var out bytes.Buffer
			if err := writeStatus(&out, seen.status, colour); err != nil {
				t.Error(err)
			}
			text := out.String()
			for _, ours := range []string{"\x1b[1;31m", "\x1b[1;32m", "\x1b[1;33m", "\x1b[0m"} {
				text = strings.ReplaceAll(text, ours, "")
			}
			sentinel.CheckPrintedLines(t, name, text)
		}
	}
}

// Of a row that is not known to be sent it is said what to do.
func TestEventNotKnownToBeSent(t *testing.T) {
	for state, said := range map[string]bool{dlq.EventUnknown: true, dlq.EventDelivered: false} {
		var out strings.Builder
		if err := printEvent(&out, &dlq.Event{State: state}); err != nil || strings.Contains(out.String(), "`cdc-relay recover`") != said {
			t.Errorf("%s: %v, %s", state, err, out.String())
		}
	}
}

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) *time.Time {
	at := noon.Add(-d)
	return &at
}

func text(t *testing.T, s *ops.Status, colour bool) string {
	t.Helper()
	var out strings.Builder
	if err := writeStatus(&out, s, colour); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// What is in flight counts, so a guard may be full while the tables are nearly empty.
func TestGuardThatIsFull(t *testing.T) {
	want := "guard      full: the tables and what is in flight have reached guard.max_bytes; 0 events deferred, and no more: the slot keeps WAL until the broker is back\n"
	if got := text(t, &ops.Status{Guard: &ops.Guard{Full: true}}, false); !strings.Contains(got, want) {
		t.Errorf("got %s, want %s in it", got, want)
	}
}

// The room is told before an outage needs it.
func TestGuardThatIsOff(t *testing.T) {
	left := int64(3 << 30)
	want := "guard      off, 3.0 GiB of guard.max_bytes left\n"
	if got := text(t, &ops.Status{Guard: &ops.Guard{Left: &left}}, false); !strings.Contains(got, want) {
		t.Errorf("got %s, want %s in it", got, want)
	}
}

func TestStatusText(t *testing.T) {
	safe := int64(3 << 30)
	for _, c := range []struct {
		name   string
		status ops.Status
		want   string
	}{
		{"a leader that works", ops.Status{
			State: ops.StateStreaming, Role: ops.RoleLeader, Version: "v1.2.3", StartedAt: noon.Add(-26 * time.Hour), Now: noon,
			Slot: ops.SlotStatus{
				Name: "cdc_relay", CheckedAt: noon.Add(-time.Second), ConfirmedFlushLSN: "0/1000", CurrentWALLSN: "0/1800", LagBytes: 2048, RetainedBytes: 5 << 20,
				LagSeconds: new(0.25), Active: true, WALStatus: "reserved", SafeWALBytes: &safe,
			},
			Broker:   ops.BrokerStatus{Kind: "rabbitmq", Up: true, Connections: 2, Channels: 32, PendingConfirms: 1},
			InFlight: ops.InFlightStatus{Events: 7, Bytes: 700, OldestUnsettled: ago(250 * time.Millisecond)},
			Rates:    ops.RatesStatus{PublishedPerSecond: 1234.56, LatencyP99Seconds: new(0.0123)},
			Totals:   ops.TotalsStatus{Published: 1234567, LastConfirm: ago(100 * time.Millisecond)},
		}, `
state      streaming
relay      leader, version v1.2.3, up 1d2h
slot       cdc_relay, lag 0.2s and 2.0 KiB, retains 5.0 MiB
           confirmed 0/1000 of 0/1800, read by a process, WAL reserved, lost after 3.0 GiB more
broker     up, rabbitmq, 2 connections, 32 channels, 1 message unanswered
in flight  7 events, 700 B, oldest from 0.2s ago
published  1,234,567 events, 1234.6/s, p99 12 ms, last confirm 0.1s ago
`},
		{"nothing is known yet", ops.Status{State: ops.StateWaiting, Why: "connection refused", Role: ops.RoleNone, Now: noon, Slot: ops.SlotStatus{Name: "s", LagSeconds: new(0.0)}, Broker: ops.BrokerStatus{Why: "starting"}}, `
state      waiting for postgres: connection refused
broker     down: starting
relay      none, version 
slot       s, lag 0s; the server has not been asked yet
in flight  0 events, 0 B
published  0 events, 0.0/s
`},
		{"a destination is paused and rows are refused, with texts that a terminal would obey", ops.Status{
			State: ops.StatePaused, Why: "2 of them", Role: ops.RoleLeader, Version: "v1", Now: noon,
			Slot: ops.SlotStatus{Name: "s", CheckedAt: noon, WALStatus: "lost", LagSeconds: new(400.0)},
			Broker: ops.BrokerStatus{Kind: "kafka", Up: true, Connections: 1, PausedTotal: 2, Paused: []ops.Paused{
				{Destination: `exchange "x"`, Reason: "no_exchange", Error: "404 NOT_FOUND\a", Since: noon.Add(-65 * time.Second), NextProbe: ago(-5 * time.Second), Fix: "bind all queues", Events: new(10_000), OrMore: true, Oldest: ago(time.Hour)},
			}, Ignored: 1},
			Totals: ops.TotalsStatus{Failed: 4, Retries: 1200},
			Rates:  ops.RatesStatus{DeferredPerSecond: 10, RetriesPerSecond: 1.5},
			Deferred: ops.DeferredStatus{
				CountedAt: noon, Events: 1003, Oldest: ago(65 * time.Minute), WaitingKeys: 12, Queued: 3, Feeding: 64, RefusedTotal: 1001,
				Refused: []ops.RefusedRow{{ID: "e\x1b[2J\n2", Position: "p2", Error: "disk full\a", Since: noon.Add(-3 * time.Hour), Behind: 1}},
			},
			DeadLetters:         ops.DeadLettersStatus{CountedAt: noon, Open: 1, Oldest: ago(26 * time.Hour)},
			UnreportedConfirmed: 1,
			WALHeldBy:           []ops.OpenTransaction{{GID: "x\n'y", Database: "other", Role: "app", Since: ago(time.Hour)}, {PID: 7, Application: "psql", Later: 5}},
			UnheldSlots:         []ops.UnheldSlot{{Name: "s_v1", Deferred: 10_000, DeadLetters: 1, OrMore: true, RetainedBytes: 2048}},
		}, `
state      destination paused: 2 of them
danger     the slot is lost: its WAL is removed; see cdc-relay check
paused     2 destinations; their events are deferred until the broker takes them
           exchange "x": no_exchange: 404 NOT_FOUND?; since 1m5s, tried again in 5.0s
             at least 10,000 events, oldest from 1h0m ago
             bind all queues
             ` + "`cdc-relay deferred retry x` tries one event now" + `
           and 1 more
refused    1,001 rows by the database; each is retried until it is accepted, and blocks its key and the slot
           e?[2J?2 (p2): disk full?; for 3h0m, 1 event behind it
           and 1,000 more
dead       1 dead letter open, the first for 1d2h: cdc-relay dead-letters list
unheld     slot s_v1: at least 10000 deferred events, 1 open dead letter, 2048 B of WAL, and nobody holds it; start a relay with source.slot: s_v1 until nothing waits there, then CDC_RELAY_SOURCE__SLOT=s_v1 cdc-relay teardown --yes; with --force it drops what still waits
relay      leader, version v1
slot       s, lag 6m40s and 0 B, retains 0 B
           confirmed  of , read by nobody, WAL lost
           keeps WAL until these transactions end:
           prepared transaction 'x?''y' of role app in database other, since 2026-11-20T11:00:00Z
           process 7 (psql), 5 transactions ago
           end them in their applications, or: COMMIT PREPARED 'x?''y', or ROLLBACK PREPARED 'x?''y', in database other; SELECT pg_terminate_backend(7)
broker     up, kafka, 1 connection, 0 messages unanswered
           1 message returned, as no queue took it, and ignored (sink.rabbitmq.unroutable)
in flight  0 events, 0 B
published  0 events, 0.0/s
failed     4 attempts, repeated
retried    1,200 attempts to send deferred events, 1.5/s
deferred   1,003 events, oldest from 1h5m ago, 10.0/s come
           3 being written, 64 being sent again
           12 keys waiting: later events wait behind a deferred one, or a dead letter
repeats    1 event confirmed behind one that is not; a crash now would send them again
`},
		{"a standby holds delivery back", ops.Status{
			State: ops.StateStreaming, Role: ops.RoleLeader, Version: "v1", Now: noon, Broker: ops.BrokerStatus{Kind: "stdout", Up: true},
			Slot:              ops.SlotStatus{Name: "s", CheckedAt: noon, ConfirmedFlushLSN: "0/1000", CurrentWALLSN: "0/1800", LagBytes: 2048, Active: true, WALStatus: "reserved", LagSeconds: new(0.0)},
			WaitingForStandby: []string{"b"},
		}, `
state      streaming
relay      leader, version v1
slot       s, lag 0s and 2.0 KiB, retains 0 B
           confirmed 0/1000 of 0/1800, read by a process, WAL reserved, no limit but the disk
           waiting for standby b, which does not have what was committed since
broker     up, stdout
in flight  0 events, 0 B
published  0 events, 0.0/s
`},
		{"a standby does not know the commits", ops.Status{
			State: ops.StateStandby, Role: ops.RoleStandby, Version: "v1", Now: noon, Broker: ops.BrokerStatus{Kind: "stdout", Up: true},
			Slot: ops.SlotStatus{Name: "s", CheckedAt: noon, ConfirmedFlushLSN: "0/1000", CurrentWALLSN: "0/1800", LagBytes: 2048, Active: true, WALStatus: "reserved"},
		}, `
state      standby
relay      standby, version v1
slot       s, lag not known and 2.0 KiB, retains 0 B
           confirmed 0/1000 of 0/1800, read by a process, WAL reserved, no limit but the disk
broker     up, stdout
in flight  0 events, 0 B
published  0 events, 0.0/s
`},
		{"PostgreSQL has not answered for long", ops.Status{
			State: ops.StateWaiting, Role: ops.RoleNone, Version: "v1", Now: noon, Broker: ops.BrokerStatus{Kind: "stdout", Up: true},
			Slot: ops.SlotStatus{
				Name: "s", CheckedAt: noon.Add(-185 * time.Second), ConfirmedFlushLSN: "0/1000", CurrentWALLSN: "0/1800", LagBytes: 2048, RetainedBytes: 5 << 20,
				LagSeconds: new(181.0), WALStatus: "reserved",
			},
		}, `
state      waiting for postgres
relay      none, version v1
slot       s, lag 3m1s; not known for 3m5s, before that 2.0 KiB behind, retained 5.0 MiB
           confirmed 0/1000 of 0/1800, read by nobody, WAL reserved, no limit but the disk, as of 3m5s ago
broker     up, stdout
in flight  0 events, 0 B
published  0 events, 0.0/s
`},
		{"dead letters alone", ops.Status{
			State: ops.StateIdle, Role: ops.RoleLeader, Version: "v1", Now: noon, Slot: ops.SlotStatus{Name: "s", LagSeconds: new(0.0)}, Broker: ops.BrokerStatus{Kind: "stdout", Up: true},
			Deferred: ops.DeferredStatus{CountedAt: noon}, DeadLetters: ops.DeadLettersStatus{CountedAt: noon, Open: 2, Oldest: ago(time.Minute)},
		}, `
state      idle
dead       2 dead letters open, the first for 1m0s: cdc-relay dead-letters list
relay      leader, version v1
slot       s, lag 0s; the server has not been asked yet
broker     up, stdout
in flight  0 events, 0 B
published  0 events, 0.0/s
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := "\n" + text(t, &c.status, false); got != c.want {
				t.Errorf("got%s\nwant%s", got, c.want)
			}
		})
	}
}

// The slot's WAL is shown without a relay, too.
func TestSlotOfTheDatabaseText(t *testing.T) {
	safe := int64(1 << 20)
	for _, c := range []struct {
		view databaseStatus
		want string
	}{
		{databaseStatus{}, "  it does not exist\n"},
		{
			databaseStatus{SlotExists: true, Confirmed: "0/1000", LagBytes: 2048, RetainedBytes: 5 << 20, WALStatus: "extended", SafeWALBytes: &safe},
			"  nobody holds it, confirmed 0/1000, 2.0 KiB behind, retains 5.0 MiB, WAL extended, lost after 1.0 MiB more\n",
		},
		{
			databaseStatus{SlotExists: true, SlotActive: true, Holder: "cdc-relay/s", Confirmed: "0/1000", RetainedBytes: 4096, WALStatus: "reserved"},
			"  held by cdc-relay/s, confirmed 0/1000, 0 B behind, retains 4.0 KiB, WAL reserved, no limit but the disk\n",
		},
	} {
		if got := c.view.slotText(); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

func TestDatabaseText(t *testing.T) {
	for _, c := range []struct {
		view databaseStatus
		want string
	}{
		{databaseStatus{Deferred: &deferredCount{}, DeadLetters: &deadLetterCount{}}, ""},
		{databaseStatus{Deferred: &deferredCount{Events: 1234, Oldest: ago(time.Hour)}, DeadLetters: &deadLetterCount{}}, "  1,234 events deferred, oldest from 1h0m ago\n"},
		{databaseStatus{Deferred: &deferredCount{}, DeadLetters: &deadLetterCount{Open: 1, Oldest: ago(time.Minute)}}, "  1 dead letter open, the first for 1m0s: cdc-relay dead-letters list\n"},
		{databaseStatus{Deferred: &deferredCount{Events: 1e6, OrMore: true}}, "  at least 1,000,000 events deferred\n"},
		{databaseStatus{NotCounted: "permission denied\a"}, "  what is deferred or dead is not known: permission denied?\n"},
	} {
		if got := c.view.rowsText(noon); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

func TestStatusColours(t *testing.T) {
	for state, colour := range stateColours {
		s := &ops.Status{State: state, Now: noon}
		if got := text(t, s, true); !strings.Contains(got, "\x1b[1;"+colour+"m"+state+"\x1b[0m") {
			t.Errorf("%s is not painted: %q", state, got)
		}
		if got := text(t, s, false); strings.Contains(got, "\x1b") {
			t.Errorf("%s is painted without being asked: %q", state, got)
		}
	}
}
