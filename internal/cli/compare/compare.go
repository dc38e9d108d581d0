// Package compare is the command `compare debezium`: it reads the messages of two relays, pairs
// them and reports what differs.
package compare

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit"
)

// The bounds of a comparison.
const (
	maxEvents  = 1_000_000 // events that one run compares; they take about 200 MB
	maxWaiting = 64 << 20  // bytes of messages of one side that wait for their counterparts
	maxShown   = 100       // differences that are printed; all are counted
)

// compareFlags are the flags of the command compare debezium.
type compareFlags struct {
	theirs, ours string
	routingKeys  []string
	from         string
	period, lag  time.Duration
	count        int64
	idHeader     string
	ignore       []string
	json         bool
}

// New makes the command compare, which groups compare debezium.
func New(g *command.Options) *cobra.Command {
	cmd := &cobra.Command{Use: "compare", Short: "Compare what two relays of one outbox send", Args: cobra.ArbitraryArgs, RunE: command.NeedsSubcommand}
	cmd.AddCommand(newCompareDebezium(g))
	return cmd
}

// newCompareDebezium makes the command compare debezium.
func newCompareDebezium(g *command.Options) *cobra.Command {
	f := &compareFlags{}
	cmd := &cobra.Command{
		Use:   "debezium",
		Short: "Compare Debezium's messages with cdc-relay's, event by event",
		Long: `Reads what Debezium (theirs) and cdc-relay (ours) send for the same outbox, and compares it event by
event: partition, key, value, headers and their order, routing key, properties, and the order within
each key. It only reads: topics without a consumer group, exchanges through its own exclusive
queues. Run both relays with their own slots, and let ours send to a topic or exchange that nobody
consumes yet. The broker is that of the configuration.

Messages are paired by the event's id, in the header id. Repeated messages, and those without an id,
are counted. Not compared are the headers __debezium.context.*, the name of the value's schema,
times, and the partition of records without a key. The topics need the same number of partitions, by
which keys are spread.

"--from now" starts with messages that arrive from now on; RabbitMQ allows nothing else. One relay
may be ahead of the other by --lag: at the start, messages of that time without a counterpart are
not counted; at the end, compare waits that long for counterparts. It ends after --for, which is one
minute with "--from now" and else the current end of the topics, or earlier after --count. It stops
when a side holds 64 MiB of messages whose counterparts do not come.

It prints no contents with admin.show_payloads: false. Exits 1 if there are
differences, if nothing could be compared, or less than --count.`,
		Example: `  cdc-relay compare debezium --theirs shop.order --ours shadow.order --for 10m
  cdc-relay compare debezium --theirs shop.order --ours shadow.order --from beginning
  cdc-relay compare debezium --theirs events --ours shadow --for 1h --ignore-header traceparent`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := g.Load()
			if err != nil {
				return err
			}
			if err := f.validate(c); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return f.run(ctx, c, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.theirs, "theirs", "", "Debezium's topic or exchange `NAME`")
	flags.StringVar(&f.ours, "ours", "", "the relay's topic or exchange `NAME`")
	flags.StringArrayVar(&f.routingKeys, "routing-key", []string{"#"}, "binding `KEY`; a direct exchange needs each one")
	flags.StringVar(&f.from, "from", "now", "`START`: now; on Kafka also beginning")
	command.Duration(flags, &f.period, "for", 0, "end after this time (default: see above)")
	flags.Int64Var(&f.count, "count", 0, "end after this many compared events")
	command.Duration(flags, &f.lag, "lag", 10*time.Second, "how far one relay may be ahead of the other")
	flags.StringVar(&f.idHeader, "id-header", "id", "`HEADER` with the event's id")
	flags.StringArrayVar(&f.ignore, "ignore-header", nil, "do not compare this `HEADER`; may be repeated")
	flags.BoolVar(&f.json, "json", false, "print JSON")
	return cmd
}

// validate checks the flags and sets defaults that depend on other flags.
func (f *compareFlags) validate(c *config.Config) error {
	_, onRabbitMQ := c.Sink.Settings.(*rabbit.Settings)
	_, onKafka := c.Sink.Settings.(*kafka.Settings)
	switch {
	case !onKafka && !onRabbitMQ:
		return command.UsageError("the sink of the configuration is neither Kafka nor RabbitMQ")
	case f.theirs == "" || f.ours == "" || f.theirs == f.ours:
		return command.UsageError("--theirs and --ours name two topics or exchanges; the default exchange cannot be bound to")
	case f.period < 0 || f.count < 0 || f.lag <= 0:
		return command.UsageError("--for and --count must not be negative, --lag must be above 0")
	case f.from != "now" && (f.from != "beginning" || onRabbitMQ):
		return command.UsageError("--from " + f.from + ": want now or beginning; on RabbitMQ use --from now, since a queue only holds messages that arrive after it was bound")
	}
	if f.from == "now" && f.period == 0 {
		f.period = time.Minute
	}
	return nil
}

// side reads the messages of one relay: from a topic or an exchange.
type side interface {
	// read hands over messages until ctx ends, or fails. An error that it returns after ctx has
	// ended means nothing.
	read(ctx context.Context, messages chan<- message) error
	// behind reports whether messages are left that were there when the side was opened.
	behind() bool
	close()
}

// run opens both sides, compares them and reports the differences.
func (f *compareFlags) run(ctx context.Context, c *config.Config, out, errs io.Writer) error {
	r := &comparison{f: f, out: out, errs: errs, shown: []difference{}}
	defer func() {
		for _, s := range r.sides {
			if s != nil {
				s.close()
			}
		}
	}()
	onKafka := false
	for i, name := range []string{f.theirs, f.ours} {
		var err error
		switch s := c.Sink.Settings.(type) {
		case *kafka.Settings:
			onKafka = true
			r.sides[i], err = openTopic(ctx, s, name, f.from == "now")
		case *rabbit.Settings:
			r.sides[i], err = openExchange(ctx, s, name, f.routingKeys)
		}
		if err != nil {
			return &event.Stop{Code: event.ExitFailure, Reason: "compare", What: "open " + sideName[i], Err: err}
		}
	}
	r.matcher = matcher{
		idHeader: f.idHeader, ignore: f.ignore, kafka: onKafka, excerpts: c.Admin.ShowPayloads, report: r.found,
		events: map[string]*pair{}, counts: counts{Differences: map[string]int64{}},
	}
	err := r.compare(ctx)
	interrupted := ctx.Err() != nil && (err == nil || errors.Is(err, context.Canceled))
	if interrupted {
		err = nil
	}
	return r.report(interrupted, err)
}

// comparison is one run of compare debezium. It hands the messages of both sides to the matcher,
// pauses a side that is far ahead, and decides when the run ends. Only reading has goroutines of
// its own.
type comparison struct {
	f         *compareFlags
	out, errs io.Writer
	sides     [2]side
	matcher   matcher
	shown     []difference // the differences that are printed

	countFrom time.Time    // from this time on, a message without a counterpart is a difference
	last      [2]time.Time // when a side's last message came; at first the start
	ended     time.Time    // when the requested end came; zero before
}

// compare reads both sides until the requested end. Its error says why it ended earlier.
func (r *comparison) compare(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	var messages [2]chan message
	for i, s := range r.sides {
		messages[i] = make(chan message)
		group.Go(func() error {
			if err := s.read(ctx, messages[i]); err != nil && ctx.Err() == nil {
				return fmt.Errorf("read %s: %w", sideName[i], err)
			}
			return nil
		})
	}
	group.Go(func() error {
		defer cancel()
		return r.pairMessages(ctx, messages)
	})
	return group.Wait()
}

// pairMessages is the loop of a comparison: it takes messages of both sides until the comparison is
// over.
func (r *comparison) pairMessages(ctx context.Context, messages [2]chan message) error {
	now, early, opened := time.Now(), time.Duration(0), "both sides are open"
	if r.f.from == "now" {
		early = r.f.lag
		opened += "; what comes in the first " + early.String() + " without a counterpart is not counted"
	}
	r.countFrom, r.last = now.Add(early), [2]time.Time{now, now}
	fmt.Fprintln(r.errs, opened)
	counting := time.After(early)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !r.isOver(time.Now()) {
		in := messages
		for side := range in {
			if r.full(side) {
				in[side] = nil // this side waits until the other one has caught up
			}
		}
		select {
		case m := <-in[theirs]:
			r.add(theirs, m)
		case m := <-in[ours]:
			r.add(ours, m)
		case <-counting:
			fmt.Fprintln(r.errs, "everything counts from here on")
		case now := <-tick.C:
			for side := range r.last {
				if r.full(side) && now.Sub(r.last[1-side]) >= r.f.lag {
					return fmt.Errorf("64 MiB of messages of %s wait for counterparts that do not come: see that both relays run, and use --from now", sideName[side])
				}
			}
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// add hands a message to the matcher.
func (r *comparison) add(side int, m message) {
	now := time.Now()
	r.last[side] = now
	m.atTheEdge = now.Before(r.countFrom) || !r.ended.IsZero()
	r.matcher.add(side, m)
}

// isOver reports whether the comparison is complete. First the requested end must come, and then
// all missing counterparts, or as much time must pass as one side may be behind.
func (r *comparison) isOver(now time.Time) bool {
	if r.ended.IsZero() {
		f := r.f
		counted := f.count > 0 && r.matcher.Compared >= f.count || len(r.matcher.events) >= maxEvents
		timed := f.period > 0 && !now.Before(r.countFrom.Add(f.period))
		read := f.period == 0 && !r.sides[theirs].behind() && !r.sides[ours].behind()
		if !counted && !timed && !read {
			return false
		}
		r.ended = now
	}
	return r.matcher.waiting == [2]int{} || now.Sub(r.ended) >= r.f.lag
}

// full reports whether a side is so far ahead that it has to wait.
func (r *comparison) full(side int) bool { return r.matcher.waiting[side] >= maxWaiting }

// found is called by the matcher at each difference. It keeps the first maxShown, and prints them
// unless the output is JSON.
func (r *comparison) found(d difference) {
	if len(r.shown) == maxShown {
		return
	}
	r.shown = append(r.shown, d)
	if r.f.json {
		return
	}
	fmt.Fprintf(r.out, "%s %s\n", command.Clean(d.ID), command.CleanLines(d.String()))
	for side, where := range d.Where {
		if where != "" {
			fmt.Fprintf(r.out, "    %-6s %s\n", sideName[side], command.Clean(where))
		}
	}
}

// report prints the summary. Its error (exit 1) says why the comparison ended early, or that there
// are differences, or that nothing was compared.
func (r *comparison) report(interrupted bool, failure error) error {
	m := &r.matcher
	m.finish(interrupted || failure != nil)
	var err error
	if r.f.json {
		err = command.JSON(r.out, struct {
			counts
			First       []difference `json:"first"`
			Interrupted bool         `json:"interrupted"`
		}{m.counts, r.shown, interrupted})
	} else {
		_, err = fmt.Fprint(r.out, command.CleanLines(r.text(interrupted)))
	}
	if err != nil {
		return err
	}
	stop := &event.Stop{Code: event.ExitFailure, Reason: "compare", Err: failure}
	switch {
	case failure != nil:
		stop.What = "compare"
	case m.total() > 0:
		stop.What = fmt.Sprintf("%s in %s", command.Count(uint64(m.total()), "difference"), command.Count(uint64(m.Compared), "compared event"))
	case m.Compared == 0:
		stop.What = "no event was compared"
		stop.Fix = "check the names of the topics or exchanges, --routing-key and --id-header, and whether both relays run"
	case m.Compared < r.f.count:
		stop.What = fmt.Sprintf("%s in place of %d", command.Count(uint64(m.Compared), "compared event"), r.f.count)
		stop.Fix = "compare for longer: --for"
	default:
		return nil
	}
	return stop
}

func (r *comparison) text(interrupted bool) string {
	m := &r.matcher
	var b strings.Builder
	line := func(label string, n int64, noun, format string, args ...any) {
		if n > 0 {
			fmt.Fprintf(&b, "%-12s "+format+"\n", append([]any{label, command.Count(uint64(n), noun)}, args...)...)
		}
	}
	line("", m.total()-int64(len(r.shown)), "difference", "%s more")
	fmt.Fprintf(&b, "%-12s %s%s: %s equal, %s not\n", "compared", command.Count(uint64(m.Compared), "event"), command.If(interrupted, ", then interrupted"),
		command.Thousands(uint64(m.Equal)), command.Thousands(uint64(m.Compared-m.Equal)))
	for side := range m.Events {
		fmt.Fprintf(&b, "%-12s %s, %s again\n", sideName[side], command.Count(uint64(m.Events[side]), "message"), command.Thousands(uint64(m.Duplicates[side])))
	}
	for _, kind := range slices.Sorted(maps.Keys(m.Differences)) {
		fmt.Fprintf(&b, "%-12s %s: %s\n", "differences", kind, command.Thousands(uint64(m.Differences[kind])))
	}
	for side := range m.Events {
		name := sideName[side]
		line("left out", m.NoID[side], "message", "%s of %s without the header %q", name, r.f.idHeader)
		line("not counted", m.AtTheEdge[side], "event", "%s of %s at the beginning or the end, whose counterpart may have come before or after", name)
	}
	return b.String()
}
