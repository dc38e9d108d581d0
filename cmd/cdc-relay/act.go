package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// act is a command that asks for something about rows: by their numbers, or by a filter.
type act struct {
	kind                 dlq.Kind
	of                   dlq.Of
	done                 string // what a row is then
	short, long, example string
}

// actFlags are what was written on the command line of an act.
type actFlags struct {
	act
	filterFlags
	ns                          []int64
	all, dryRun, json           bool
	rate, reason                string
	perSecond                   int
	exchange, routingKey, topic string
	wait                        time.Duration
}

func newAct(g *global, a act) *cobra.Command {
	f := &actFlags{act: a}
	cmd := &cobra.Command{
		Use: string(a.kind) + " [NUMBER...]", Short: a.short, Long: a.long, Example: a.example,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := g.load()
			if err != nil {
				return err
			}
			if err := f.check(args, c); err != nil {
				return err
			}
			return g.atDesk(cmd.Context(), f.wait, func(ctx context.Context, d *desk) error { return f.run(ctx, cmd, d) })
		},
	}
	f.filterFlags.add(cmd, a.of)
	flags := cmd.Flags()
	flags.BoolVar(&f.all, "all", false, "all rows that the filter chooses; without a filter, all")
	flags.BoolVar(&f.dryRun, "dry-run", false, "say what would be done, and change nothing")
	flags.StringVar(&f.rate, "rate", "", "with --all: at most so many per second, such as 50/s")
	flags.StringVar(&f.reason, "reason", "", "why: it is kept with who asked, and when")
	flags.DurationVar(&f.wait, "wait", 30*time.Second, "wait so long for the relay to carry it out; 0: only ask")
	flags.BoolVar(&f.json, "json", false, "print JSON")
	if a.kind == dlq.Replay {
		flags.StringVar(&f.exchange, "exchange", "", "RabbitMQ: publish to this exchange instead")
		flags.StringVar(&f.routingKey, "routing-key", "", "RabbitMQ: publish with this routing key instead")
		flags.StringVar(&f.topic, "topic", "", "Kafka: publish to this topic instead")
	}
	return cmd
}

// check reads what the flags say; no database is needed for it.
func (f *actFlags) check(args []string, c *config.Config) (err error) {
	if f.ns, err = numbers("a row", commandOf(f.of)+" list", args); err != nil {
		return err
	}
	if _, err := f.filter(context.Background(), nil); err != nil {
		return err
	}
	filter, filtered := f.first()
	// An id names one event, and purge --key one person: neither needs --all.
	named := f.given("id") || f.kind == dlq.Purge && (f.given("key") || f.given("key-of"))
	switch {
	case len(f.ns) > 0 && f.all:
		return usageError("numbers are given beside --all; one of the two")
	case len(f.ns) > 0 && filtered:
		return usageError("numbers are given beside --" + filter + "; one of the two")
	case len(f.ns) > 0:
	case !f.all && filtered && !named:
		return usageError(fmt.Sprintf("--%s chooses rows by a filter: say --all to %s all of them, or name them by their numbers", filter, f.kind))
	case !f.all && !named:
		return usageError(fmt.Sprintf("which? Name rows by the numbers that the list shows or by --id, or say --all with a filter: `%s %s --help`", commandOf(f.of), f.kind))
	}
	if f.wait < 0 {
		return usageError(fmt.Sprintf("--wait is %s, want a time such as 30s, or 0", f.wait))
	}
	if f.given("rate") {
		if len(f.ns) > 0 || f.given("id") && !f.all {
			return usageError("--rate is for --all")
		}
		if f.perSecond, err = parseRate(f.rate); err != nil {
			return usageError(err.Error())
		}
	}
	return f.checkRoute(c)
}

// checkRoute wants a place of the broker that is configured.
func (f *actFlags) checkRoute(c *config.Config) error {
	if f.kind != dlq.Replay {
		return nil
	}
	amqp := f.given("exchange") || f.given("routing-key")
	switch {
	case amqp && c.Sink.RabbitMQ == nil:
		return usageError("--exchange and --routing-key are RabbitMQ's, and sink.rabbitmq is not configured")
	case f.given("topic") && c.Sink.Kafka == nil:
		return usageError("--topic is Kafka's, and sink.kafka is not configured")
	case f.given("topic") && f.topic == "":
		return usageError("--topic is empty")
	case len(f.exchange) > 255 || len(f.routingKey) > 255:
		return usageError("--exchange and --routing-key have 255 bytes at most")
	}
	return nil
}

