// Package compare is the command `compare debezium`: it reads the messages of two relays and
// reports what differs.
package compare

import (
	"context"
	"io"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/cli/output"
	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/migrate/compare"
)

// New is the command compare.
func New(g *command.Options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "compare",
		Short: "Compare what two relays of one outbox send",
		Args:  cobra.ArbitraryArgs,
		RunE:  command.NeedsSubcommand,
	}
	cmd.AddCommand(newCompareDebezium(g))
	return cmd
}

func newCompareDebezium(g *command.Options) *cobra.Command {
	f := &compareFlags{}
	cmd := &cobra.Command{
		Use:   "debezium",
		Short: "Compare Debezium's messages with cdc-relay's, event by event",
		Long: `Reads what Debezium (theirs) and cdc-relay (ours) send for the same outbox, and compares it event by
event: topic, partition, key, value, headers and their order, routing key, properties, and the order
within each key. It only reads: topics without a consumer group, exchanges through its own exclusive
queues. Run both relays with their own slots, and let ours send to a topic or exchange that nobody
consumes yet.

Messages are paired by the event's id, in the header id. Repeated messages are counted, and are no
difference. Counted and not compared are the headers __debezium.context.*, the name of the value's
schema, the partition of records without a key, and messages without an id. --strict compares these
too.

"--from now" starts with messages that arrive from now on; RabbitMQ allows nothing else. One relay
may be ahead of the other by --lag: at the start, messages of that time without a counterpart are
not counted; at the end, compare waits that long for counterparts. It ends after --for or --count,
else after one minute with "--from now", else at the current end of the topics.

For several pairs repeat --theirs and --ours, in the same order. Addresses, login and TLS come from
the configuration, if there is one. It prints no contents with admin.show_payloads: false or
--excerpts=false. Exits 1 if there are differences, or if nothing could be compared.`,
		Example: `  cdc-relay compare debezium --theirs shop.order --ours shadow.order --for 10m
  cdc-relay compare debezium --kafka h:9092 --theirs shop.order --ours shadow.order --from 2h
  cdc-relay compare debezium --rabbitmq amqp://relay@h/ --theirs events --ours shadow --count 1000
  cdc-relay compare debezium --theirs shop.order --ours shadow.order --ignore-header traceparent`,
		Args: command.NoArgs,
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

// run opens both sides, compares them and reports the differences.
func (f *compareFlags) run(ctx context.Context, c *config.Config, out, errs io.Writer) error {
	r := &comparison{f: f, out: out, shown: []compare.Difference{}, notes: []string{}, line: output.Progress{W: errs}}
	open := openRabbitSide
	if f.onKafka(c) {
		open = openKafkaSide
	}
	theirs, err := open(ctx, f, c, f.theirs)
	if err != nil {
		return openError(compare.Theirs, err)
	}
	defer theirs.close()
	ours, err := open(ctx, f, c, f.ours)
	if err != nil {
		return openError(compare.Ours, err)
	}
	defer ours.close()
	sides := [2]side{theirs, ours}
	r.matcher = compare.New(compare.Options{
		IDHeader: f.idHeader, KeyHeader: f.keyHeader, Ignore: f.ignore, Strict: f.strict, Times: f.times, Kafka: f.onKafka(c),
		Partitions: r.samePartitions(sides), Remember: rememberedIDs, Excerpts: f.excerpts,
	}, r.found)
	return r.report(interrupted(ctx, r.compare(ctx, sides)))
}

func openError(side compare.Side, err error) error {
	return &event.Stop{Code: event.ExitFailure, Reason: "compare", What: "open " + side.String(), Err: err}
}

// rememberedIDs is how many paired ids are remembered to recognize repetitions: about 60 MB when
// full.
const rememberedIDs = 1_000_000
