package main

import (
	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/replication"
)

func newInit(g *global) *cobra.Command {
	var opt replication.InitOptions
	var printOnly bool
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Create what is missing: outbox table, schema cdc_relay, publication, slot, rights",
		Long: `Creates the schema cdc_relay, the publication and the slot where they are missing, and with
--outbox-table the outbox table. It may be run any number of times. A slot that is created on a
table with rows asks for source.backfill. With source.create: false publication and slot must be
there already, and are left as they are.`,
		Example: `  cdc-relay init --outbox-table
  cdc-relay init --url postgres://owner@db/shop --role relay
  cdc-relay init --print --role relay | psql shop`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if opt.URL != "" {
				if err := config.CheckPostgres(opt.URL); err != nil {
					return usageError("--url " + err.Error())
				}
			}
			c, rc, log, err := sourceOnly(g)
			if err != nil {
				return err
			}
			if printOnly {
				return replication.PrintInit(cmd.OutOrStdout(), rc, opt)
			}
			log.Debug("init", zap.String("slot", c.Source.Slot))
			return replication.Init(cmd.Context(), rc, opt)
		},
	}
	cmd.Flags().BoolVar(&printOnly, "print", false, "only print the SQL")
	cmd.Flags().BoolVar(&opt.OutboxTable, "outbox-table", false, "create the outbox table too")
	cmd.Flags().StringVar(&opt.URL, "url", "", "URL of a role that may create what is missing (default source.url)")
	cmd.Flags().BoolVar(&opt.NoSlot, "no-slot", false, "leave the slot to the first start, or to takeover")
	cmd.Flags().StringVar(&opt.Role, "role", "", "role of the relay, to be granted what it needs")
	return cmd
}

// sourceOnly is what the commands need that talk to the database alone.
func sourceOnly(g *global) (*config.Config, replication.Config, *zap.Logger, error) {
	c, err := g.load()
	if err != nil {
		return nil, replication.Config{}, nil, err
	}
	log := newLogger(config.Log{Level: c.Log.Level, Format: "console"})
	columns, err := sinkColumns(c, log)
	if err != nil {
		return nil, replication.Config{}, nil, err
	}
	rc, err := replicationConfig(c, columns, log)
	return c, rc, log, err
}
