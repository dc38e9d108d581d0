package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/migrate/compare"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

func newCompare(g *global) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "compare",
		Short: "Compare what two relays of one outbox have sent",
		Args:  cobra.ArbitraryArgs,
		RunE:  needsSubcommand,
	}
	cmd.AddCommand(newCompareDebezium(g))
	return cmd
}

// compareFlags are those of compare debezium.
type compareFlags struct {
	kafka        []string
	rabbitmq     string
	theirs, ours []string
	routingKeys  []string
	from         string
	period       time.Duration
	count        int64
	lag          time.Duration
	idHeader     string
	keyHeader    string
	ignore       []string
	strict       bool
	times        bool
	limit        int
	memory       int
	excerpts     bool
	json         bool
}

func newCompareDebezium(g *global) *cobra.Command {
	f := &compareFlags{}
	cmd := &cobra.Command{
		Use:   "debezium",
		Short: "Compare Debezium's messages with cdc-relay's, event by event",
		Long: `Reads what Debezium (theirs) and cdc-relay (ours) send of the same outbox, and compares it event
by event: topic, partition, key, value, headers and their order, routing key and properties, and
the order of each key. It only reads: topics without a consumer group, exchanges by exclusive
queues of its own. Each relay has a slot of its own, and ours sends to a topic or exchange that
nobody consumes yet.

Messages are paired by the event's id, in the header id. Both relays deliver at least once: what
comes a second time is counted and is no difference. Some things are left out, and counted: the
headers __debezium.context.*, whose run id is random; the name of the value's schema, for which
Debezium takes the first event's; the partition of records without a key; messages without an id.
--strict leaves none of these out. --times compares the records' times, too: they are comparable
when a column of the outbox is the timestamp.

--from now begins with what comes from now on. On RabbitMQ nothing else is possible. One relay may
be ahead of the other by --lag. What comes in that time at the beginning and has no counterpart is
not counted. At the end a counterpart is waited for as long.

It ends after --for or --count. Without them it ends after a minute with --from now, else at what is
the end of the topics now. The order is compared that each key has: on Kafka the record's, on
RabbitMQ the routing key, or what --key-header names.

For several pairs give --theirs and --ours as often as needed, in the same order. Addresses, login
and TLS are those of the configuration, when there is one; --kafka and --rabbitmq name other
addresses. With admin.show_payloads: false there, or with --excerpts=false, no contents are
printed. Exit 1 when there are differences, and when nothing could be compared.`,
		Example: `  cdc-relay compare debezium --theirs shop.order --ours shadow.order --for 10m
  cdc-relay compare debezium --kafka h:9092 --theirs shop.order --ours shadow.order --from 2h
  cdc-relay compare debezium --rabbitmq amqp://relay@h/ --theirs events --ours shadow --count 1000
  cdc-relay compare debezium --theirs shop.order --ours shadow.order --ignore-header traceparent`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := f.config(g)
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
	f.declare(cmd)
	return cmd
}

func (f *compareFlags) declare(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringSliceVar(&f.kafka, "kafka", nil, "brokers, HOST:PORT (default sink.kafka.brokers)")
	flags.StringVar(&f.rabbitmq, "rabbitmq", "", "amqp://USER:PASSWORD@HOST/VHOST (default sink.rabbitmq.url)")
	flags.StringArrayVar(&f.theirs, "theirs", nil, "Debezium's topic or exchange; may be repeated")
	flags.StringArrayVar(&f.ours, "ours", nil, "the relay's topic or exchange; one for each of --theirs")
	flags.StringArrayVar(&f.routingKeys, "routing-key", []string{"#"}, "binding; a direct exchange needs each routing key")
	flags.StringVar(&f.from, "from", "now", "now; on Kafka also beginning, 90m, 2026-11-20")
	flags.DurationVar(&f.period, "for", 0, "end after so long (default: see above)")
	flags.Int64Var(&f.count, "count", 0, "end after so many compared events")
	flags.DurationVar(&f.lag, "lag", 10*time.Second, "how far one relay may be ahead of the other")
	flags.StringVar(&f.idHeader, "id-header", "id", "the header with the event's id")
	flags.StringVar(&f.keyHeader, "key-header", "", "the header with the key (default: the record's or routing key)")
	flags.StringArrayVar(&f.ignore, "ignore-header", nil, "leave a header out; may be repeated")
	flags.BoolVar(&f.strict, "strict", false, "leave nothing out but times")
	flags.BoolVar(&f.times, "times", false, "compare the records' times")
	flags.IntVar(&f.limit, "limit", 10, "differences that are printed; all are counted")
	flags.IntVar(&f.memory, "memory", 64, "MiB of messages per side that wait for the other")
	flags.BoolVar(&f.excerpts, "excerpts", true, "print a little of what differs")
	flags.BoolVar(&f.json, "json", false, "print JSON")
}

// config is the configuration; nil when there is none, and the flags say it all.
func (f *compareFlags) config(g *global) (*config.Config, error) {
	if g.path() == "" && (len(f.kafka) > 0 || f.rabbitmq != "") {
		return nil, nil
	}
	return g.load()
}

// validate refuses what can not be meant, and fills in what follows from the rest.
func (f *compareFlags) validate(c *config.Config) error {
	if c != nil {
		f.excerpts = f.excerpts && c.Admin.ShowPayloads
	}
	kafka := f.onKafka(c)
	switch {
	case len(f.kafka) > 0 && f.rabbitmq != "":
		return usageError("--kafka and --rabbitmq: which of them?")
	case !kafka && !f.onRabbitMQ(c):
		return usageError("name the broker: --kafka, --rabbitmq, or a configuration with one of these sinks")
	case len(f.theirs) == 0 || len(f.theirs) != len(f.ours):
		return usageError(fmt.Sprintf("--theirs and --ours name pairs of topics or exchanges; there are %d and %d", len(f.theirs), len(f.ours)))
	case f.period < 0 || f.count < 0 || f.lag <= 0 || f.limit < 0 || f.memory <= 0:
		return usageError("--for, --count, --lag, --limit and --memory are not negative, --lag and --memory not 0")
	case !kafka && f.from != "now":
		return usageError("--from " + f.from + ": a queue has only what comes after it was bound, so on RabbitMQ it is --from now")
	}
	for i, name := range f.theirs {
		switch {
		case name == "" || f.ours[i] == "":
			return usageError("--theirs and --ours: the default exchange can not be bound to, and a topic has a name")
		case contains(f.ours, name):
			return usageError(fmt.Sprintf("%q is theirs and ours", name))
		case contains(f.theirs[:i], name) || contains(f.ours[:i], f.ours[i]):
			return usageError(fmt.Sprintf("--theirs %s --ours %s: one of the two stands in a pair already", name, f.ours[i]))
		}
	}
	if _, err := f.start(); err != nil {
		return usageError("--from " + f.from + ": " + err.Error())
	}
	if f.from == "now" && f.period == 0 && f.count == 0 {
		f.period = time.Minute
	}
	return nil
}

func contains(list []string, name string) bool {
	for _, s := range list {
		if s == name {
			return true
		}
	}
	return false
}

func (f *compareFlags) onKafka(c *config.Config) bool {
	return len(f.kafka) > 0 || f.rabbitmq == "" && c != nil && c.Sink.Kafka != nil
}

func (f *compareFlags) onRabbitMQ(c *config.Config) bool {
	return f.rabbitmq != "" || c != nil && c.Sink.RabbitMQ != nil
}

// start is the time of --from; zero for now and beginning.
func (f *compareFlags) start() (time.Time, error) {
	if f.from == "now" || f.from == "beginning" {
		return time.Time{}, nil
	}
	at, err := parseWhen(f.from, time.Now())
	if err != nil {
		return at, errors.New("want now, beginning, " + strings.TrimPrefix(err.Error(), "want "))
	}
	return at, nil
}

// run opens both sides, compares, and tells what was found.
func (f *compareFlags) run(ctx context.Context, c *config.Config, out, errs io.Writer) error {
	r := &comparison{f: f, out: out, errs: errs}
	open := openRabbitSide
	if f.onKafka(c) {
		open = openKafkaSide
	}
	theirs, err := open(ctx, f, c, f.theirs)
	if err != nil {
		return notOpened(compare.Theirs, err)
	}
	defer theirs.close()
	ours, err := open(ctx, f, c, f.ours)
	if err != nil {
		return notOpened(compare.Ours, err)
	}
	defer ours.close()
	sides := [2]side{theirs, ours}
	r.matcher = compare.New(compare.Options{
		IDHeader: f.idHeader, KeyHeader: f.keyHeader, Ignore: f.ignore, Strict: f.strict, Times: f.times, Kafka: f.onKafka(c),
		Partitions: r.samePartitions(sides), Remember: remembered, Excerpts: f.excerpts,
	}, r.found)
	return r.tell(cutShort(ctx, r.compare(ctx, sides)))
}

func notOpened(side compare.Side, err error) error {
	return &outbox.Stop{Code: outbox.ExitFailure, Reason: "compare", What: "open " + side.String(), Err: err}
}

// remembered is how many paired ids are known again when they come once more: some 60 MB when there are as many.
const remembered = 1_000_000
