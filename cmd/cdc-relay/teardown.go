package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/replication"
)

func newTeardown(g *global) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "teardown",
		Short: "Drop the relay's slot, publication and rows",
		Long: `Drops the slot, the publication and the relay's rows about them, and the schema cdc_relay when they were the last. The
outbox table stays. It refuses while a relay holds the slot. What was committed and not delivered is then only in the
outbox table: a slot created later does not send it.`,
		Example: `  cdc-relay teardown --yes`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !yes {
				return &outbox.Stop{
					Code: outbox.ExitUsage, Reason: "usage",
					What: "teardown drops the slot", Err: errors.New("what it has not delivered is not sent any more"), Mend: "say --yes to do it",
				}
			}
			_, rc, _, err := sourceOnly(g)
			if err != nil {
				return err
			}
			return replication.Teardown(cmd.Context(), rc)
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "really do it")
	return cmd
}
