package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/ops"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/replication"
)

// checkBound is how long all questions together may take.
const checkBound = 30 * time.Second

func newCheck(g *global) *cobra.Command {
	var asJSON bool
	var message testMessage
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check every precondition and change nothing",
		Long: `Asks PostgreSQL and the broker for everything that the relay needs. Each answer is one line: ok,
warn or fail, with the fix to copy. Exit 1 when a line fails.

With --publish it also sends one test message the way that events go, and waits for the broker's
confirm. It declares the exchange first if sink.rabbitmq.declare says so, as a start would.
Consumers see the message: its id begins with cdc-relay-check-, its payload is
{"cdc_check": true}, and its header cdc_check is true (with sink.compat it has that profile's
headers alone). Where the templates of exchange, routing key or topic need values, --aggregate,
--key, --type and --column give them.`,
		Example: `  cdc-relay check
  cdc-relay check --json | jq -r '.[] | select(.level == "fail") | .mend'
  cdc-relay check --publish --aggregate order --type created`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, rc, log, err := sourceOnly(g)
			if err != nil {
				return err
			}
			if err := message.refuse(c); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), checkBound)
			defer cancel()
			findings, err := examine(ctx, c, rc, log)
			if err != nil {
				return err
			}
			if message.publish {
				findings = append(findings, message.sendTo(cmd.Context(), c, findings))
			}
			if asJSON {
				err = printJSON(cmd.OutOrStdout(), findings)
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

// examine asks PostgreSQL and the broker, and looks at the configuration. Nothing is published. The two are asked at once: one
// that goes silent takes all the time there is.
func examine(ctx context.Context, c *config.Config, rc replication.Config, log *zap.Logger) ([]replication.Finding, error) {
	rc.Log = zap.NewNop()
	var broker []replication.Finding
	var brokerErr error
	var asked sync.WaitGroup
	asked.Go(func() { broker, brokerErr = checkBroker(ctx, c, log) })
	findings, err := replication.Check(ctx, rc)
	asked.Wait()
	if err := cmp.Or(err, brokerErr); err != nil {
		return nil, err
	}
	return slices.Concat(findings, checkOrdering(c), broker), nil
}

// checking is examine for the admin server.
func checking(c *config.Config, rc replication.Config) func(context.Context) ([]ops.Finding, error) {
	return func(ctx context.Context) ([]ops.Finding, error) {
		findings, err := examine(ctx, c, rc, zap.NewNop())
		out := make([]ops.Finding, len(findings))
		for i, f := range findings {
			out[i] = ops.Finding(f)
		}
		return out, err
	}
}

func printFindings(w io.Writer, findings []replication.Finding) error {
	width := 0
	for _, f := range findings {
		width = max(width, len(f.Name))
	}
	var out strings.Builder
	for _, f := range findings {
		line := fmt.Sprintf("%-4s  %-*s  %s", f.Level, width, f.Name, f.Detail)
		fmt.Fprintln(&out, shown(w, line, width+10))
		if f.Mend != "" {
			line := fmt.Sprintf("      %-*s  mend: %s", width, "", f.Mend)
			fmt.Fprintln(&out, shown(w, line, 0))
		}
	}
	_, err := io.WriteString(w, out.String())
	return err
}

func failed(findings []replication.Finding) error {
	n := 0
	for _, f := range findings {
		if f.Level == replication.LevelFail {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	return &outbox.Stop{Code: outbox.ExitFailure, Reason: "check", What: fmt.Sprintf("%d of %d checks failed", n, len(findings))}
}