// route is where a replay goes; what is nil stays as it was.
func (f *actFlags) route() (r outbox.Route) {
	if f.kind != dlq.Replay {
		return r
	}
	if f.given("exchange") {
		r.Name = append([]byte{}, f.exchange...)
	}
	if f.given("topic") {
		r.Name = append([]byte{}, f.topic...)
	}
	if f.given("routing-key") {
		r.RoutingKey = append([]byte{}, f.routingKey...)
	}
	return r
}

func (f *actFlags) run(ctx context.Context, cmd *cobra.Command, d *desk) error {
	by, err := d.by(ctx, f.reason)
	if err != nil {
		return err
	}
	out := &answer{out: cmd.OutOrStdout(), errs: cmd.ErrOrStderr(), json: f.json, dry: f.dryRun, act: f.act}
	if f.given("id") && !f.all {
		if f.ns, err = f.ofEvent(ctx, d); err != nil {
			return err
		}
	}
	if len(f.ns) > 0 {
		return f.some(ctx, d, by, out)
	}
	return f.bulk(ctx, d, by, out)
}

// ofEvent gives the numbers of the rows of an event that allow what is asked for; if none does the newest, to say why.
func (f *actFlags) ofEvent(ctx context.Context, d *desk) (ns []int64, err error) {
	filter, err := f.filter(ctx, d)
	if err != nil {
		return nil, err
	}
	page, err := d.List(ctx, f.of, filter, "", dlq.MaxLimit)
	if err != nil {
		return nil, err
	}
	if len(page.Rows) == 0 {
		return nil, fmt.Errorf("there is no %s of event %q; `cdc-relay events show` tells where it is", (&answer{act: f.act}).noun(), f.id)
	}
	for _, row := range page.Rows {
		if d.Would(ctx, dlq.Ask{Kind: f.kind, N: row.N}) == nil {
			ns = append(ns, row.N)
		}
	}
	if len(ns) == 0 {
		ns = []int64{page.Rows[0].N}
	}
	return ns, nil
}

// some asks about rows by their numbers.
func (f *actFlags) some(ctx context.Context, d *desk, by dlq.By, out *answer) error {
	for _, n := range f.ns {
		ask := dlq.Ask{Kind: f.kind, N: n, Route: f.route(), By: by}
		if f.dryRun {
			out.would(n, d.Would(ctx, ask))
			continue
		}
		r, err := d.Request(ctx, ask)
		if err != nil && !out.refused(n, err) {
			return err
		} else if err == nil {
			out.asked = append(out.asked, r)
		}
	}
	if f.dryRun {
		return out.end(false)
	}
	runs, err := d.awaitRequests(ctx, out.asked, f.wait, f.given("wait"))
	if err != nil {
		return err
	}
	return out.end(runs)
}

// bulk asks about the rows that the filter chooses.
func (f *actFlags) bulk(ctx context.Context, d *desk, by dlq.By, out *answer) error {
	filter, err := f.filter(ctx, d)
	if err != nil {
		return err
	}
	b := dlq.Bulk{Kind: f.kind, Filter: filter, Route: f.route(), Rate: f.perSecond, By: by}
	if f.dryRun {
		n, err := d.Match(ctx, b)
		if err != nil {
			return err
		}
		return out.wouldAll(n)
	}
	job, err := d.Start(ctx, b)
	if err != nil {
		return err
	}
	runs := true
	if job.ID != 0 {
		if job, runs, err = d.awaitJob(ctx, job, f.wait, f.given("wait"), out.progress); err != nil {
			return err
		}
	}
	return out.job(job, runs)
}

// numbers reads numbers of rows, requests or jobs, which a command shows.
func numbers(what, shown string, args []string) ([]int64, error) {
	var ns []int64
	for _, arg := range args {
		n, err := strconv.ParseInt(arg, 10, 64)
		if err != nil || n <= 0 {
			return nil, usageError(fmt.Sprintf("%q is not the number of %s; want one that `%s` shows, such as 17", arg, what, shown))
		}
		ns = append(ns, n)
	}
	return ns, nil
}

func parseRate(s string) (int, error) {
	n, err := strconv.Atoi(strings.TrimSuffix(s, "/s"))
	if err != nil || n < 1 || n > dlq.MaxRate {
		return 0, errors.New("--rate is " + strconv.Quote(s) + ", want a whole number per second such as 50/s")
	}
	return n, nil
}

// commandOf is the command of a table's rows.
func commandOf(of dlq.Of) string {
	if of == dlq.Parked {
		return "cdc-relay parked"
	}
	return "cdc-relay deadletters"
}
