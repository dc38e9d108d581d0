// The flags of compare debezium.

package compare

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/config"
)

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

func (f *compareFlags) declare(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringSliceVar(&f.kafka, "kafka", nil, "brokers, `HOST:PORT,...` (default sink.kafka.brokers)")
	flags.StringVar(&f.rabbitmq, "rabbitmq", "", "`URL`, amqp://USER:PASSWORD@HOST/VHOST (default sink.rabbitmq.url)")
	flags.StringArrayVar(&f.theirs, "theirs", nil, "Debezium's topic or exchange `NAME`; may be repeated")
	flags.StringArrayVar(&f.ours, "ours", nil, "the relay's topic or exchange `NAME`; one for each --theirs")
	flags.StringArrayVar(&f.routingKeys, "routing-key", []string{"#"}, "binding `KEY`; a direct exchange needs each one")
	flags.StringVar(&f.from, "from", "now", "`START`: now; on Kafka also beginning, 90m, 2026-11-20")
	flags.DurationVar(&f.period, "for", 0, "end after this time (default: see above)")
	flags.Int64Var(&f.count, "count", 0, "end after this many compared events")
	flags.DurationVar(&f.lag, "lag", 10*time.Second, "how far one relay may be ahead of the other")
	flags.StringVar(&f.idHeader, "id-header", "id", "`HEADER` with the event's id")
	flags.StringVar(&f.keyHeader, "key-header", "", "`HEADER` with the key (default: the record's or routing key)")
	flags.StringArrayVar(&f.ignore, "ignore-header", nil, "do not compare this `HEADER`; may be repeated")
	flags.BoolVar(&f.strict, "strict", false, "compare everything but times")
	flags.BoolVar(&f.times, "times", false, "also compare the times of records")
	flags.IntVar(&f.limit, "limit", 10, "differences to print; all are counted")
	flags.IntVar(&f.memory, "memory", 64, "`MIB` of messages per side that wait for the other")
	flags.BoolVar(&f.excerpts, "excerpts", true, "print an excerpt of what differs")
	flags.BoolVar(&f.json, "json", false, "print JSON")
}

// config is the configuration; nil when there is none, and the flags suffice.
func (f *compareFlags) config(g *command.Options) (*config.Config, error) {
	if g.Path() == "" && (len(f.kafka) > 0 || f.rabbitmq != "") {
		return nil, nil
	}
	return g.Load()
}

// validate checks the flags, and sets defaults that depend on others.
func (f *compareFlags) validate(c *config.Config) error {
	if c != nil {
		f.excerpts = f.excerpts && c.Admin.ShowPayloads
	}
	kafka := f.onKafka(c)
	switch {
	case len(f.kafka) > 0 && f.rabbitmq != "":
		return command.UsageError("--kafka and --rabbitmq exclude each other")
	case !kafka && !f.onRabbitMQ(c):
		return command.UsageError("name the broker: --kafka, --rabbitmq, or a configuration with one of these sinks")
	case len(f.theirs) == 0 || len(f.theirs) != len(f.ours):
		return command.UsageError(fmt.Sprintf("--theirs and --ours name pairs of topics or exchanges; there are %d and %d", len(f.theirs), len(f.ours)))
	case f.period < 0 || f.count < 0 || f.lag <= 0 || f.limit < 0 || f.memory <= 0:
		return command.UsageError("--for, --count and --limit must not be negative, --lag and --memory must be above 0")
	case !kafka && f.from != "now":
		return command.UsageError("--from " + f.from + ": a queue only holds messages that arrive after it was bound: use --from now")
	}
	for i, name := range f.theirs {
		switch {
		case name == "" || f.ours[i] == "":
			return command.UsageError("--theirs and --ours: a topic or exchange needs a name; the default exchange cannot be bound to")
		case slices.Contains(f.ours, name):
			return command.UsageError(fmt.Sprintf("%q is in both --theirs and --ours", name))
		case slices.Contains(f.theirs[:i], name) || slices.Contains(f.ours[:i], f.ours[i]):
			return command.UsageError(fmt.Sprintf("--theirs %s --ours %s: one of the two is in another pair already", name, f.ours[i]))
		}
	}
	if _, err := f.start(); err != nil {
		return command.UsageError("--from " + f.from + ": " + err.Error())
	}
	if f.from == "now" && f.period == 0 && f.count == 0 {
		f.period = time.Minute
	}
	return nil
}

func (f *compareFlags) onKafka(c *config.Config) bool {
	return len(f.kafka) > 0 || f.rabbitmq == "" && kafkaOf(c) != nil
}

func (f *compareFlags) onRabbitMQ(c *config.Config) bool {
	return f.rabbitmq != "" || rabbitOf(c) != nil
}

// start is the time of --from; zero for now and beginning.
func (f *compareFlags) start() (time.Time, error) {
	if f.from == "now" || f.from == "beginning" {
		return time.Time{}, nil
	}
	at, err := command.ParseTime(f.from, time.Now())
	if err != nil {
		return at, errors.New("want now, beginning, " + strings.TrimPrefix(err.Error(), "want "))
	}
	return at, nil
}
