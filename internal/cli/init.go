// The command init.

package cli

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/replication/recovery"
	"github.com/cdc-relay/cdc-relay/internal/replication/setup"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/wiring"
)

func newInit(g *command.Options) *cobra.Command {
	var opt setup.InitOptions
	var printOnly, noBackfill bool
	var backfill recovery.Options
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Create what is missing: outbox table, schema cdc_relay, publication, slot, rights",
		Long: `Creates the schema cdc_relay, the publication and the slot where they are missing, and with
--outbox-table the outbox table. It may be run any number of times.

A new slot sends only what is committed after it: when the outbox table already has rows, init and
run refuse to create it (exit 2) until init --no-backfill leaves these rows unsent, or init
--backfill has them sent: all of them, or those that an SQL expression chooses. With
source.create: false publication and slot must exist already, and stay as they are.

--status-view creates the view cdc_relay.outbox_status of the rows of the outbox tables with their
status. Relays of other versions may refuse to start beside it: see docs/upgrade.md.

A file that admin.tokens names and that does not exist is created with a random token, readable by
the user who runs init alone; run init as the relay's user, or give the file to it.`,
		Example: `  cdc-relay init --outbox-table
  cdc-relay init --no-backfill
  cdc-relay init --backfill="created_at > '2026-01-31'" --order-by created_at
  cdc-relay init --status-view --url postgres://owner@db/shop
  cdc-relay init --url postgres://owner@db/shop --role relay
  cdc-relay init --print --role relay | psql shop`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkURL(opt.URL); err != nil {
				return err
			}
			c, rc, log, err := g.Source()
			if err != nil {
				return err
			}
			if noBackfill && (opt.NoSlot || printOnly) {
				return command.UsageError("--no-backfill is for the slot that init creates: leave out --no-slot and --print")
			}
			rc.NoBackfill = noBackfill
			if err := checkBackfill(cmd, rc, noBackfill, opt.NoSlot || printOnly); err != nil {
				return err
			}
			if printOnly {
				return setup.PrintInit(cmd.OutOrStdout(), rc, opt)
			}
			log.Debug("init", zap.String("slot", c.Source.Slot))
			if backfill.Where != "" {
				if err := recovery.CheckWhere(cmd.Context(), rc, backfill.Where); err != nil {
					return err
				}
				opt.NoSlot = true // it is made with the copy
			}
			opt.Check = func(ctx context.Context, pool *pgxpool.Pool) error { return wiring.CheckAge(ctx, c, pool, log) }
			if err := setup.Init(cmd.Context(), rc, opt); err != nil {
				return err
			}
			if backfill.Where != "" {
				report, err := runRecovery(cmd, c, rc, log, backfill, recovery.Backfill)
				if err != nil {
					return err
				}
				if err := printRecovery(cmd.OutOrStdout(), report); err != nil {
					return err
				}
			}
			return createTokenFiles(c, log)
		},
	}
	cmd.Flags().BoolVar(&printOnly, "print", false, "only print the SQL")
	cmd.Flags().BoolVar(&opt.OutboxTable, "outbox-table", false, "create the outbox table too")
	cmd.Flags().BoolVar(&opt.StatusView, "status-view", false, "create the view cdc_relay.outbox_status too, or make it again")
	cmd.Flags().BoolVar(&noBackfill, "no-backfill", false, "leave rows that are already in the table unsent;\nwithout it init refuses to create the slot")
	cmd.Flags().StringVar(&backfill.Where, "backfill", "", "send the rows that are already in the table, or those that\nmeet this `SQL` expression: they are copied into the retry\ntable when the slot is created")
	cmd.Flags().Lookup("backfill").NoOptDefVal = allRows
	orderFlags(cmd, &backfill)
	cmd.Flags().StringVar(&opt.URL, "url", "", "URL of a role that may create what is missing (default source.url)")
	cmd.Flags().BoolVar(&opt.NoSlot, "no-slot", false, "leave the slot to the first start, or to takeover")
	cmd.Flags().StringVar(&opt.Role, "role", "", "role of the relay, to be granted what it needs")
	return cmd
}

// checkURL checks the value of --url, if there is one.
func checkURL(url string) error {
	if url == "" {
		return nil
	}
	if err := config.CheckPostgres(url); err != nil {
		return command.UsageError("--url " + err.Error())
	}
	return nil
}

// allRows is the expression of a --backfill without one.
const allRows = "true"

// checkBackfill refuses flags of a backfill that do not go together.
func checkBackfill(cmd *cobra.Command, rc source.Config, none, noSlot bool) error {
	given := cmd.Flags().Changed("backfill")
	switch {
	case !given && (cmd.Flags().Changed("order-by") || cmd.Flags().Changed("unordered")):
		return command.UsageError("--order-by and --unordered are for --backfill")
	case !given:
		return nil
	case cmd.Flags().Lookup("backfill").Value.String() == "":
		return command.UsageError("--backfill= wants an SQL expression; `--backfill` alone takes all rows")
	case none:
		return command.UsageError("--backfill and --no-backfill exclude each other")
	case noSlot:
		return command.UsageError("--backfill is for the slot that init creates: leave out --no-slot and --print")
	case !rc.Create:
		return command.UsageError("--backfill is for the slot that init creates, and source.create is false")
	}
	return nil
}
