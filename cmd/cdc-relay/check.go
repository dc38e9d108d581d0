package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/replication"
)

// checkBound is how long all questions together may take.
const checkBound = 30 * time.Second

func newCheck(g *global) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check every precondition and change nothing",
		Long: `Asks PostgreSQL and the broker for everything the relay needs: one line each, ok, warn or fail, with the mend to copy.
Exit 1 when a line fails.`,
		Example: `  cdc-relay check
  cdc-relay check --json | jq -r '.[] | select(.level == "fail") | .mend'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, rc, log, err := sourceOnly(g)
			if err != nil {
				return err
			}
			rc.Log = zap.NewNop()
			ctx, cancel := context.WithTimeout(cmd.Context(), checkBound)
			defer cancel()
			findings, err := replication.Check(ctx, rc)
			if err != nil {
				return err
			}
			broker, err := checkBroker(ctx, c, log)
			if err != nil {
				return err
			}
			findings = append(findings, broker...)
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
	return cmd
}

func printFindings(w io.Writer, findings []replication.Finding) error {
	width := 0
	for _, f := range findings {
		width = max(width, len(f.Name))
	}
	for _, f := range findings {
		if _, err := fmt.Fprintf(w, "%-4s  %-*s  %s\n", f.Level, width, f.Name, f.Detail); err != nil {
			return err
		}
		if f.Mend != "" {
			if _, err := fmt.Fprintf(w, "      %-*s  mend: %s\n", width, "", f.Mend); err != nil {
				return err
			}
		}
	}
	return nil
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
