// The command events: it shows where one event is, or lists the events of a key.

package operate

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/ops"
	"github.com/cdc-relay/cdc-relay/internal/printable"
	"github.com/cdc-relay/cdc-relay/internal/wiring"
)

// NewEvents makes the command events with its subcommands show and list.
func NewEvents(g *command.Options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Show where an event is, or the events of a key",
		RunE:  command.NeedsSubcommand,
	}
	show := &cobra.Command{
		Use:   "show ID",
		Short: "Show where an event is, by its id",
		Long: `Looks up the id in the retry table, the dead letters and the outbox tables, and prints its state:

  not seen             its row is committed, and no relay has read it
  in flight            a relay has read it, and it is not settled
  deferred             it is in the retry table: why, and until when or behind which event
  dead letter          the relay gave it up
  delivered            the broker has confirmed it
  not in the table     it was deleted, or never written
  not known to be sent the slot is past it, and no confirm of it is recorded

A delivery is recorded in the database moments after the confirm. The time of the commit needs
track_commit_timestamp = on.`,
		Example: `  cdc-relay events show 6f1c0c6e-0d0e-4a39-8a4c-7e7b9a5f3f10
  cdc-relay events show 6f1c0c6e-0d0e-4a39-8a4c-7e7b9a5f3f10 --json | jq -r .state`,
		Args: command.OneArg(1, "the id of one event", "6f1c0c6e-0d0e-4a39-8a4c-7e7b9a5f3f10"),
	}
	cmd.AddCommand(newEventList(g), reads(g, show, func([]string) error { return nil }, func(ctx context.Context, d *adminClient, args []string) (any, func(io.Writer) error, error) {
		e, err := d.Event(ctx, args[0], wiring.Outboxes(d.cfg), func(ctx context.Context) dlq.Relay { return relayState(ctx, d, askNextStop(g, 0)) })
		return e, func(w io.Writer) error { return printEvent(w, e) }, err
	}))
	return cmd
}

