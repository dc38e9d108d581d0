// The SQL of `init --print`, for those who create by other means what a relay needs.

package setup

import (
	"fmt"
	"io"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/replication/publication"
	"github.com/cdc-relay/cdc-relay/internal/replication/schema"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// PrintInit writes the SQL of Init, for those who run it by other means. It does not connect.
func PrintInit(w io.Writer, c source.Config, opt InitOptions) error {
	if err := opt.Validate(&c); err != nil {
		return err
	}
	var b strings.Builder
	// Whoever runs it may do everything: no function that somebody has put into public, or into
	// another schema of that role's path, is called in the place of PostgreSQL's own.
	b.WriteString("SET search_path = pg_catalog;\n\n")
	if opt.OutboxTable {
		for _, t := range c.Tables {
			list := outboxTableSQL(t)
			list = append([]string{list[0], printedForeign(t, opt.Role)}, list[1:]...)
			b.WriteString(strings.Join(list, ";\n") + ";\n\n")
		}
	}
	b.WriteString(schema.PrintedOwner + "BEGIN;\nCREATE SCHEMA cdc_relay AUTHORIZATION " + schema.OwnerRole + ";\n" +
		"SET LOCAL ROLE " + schema.OwnerRole + ";\n" + schema.Bootstrap + "\n")
	for i, sql := range schema.Migrations {
		fmt.Fprintf(&b, "%sINSERT INTO cdc_relay.migration (version) VALUES (%d);\n\n", sql, i+1)
	}
	if opt.Role != "" {
		b.WriteString(strings.Join(schema.GrantSQL(opt.Role, false), ";\n") + ";\n")
	}
	b.WriteString("COMMIT;\n\n")
	if opt.Role != "" {
		fmt.Fprintf(&b, "ALTER ROLE %s REPLICATION;\n", source.QuoteName(opt.Role))
		for _, sql := range tableGrantSQL(&c, opt.Role) {
			b.WriteString(sql + ";\n")
		}
		b.WriteString("\n")
	}
	if c.Create {
		b.WriteString("-- The publication must exist before the slot. One that exists belongs to somebody else and gets no comment.\nBEGIN;\n" +
			publication.CreateSQL(&c) + ";\n" + publication.MarkSQL(&c) + ";\nCOMMIT;\n\n")
	}
	if c.Create && !opt.NoSlot {
		fmt.Fprintf(&b, "-- A slot created by hand is adopted as it is: rows committed before it are not sent, and nothing checks for them. The row\n"+
			"-- records that this is accepted. It is written only for a slot that is newer than the publication.\n"+
			"SELECT set_config('cdc_relay.published', pg_current_wal_insert_lsn()::text, false);\n"+
			"%[3]s;\n"+
			"BEGIN;\nSET LOCAL ROLE "+schema.OwnerRole+";\n"+
			"INSERT INTO cdc_relay.slots (slot, system_id, timeline, publication, state, incarnation)\n"+
			"SELECT slot_name, '', 0, %[2]s, 'adopt', 0 FROM pg_replication_slots\n"+
			"WHERE slot_name = %[1]s AND active_pid IS NULL AND confirmed_flush_lsn >= current_setting('cdc_relay.published')::pg_lsn;\nCOMMIT;\n", source.QuoteText(c.Slot), source.QuoteText(c.Publication), source.MakeSlotSQL(&c))
	}
	b.WriteString("\nRESET search_path;\n")
	_, err := io.WriteString(w, b.String())
	return err
}
