// The command check: the preflight check and, with --publish, a test message.

package cli

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/ops/metrics"
	"github.com/cdc-relay/cdc-relay/internal/replication/check"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/wiring"
)

// newCheck makes the command check.
func newCheck(g *command.Options) *cobra.Command {
	var asJSON bool
	var message testMessage
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check everything that the relay needs, and change nothing",
		Long: `Checks everything that the relay needs of PostgreSQL and the broker. Each line is ok, warn or fail,
with the fix to copy. Exits 1 if a line is fail.

With --publish it also sends one test message, the way events are sent, and waits for the broker's
confirm. With sink.rabbitmq.declare it declares the exchange first, as run does. Consumers see the
message: its id begins with "cdc-relay-check-", its header cdc_check is true, and its payload is
{"cdc_check": true}. With sink.compat it has only the headers of that profile. If a template needs
values, give them with --aggregate, --key, --type and --column.`,
		Example: `  cdc-relay check
  cdc-relay check --json | jq -r '.[] | select(.level == "fail") | .fix'
  cdc-relay check --publish --aggregate order --type created`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, rc, log, err := g.Source()
			if err != nil {
				return err
			}
			if err := message.validate(c); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), wiring.CheckTimeout)
			defer cancel()
			findings, err := wiring.Check(ctx, c, rc, log)
			if err != nil {
				return err
			}
			if message.publish {
				findings = append(findings, message.sendTo(cmd.Context(), c, findings))
			}
			if asJSON {
				err = command.JSON(cmd.OutOrStdout(), findings)
			} else {
				err = printFindings(cmd.OutOrStdout(), findings)
			}
			if err != nil {
				return err
			}
			return failed(findings)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	message.declare(cmd)
	return cmd
}