// relayState returns how far the leading relay is. When no leader answers and nobody reads the
// slot, it returns what the next start would stop at. It is zero when the next start would not
// stop, or when this role may not ask.
func relayState(ctx context.Context, d *adminClient, nextStop nextStopReader) dlq.Relay {
	status, err := command.Status(ctx, d.cfg, "")
	if err != nil || status.Slot.Name != d.cfg.Source.Slot || status.Role != ops.RoleLeader {
		var read bool
		err := d.pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = $1 AND active)`, d.cfg.Source.Slot).Scan(&read)
		if err != nil || read {
			return dlq.Relay{}
		}
		stop, err := nextStop(ctx)
		if err != nil || stop == nil {
			return dlq.Relay{}
		}
		return dlq.Relay{Stops: stop.Error()}
	}
	settled, err := pglogrepl.ParseLSN(status.InFlight.SettledLSN)
	if err != nil { // it is not known
		settled = 0
	}
	return dlq.Relay{Streaming: true, InFlight: status.InFlight.Events, Settled: settled}
}

// nextStopReader returns what the next start would stop at, or nil when it would not stop.
type nextStopReader func(ctx context.Context) (*event.Stop, error)

// askNextStop makes a nextStopReader. It asks over connections of its own, one of them for
// replication, so it keeps an answer for the time keep.
func askNextStop(g *command.Options, keep time.Duration) nextStopReader {
	var asked time.Time
	var stop *event.Stop
	var err error
	return func(ctx context.Context) (*event.Stop, error) {
		if asked.IsZero() || time.Since(asked) >= keep {
			stop, err = nextStop(ctx, g)
			asked = time.Now()
		}
		return stop, err
	}
}

func printEvent(w io.Writer, e *dlq.Event) error {
	var d details
	d.line("event", "%s", e.ID)
	d.line("state", "%s: %s", e.State, e.Why)
	if e.State == dlq.EventUnknown {
		d.line("to send it", "`cdc-relay recover` after a lost slot; else `cdc-relay resend --id %s`", e.ID)
	}
	if e.Table != "" {
		d.line("row", "in %s%s", e.Table, labelledTime(", committed ", e.CommittedAt))
	}
	for i := range e.Rows {
		r := &e.Rows[i]
		name, since := "dead-letters", r.DiedAt
		switch {
		case r.State == dlq.Waiting:
			name, since = "deferred", &r.DeferredAt
		case r.ClosedAt != nil:
			since = r.ClosedAt
		}
		whose := ""
		if r.Copied {
			whose = ", another system's"
		}
		d.line(command.If(i == 0, "see"), "cdc-relay %s show %d (%s since %s%s)", name, r.N, r.State, timeText(*since), whose)
	}
	for i := range e.Others {
		o := &e.Others[i]
		d.line(command.If(i == 0, "also"), "in %s%s: %s: %s", o.Table, labelledTime(", committed ", o.CommittedAt), o.State, o.Why)
	}
	_, err := fmt.Fprint(w, d.String())
	return err
}

// The list of a key's events.

// eventFlags are the flags of `events list`.
type eventFlags struct {
	in           dlq.FilterInput
	limit        int
	follow, wide bool
	json         bool
	every        time.Duration
}

// eventFlagNames are the flags that choose events.
var eventFlagNames = []string{"key", "aggregate", "type", "state", "from", "to"}

// newEventList makes the command events list.
func newEventList(g *command.Options) *cobra.Command {
	var f eventFlags
	cmd := &cobra.Command{
		Use:   "list --key KEY",
		Short: "List the events of a key, newest first",
		Long: `Lists the events of a key in the retry table, the dead letters and the outbox tables, each with the
state that "events show" explains. Payloads are not printed.

Each table is searched by an index. Of a large table without one the command prints the CREATE INDEX
to run, lists what the other tables have, and exits 1: an event may be missing. The newest are known
by the commit time (track_commit_timestamp = on), else by the transaction (outbox.transaction).

Rows that were deleted are not listed: the relay knows deliveries by id and transaction alone. With
--follow it prints events as they come or change their state, until interrupted.`,
		Example: `  cdc-relay events list --key 42
  cdc-relay events list --key 42 --aggregate order --state dead-letter --from 7d
  cdc-relay events list --key 42 --follow
  cdc-relay events list --key 42 --json | jq -r '.items[] | [.id, .state] | @tsv'`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter, err := f.filter(cmd)
			if err != nil {
				return err
			}
			return f.run(cmd, g, filter)
		},
	}
	flags := cmd.Flags()
	flags.String("key", "", "`KEY` of the events")
	flags.String("aggregate", "", "`AGGREGATE` of the events")
	flags.String("type", "", "`TYPE` of the events")
	var states []string
	for _, state := range dlq.EventStates {
		states = append(states, strings.ReplaceAll(state, " ", "-"))
	}
	flags.String("state", "", "`STATE`: "+strings.Join(states[:3], ", ")+",\n"+strings.Join(states[3:], ", "))
	complete(cmd, "state", states)
	flags.String("from", "", "since `TIME` (UTC): 2026-11-20T15:04:05Z, 2026-11-20, 90m or 7d")
	flags.String("to", "", "before `TIME`, written as for --from")
	flags.IntVar(&f.limit, "limit", 50, fmt.Sprintf("at most this many events, up to %d", dlq.MaxLimit))
	flags.BoolVarP(&f.follow, "follow", "f", false, "print what comes or changes, until interrupted")
	command.Duration(flags, &f.every, "every", 2*time.Second, "with --follow: the time between two looks")
	flags.BoolVar(&f.wide, "wide", false, "print all columns, whole")
	flags.BoolVar(&f.json, "json", false, "print JSON; with --follow one object a line")
	return cmd
}

// filter makes the filter of the flags.
func (f *eventFlags) filter(cmd *cobra.Command) (dlq.EventFilter, error) {
	for _, name := range eventFlagNames {
		flag := cmd.Flags().Lookup(name)
		if !flag.Changed {
			continue
		}
		value := flag.Value.String()
		if name == "from" || name == "to" {
			at, err := command.ParseTime(value, time.Now())
			if err != nil {
				return dlq.EventFilter{}, command.UsageError(fmt.Sprintf("--%s is %q: %v", name, value, err))
			}
			value = at.Format(time.RFC3339Nano)
		}
		if _, err := f.in.Set(name, value); err != nil {
			return dlq.EventFilter{}, withExitCode(err)
		}
	}
	switch {
	case f.follow && f.every < shortestEvery:
		return dlq.EventFilter{}, command.UsageError(fmt.Sprintf("--every is %s, want at least %s", f.every, shortestEvery))
	case !f.follow && cmd.Flags().Changed("every"):
		return dlq.EventFilter{}, command.UsageError("--every has no effect without --follow")
	}
	filter, err := f.in.Events(f.limit)
	return filter, withExitCode(err)
}

// run prints the list once or, with --follow, what changes in it until it is interrupted.
func (f *eventFlags) run(cmd *cobra.Command, g *command.Options, filter dlq.EventFilter) error {
	out := cmd.OutOrStdout()
	next, streaming := askNextStop(g, followKeeps), false
	look := func(ctx context.Context, d *adminClient) (*dlq.EventList, error) {
		return d.Events(ctx, filter, wiring.Outboxes(d.cfg), func(ctx context.Context) dlq.Relay {
			relay := relayState(ctx, d, next)
			streaming = relay.Streaming
			return relay
		})
	}
	if !f.follow {
		return withAdminClient(cmd.Context(), g, 0, func(ctx context.Context, d *adminClient) error {
			list, err := look(ctx, d)
			if err == nil && f.json {
				err = command.JSON(out, list)
			} else if err == nil {
				err = printEvents(out, list, f.wide)
			}
			if err == nil && !list.Complete {
				err = incomplete(list, f.json)
			}
			return err
		})
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	d, err := openAdminClient(ctx, g)
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil:
		return err
	}
	defer d.pool.Close() // it keeps one connection, and replaces one that broke
	shown, seen := followed{json: f.json}, ""
	tick := time.NewTicker(f.every)
	defer tick.Stop()
	for {
		within, cancel := context.WithTimeout(ctx, commandTimeout)
		now, err := visibleNow(within, d)
		if err == nil && (streaming || now != seen) {
			var list *dlq.EventList
			if list, err = look(within, d); err == nil {
				err = shown.show(out, cmd.ErrOrStderr(), list)
			}
			seen = now
		}
		cancel()
		err = withExitCode(err)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// followKeeps is how long --follow keeps the answer about the next start. Without it each look
// would open connections to ask while no relay runs.
const followKeeps = time.Minute

// visibleNow returns a text that stays the same as long as no transaction has ended and the slot
// has not moved. While it stays the same, --follow need not look again, unless a relay streams,
// which knows more than the database. This saves work: each look reads the tables over connections
// that it closes afterwards (sent.InOwnConnection).
func visibleNow(ctx context.Context, d *adminClient) (now string, err error) {
	err = d.pool.QueryRow(ctx, `SELECT pg_current_snapshot()::text || coalesce((SELECT ' ' || active || ' ' || coalesce(confirmed_flush_lsn::text, '') || ' ' || coalesce(catalog_xmin::text, '')
		FROM pg_replication_slots WHERE slot_name = $1), '')`, d.cfg.Source.Slot).Scan(&now)
	return now, err
}

// incomplete is the error (exit 1) for a list in which events may be missing, with the fix.
func incomplete(list *dlq.EventList, asJSON bool) error {
	stop := &event.Stop{Code: event.ExitFailure, Reason: "incomplete", What: "events may be missing: " + command.Clean(strings.Join(list.Notes, "; "))}
	var sql []string
	for _, m := range list.Missing {
		sql = append(sql, m.SQL...)
	}
	if len(sql) > 0 && !asJSON {
		stop.Fix = "run what makes the index: " + command.Clean(strings.Join(sql, "; "))
	}
	return stop
}

func printEvents(w io.Writer, list *dlq.EventList, wide bool) error {
	text := printable.Text(w)
	if len(list.Items) == 0 {
		fmt.Fprintln(text, "none")
	} else if err := eventTable(list.Items, wide).Write(w); err != nil {
		return err
	}
	if list.More {
		fmt.Fprintln(text, "there are older ones: raise --limit, or give --to")
	}
	if list.Complete {
		for _, note := range list.Notes {
			fmt.Fprintln(text, "note: "+command.Clean(note))
		}
	}
	return nil
}

// eventTable makes the table of events: with the columns that matter most, or with all of them.
func eventTable(items []dlq.ListedEvent, wide bool) *command.Table {
	t := &command.Table{Header: []string{"AT (UTC)", "STATE", "NUMBER", "TYPE", "ID"}, Cut: []int{3, 4}}
	// a key of another aggregate is another key
	several := slices.ContainsFunc(items, func(e dlq.ListedEvent) bool { return shortText(e.Aggregate) != shortText(items[0].Aggregate) })
	if several {
		t = &command.Table{Header: []string{"AT (UTC)", "STATE", "NUMBER", "AGGREGATE", "TYPE", "ID"}, Cut: []int{3, 4, 5}}
	}
	if wide {
		t = &command.Table{Header: []string{"AT (UTC)", "STATE", "NUMBER", "TYPE", "ID", "AGGREGATE", "TABLE", "DESTINATION", "REASON", "WHY"}}
	}
	for i := range items {
		e := &items[i]
		number := "-"
		if e.N != 0 {
			number = fmt.Sprint(e.N)
		}
		row := []string{eventTime(e), e.State, number, shortText(e.Type), shortText(e.ID)}
		switch {
		case several && !wide:
			row = slices.Insert(row, 3, shortText(e.Aggregate))
		case wide:
			row = append(row, shortText(e.Aggregate), orDash(e.Table), orDash(e.Destination), orDash(e.Reason), command.Clean(e.Why))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// eventTime returns the commit time of an event. If that is not known, it returns the time in the
// event's row, with a mark.
func eventTime(e *dlq.ListedEvent) string {
	switch {
	case e.CommittedAt != nil:
		return e.CommittedAt.UTC().Format(time.DateTime)
	case e.EventTime != nil:
		return e.EventTime.UTC().Format(time.DateTime) + "*"
	}
	return "-"
}

// followed remembers what --follow has printed.
type followed struct {
	json   bool
	states map[string]string // each event's state at the last look
	notes  []string
}

// show prints the events that are new since the last look, or have another state, the oldest first.
func (f *followed) show(out, errs io.Writer, list *dlq.EventList) error {
	text := printable.Text(out)
	now, known := map[string]string{}, false
	for i := range slices.Backward(list.Items) {
		e := &list.Items[i]
		name := fmt.Sprintf("%s/%s/%v", e.Table, shortText(e.ID), e.Copied)
		if e.ID == nil {
			name = fmt.Sprint(e.N)
		}
		for now[name] != "" { // another row has the same id
			name += "+"
		}
		now[name] = e.State
		before, was := f.states[name]
		known = known || was
		if was && before == e.State {
			continue
		}
		if f.json {
			if err := command.JSONLine(out, e); err != nil {
				return err
			}
			continue
		}
		number := command.If(e.N != 0, fmt.Sprintf(" %d", e.N))
		if _, err := fmt.Fprintf(text, "%-19s  %s%s  %s  %s\n", eventTime(e), command.Clean(e.State), number, shortText(e.Type), shortText(e.ID)); err != nil {
			return err
		}
	}
	if len(f.states) > 0 && list.More && !known {
		fmt.Fprintln(printable.Text(errs), "note: more events came at once than --limit, and the older ones are not printed: raise --limit")
	}
	f.states = now
	for _, note := range list.Notes {
		if !slices.Contains(f.notes, note) {
			f.notes = append(f.notes, note)
			fmt.Fprintln(printable.Text(errs), "note: "+command.Clean(note))
		}
	}
	for _, m := range list.Missing {
		for _, sql := range m.SQL {
			if !slices.Contains(f.notes, sql) {
				f.notes = append(f.notes, sql)
				fmt.Fprintln(printable.Text(errs), "to run: "+command.Clean(sql))
			}
		}
	}
	return nil
}
