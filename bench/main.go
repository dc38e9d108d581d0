// Command bench measures the relay on this machine, with real private servers, against the least
// that could do the same work, and says whether what the project promises holds.
//
// Throughput: rows are committed while the relay is stopped; then it is started, and what the
// broker has is counted, asked of the broker, from the first message to the last. After every run
// of the relay everything is read from the broker and compared with the table: nothing lost,
// nothing twice, order kept.
//
// On RabbitMQ the baseline is a bare publisher of the same messages (amqp091-go, persistent,
// mandatory, 2,000 unconfirmed at most on a connection, writes gathered as the relay's are),
// measured by the same watch, on as many connections as the relay has. On Kafka, where the broker
// takes more than a slot gives, the baseline is a bare reader of a second slot at the same place,
// which throws the rows away: the better of reading at once and reading in coalesced reads.
//
// Latency: from just before COMMIT is sent to the arrival at a consumer, both clocks being this
// process's.
//
// In the row "inbox" the inbox has the effect of each event, a row in a database, beside consumers
// that have no database.
//
// With -base the relay of an earlier commit and the checkout's take turns, and the exit code says
// whether the new one is worse (compare.go). It is made for a busy machine: what counts is the
// processor time of an event.
//
// With -debezium the baseline is Debezium Server with the Outbox Event Router. The same rows wait
// in a slot of each, or come live, and both make the same messages of them, for the same exchange
// and queue or a topic of 6 partitions. Payloads have 200 bytes, there are 1,000 keys, and on
// RabbitMQ one consumer reads from the beginning. Debezium is tuned (poll.interval.ms 10,
// offset.flush.interval.ms 1000, max.batch.size 8192, max.queue.size 32768); with its defaults it
// runs once, which is shown and not judged. Its heap has the limit that Java chooses by itself.
// Processor time counts from the start of the process. Live rows come for 20 seconds from a fresh
// start; the last ten, when Java has compiled, have rows of their own, which are not judged. A row
// is void when a baseline that differs by the A/A would change the verdict. The report ends with
// the lines of the README's table, which is written, too.
//
// Baseline and relay take turns. A row's numbers are medians; its A/A is the baseline against
// itself, odd turns against even ones. Beyond 10 % the row is void and measured again.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"

	debeziumserver "github.com/cdc-relay/cdc-relay/internal/devenv/servers/debezium"
)

func main() {
	var opt options
	only := flag.String("only", "", "measure the rows whose name matches this regular expression")
	flag.StringVar(&opt.sink, "sink", "rabbitmq", "the broker: rabbitmq or kafka")
	flag.BoolVar(&opt.full, "full", false, "every cell in alternating pairs, with more events (hours)")
	flag.BoolVar(&opt.quick, "quick", false, "a smoke run: few events, one pair, no verdict, no file")
	flag.DurationVar(&opt.pause, "pause", 0, "how long a destination is paused in the rows retry-resume (default 30s)")
	flag.DurationVar(&opt.retained, "retained", 0, "how long each turn of the row retention is measured (default 1m)")
	flag.IntVar(&opt.deferred, "deferred", 0, "deferred events in retry-snapshot (default 1,000,000) and retry-start (default 10,000,000)")
	flag.StringVar(&opt.base, "base", "", "a commit, whose relay is compared with the checkout's, instead of the rows; -only selects rows by broker/row")
	flag.BoolVar(&opt.debezium, "debezium", false, "Debezium Server beside the relay, instead of the rows")
	flag.StringVar(&opt.name, "name", "", "write bench/results/NAME.md; default: the broker's name, and \"-full\" (with -only: no file)")
	flag.Parse()
	var err error
	if opt.only, err = regexp.Compile(*only); err == nil {
		if opt.name == "" && *only == "" && !opt.quick && opt.base == "" {
			opt.name = map[bool]string{true: "debezium-"}[opt.debezium] + opt.sink + map[bool]string{true: "-full"}[opt.full]
		}
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		err = run(ctx, opt, os.Stdout, os.Stderr)
		stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options are the command line.
type options struct {
	sink        string
	full, quick bool
	debezium    bool
	base        string        // a commit, or ""
	pause       time.Duration // 0: the usual
	retained    time.Duration // 0: the usual
	deferred    int           // 0: the usual
	only        *regexp.Regexp
	name        string // of the file in bench/results; "" for none
}

// bench is a stand with a broker, and the rows that are measured on it.
type bench interface {
	comparedBroker
	rows() []row
	broker(ctx context.Context) (string, error) // name and version
	close() error
}

// brokers are the values of -sink.
var brokers = map[string]struct {
	name  string
	cells string // what the ratio of a cell is
	open  func(ctx context.Context, s *stand) (bench, error)
}{
	"rabbitmq": {"RabbitMQ", "relay ÷ bare publisher, backlog in 100-row transactions", openRabbit},
	"kafka":    {"Kafka", "relay ÷ bare read of the slot", openKafka},
}

var errMissed = errors.New("a must was missed, or its run was void")

// run measures what opt selects, writes progress to progress and the table to out. The error is
// errMissed when all was measured and a must does not hold.
func run(ctx context.Context, opt options, out, progress io.Writer) (err error) {
	began := time.Now()
	kind, ok := brokers[opt.sink]
	if !ok {
		return fmt.Errorf("-sink %q is none of rabbitmq, kafka", opt.sink)
	}
	if opt.base != "" && len(opt.comparedRows(&versions{})) == 0 {
		return opt.selectsNothing()
	}
	s := &stand{opt: opt, size: opt.sizes(), began: began, say: func(format string, args ...any) {
		fmt.Fprintf(progress, "%6.1fs  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}}
	b, err := kind.open(ctx, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()

	rep := report{broker: kind.name, cells: kind.cells, quick: opt.quick, full: opt.full, contest: opt.debezium, began: began}
	version, err := b.broker(ctx)
	if err != nil {
		return err
	}
	if opt.debezium {
		rep.broker += ", Debezium Server beside the relay"
		java, err := debeziumserver.DebeziumJava(ctx)
		if err != nil {
			return err
		}
		version += fmt.Sprintf(", Debezium Server %s on %s with %s", debeziumserver.DebeziumVersion, java, javaHeap())
	}
	if rep.machine, err = s.machine(ctx, version); err != nil {
		return err
	}
	if opt.base != "" {
		text, err := s.compare(ctx, b, rep.machine)
		fmt.Fprint(out, text)
		return err
	}
	for _, r := range b.rows() {
		if !opt.only.MatchString(r.name) {
			continue
		}
		if strings.HasPrefix(r.name, cellPrefix) && s.past(lastCell) {
			rep.skipped = append(rep.skipped, r.name)
			continue
		}
		s.say("%s", r.name)
		found, err := r.measure(ctx)
		if err != nil {
			return fmt.Errorf("measure %s: %w", r.name, err)
		}
		for _, f := range found {
			s.say("    %s: %s", f.name, f.summary())
		}
		rep.results = append(rep.results, found...)
	}
	return rep.publish(opt, out)
}