func printFindings(w io.Writer, findings []check.Finding) error {
	width := 0
	for _, f := range findings {
		width = max(width, len(f.Name))
	}
	var out strings.Builder
	for _, f := range findings {
		line := fmt.Sprintf("%-4s  %-*s  %s", f.Level, width, f.Name, f.Detail)
		fmt.Fprintln(&out, command.ForTerminal(w, command.CleanLines(line), width+10))
		if f.Fix != "" {
			line := fmt.Sprintf("      %-*s  fix: %s", width, "", f.Fix)
			fmt.Fprintln(&out, command.ForTerminal(w, command.CleanLines(line), 0))
		}
		if f.Cause != "" {
			line := fmt.Sprintf("      %-*s  (%s)", width, "", f.Cause)
			fmt.Fprintln(&out, command.ForTerminal(w, command.CleanLines(line), width+10))
		}
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// failed returns the error (exit 1) for findings of level fail, or nil without any.
func failed(findings []check.Finding) error {
	n := 0
	for _, f := range findings {
		if f.Level == check.LevelFail {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	return &event.Stop{Code: event.ExitFailure, Reason: "check", What: fmt.Sprintf("%d of %d checks failed", n, len(findings))}
}

// publishTimeout is how long the broker may take to confirm a test message.
const publishTimeout = 20 * time.Second

// testMessage is the message that `check --publish` sends the way events are sent.
type testMessage struct {
	publish              bool
	aggregate, key, kind string
	columns              map[string]string
	isSet                func(flag string) bool
}

// declare adds the flags of the test message.
func (m *testMessage) declare(cmd *cobra.Command) {
	flags := cmd.Flags()
	m.isSet = flags.Changed
	flags.BoolVar(&m.publish, "publish", false, "also publish a test message, which consumers see")
	flags.StringVar(&m.aggregate, "aggregate", "", "aggregate of the test message")
	flags.StringVar(&m.key, "key", "", "key of the test message")
	flags.StringVar(&m.kind, "type", "cdc_relay_check", "type of the test message")
	flags.StringToStringVar(&m.columns, "column", nil, "`NAME=VALUE` of a column that a template uses; repeatable")
}

// validate checks that the flags give every value that the sink's templates need.
func (m *testMessage) validate(c *config.Config) error {
	if !m.publish {
		for _, name := range []string{"aggregate", "key", "type", "column"} {
			if m.isSet(name) {
				return command.UsageError("--" + name + " sets a value of the test message: add --publish")
			}
		}
		return nil
	}
	all := c.Sink.Settings.Templates()
	if len(all) == 0 {
		return command.UsageError("--publish: sink." + c.Sink.Driver.Name + " has no broker to send a test message to")
	}
	var lack []string
	for _, t := range append(all, c.Sink.CloudEvents.Templates()...) {
		for _, part := range t.Uses() {
			if part != "id" && part != "type" && !m.isSet(part) {
				lack = append(lack, "--"+part+" VALUE")
			}
		}
		for _, column := range t.Columns() {
			if _, given := m.columns[column]; !given {
				lack = append(lack, "--column "+column+"=VALUE")
			}
		}
	}
	slices.Sort(lack)
	if lack = slices.Compact(lack); len(lack) > 0 {
		return command.UsageError("--publish: the templates of the sink need values for a test message: add " + strings.Join(lack, " "))
	}
	return nil
}

// event makes the test message as an event of the outbox. columns are the extra columns that the
// sink asks for.
func (m *testMessage) event(columns []string) *event.Event {
	now := time.Now()
	ev := &event.Event{
		CommitTime: now, Time: now, ID: []byte("cdc-relay-check-" + strings.ToLower(rand.Text())), Type: []byte(m.kind),
		Payload: []byte(`{"cdc_check": true}`), PayloadKind: event.JSON, Headers: []byte(`{"cdc_check": true}`),
		Columns: make([][]byte, len(columns)),
	}
	if m.isSet("aggregate") {
		ev.Aggregate = []byte(m.aggregate)
	}
	if m.isSet("key") {
		ev.Key = []byte(m.key)
	}
	for i, name := range columns {
		if value, given := m.columns[name]; given {
			ev.Columns[i] = []byte(value)
		}
	}
	return ev
}

// sendTo sends the test message, unless the check has reached no broker: then it would only wait in
// vain.
func (m *testMessage) sendTo(ctx context.Context, c *config.Config, found []check.Finding) check.Finding {
	if slices.ContainsFunc(found, func(f check.Finding) bool { return f.Name == "broker" && f.Level == check.LevelFail }) {
		return check.Finding{Name: "test message", Level: check.LevelFail, Detail: "not sent: no broker was reached", Fix: "fix the line broker first"}
	}
	return m.send(ctx, c)
}

// send publishes the test message through the sink that events use, and waits for the broker's
// answer.
func (m *testMessage) send(ctx context.Context, c *config.Config) check.Finding {
	f := check.Finding{Name: "test message", Level: check.LevelFail}
	small := *c // one lane is enough, and on RabbitMQ it has one connection
	small.Delivery.Lanes = 1
	out, columns, err := wiring.OpenSink(&small, zap.NewNop(), metrics.New("", "", runtime.Version()), nil, nil)
	if err != nil {
		f.Detail, f.Fix = err.Error(), "correct the section sink"
		return f
	}
	ev := m.event(columns)
	if records := c.Sink.Compat.Records(); records != nil {
		records.Sample(ev)
	}
	route := out.Route(ev)
	where := c.Sink.Driver.RouteText(&route)
	outcome, err := publishOne(ctx, out, ev)
	switch {
	case err != nil:
		state := out.Status()
		f.Detail = fmt.Sprintf("%s to %s was not confirmed: %s", ev.ID, where, cmp.Or(state.Why, err.Error()))
		f.Fix = "see the log of the broker for why it closed the connection or did not answer"
	case outcome.State == sink.Confirmed:
		f.Level, f.Detail = check.LevelOK, fmt.Sprintf("%s to %s was confirmed", ev.ID, where)
	case outcome.Fault != nil:
		f.Detail, f.Fix = fmt.Sprintf("%s to %s was refused (%s): %s", ev.ID, where, outcome.Fault.Reason, outcome.Fault.Text), refusalFix(c.Sink.Driver, outcome.Fault.Reason, &route)
	default:
		f.Detail, f.Fix = fmt.Sprintf("%s to %s is %s", ev.ID, where, outcome.State), "try again"
	}
	return f
}

// publishOne runs the sink until it has the outcome of one event.
func publishOne(ctx context.Context, out sink.Sink, ev *event.Event) (sink.Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	var run sync.WaitGroup
	run.Go(func() { _ = out.Run(running) }) //nolint:errcheck // what keeps it from the broker, Up says
	defer func() {
		cancel()
		stop()
		run.Wait()
	}()
	place, ok := out.Place(ev)
	for !ok {
		select {
		case <-out.Changed():
			place, ok = out.Place(ev)
		case <-ctx.Done():
			return sink.Outcome{}, ctx.Err()
		}
	}
	outcomes := make([]sink.Outcome, 1)
	for {
		outcomes[0] = sink.Outcome{}
		err := out.Publish(ctx, place.Lane, []*event.Event{ev}, outcomes)
		if err == nil || ctx.Err() != nil {
			return outcomes[0], err
		}
		if outcomes[0].State == sink.Unknown {
			// it may have arrived, and would be sent twice
			return outcomes[0], errors.Join(errors.New("in doubt"), err)
		}
	}
}

// refusalFix returns the fix that is printed when the broker refuses a test message.
func refusalFix(d *sink.Driver, reason sink.Reason, r *event.Route) string {
	if d.FixRefusal != nil {
		if fix := d.FixRefusal(reason, r); fix != "" {
			return fix
		}
	}
	switch reason { //nolint:exhaustive // the other reasons are about the message
	case sink.NotPermitted:
		return "give the user the right to write there"
	case sink.Nacked, sink.Unconfirmed:
		return "make room in the queue, or raise its limit; a quorum queue needs the majority of its nodes"
	case sink.NoLeader, sink.TooFewReplicas:
		return "bring the brokers of its replicas back"
	}
	return "see this reason in docs/failure-modes.md"
}
