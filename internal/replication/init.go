package replication

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// InitOptions say what Init creates beside schema, publication and slot.
type InitOptions struct {
	OutboxTable bool   // create the configured tables that are missing, in the relay's own layout
	URL         string // of a role that may create them; "" is the relay's own
	Role        string // to GRANT the relay's rights to
	NoSlot      bool   // leave the slot to the first start, or to a take-over
}

func (o InitOptions) validate(c *Config) error {
	if err := c.validate(); err != nil {
		return err
	}
	if o.OutboxTable && len(c.Tables) == 0 {
		return &outbox.Stop{
			Code: outbox.ExitUsage, Reason: "config",
			What: "--outbox-table has no effect: source.tables names no table", Mend: "leave it out, or name the table",
		}
	}
	return nil
}

// outboxTableSQL is the layout that the default configuration reads.
func outboxTableSQL(t decode.Table) string {
	return fmt.Sprintf(`CREATE TABLE IF NOT EXISTS %s (
    id            uuid PRIMARY KEY,
    aggregatetype text NOT NULL,
    aggregateid   text NOT NULL,
    type          text NOT NULL,
    payload       jsonb,
    headers       jsonb,
    traceparent   text,
    created_at    timestamptz NOT NULL DEFAULT now()
)`, quoteTable(t))
}

// grantSQL is what a role needs to relay, beside the attribute REPLICATION.
func grantSQL(c *Config, role string) []string {
	r := quoteName(role)
	list := []string{
		"GRANT USAGE ON SCHEMA cdc_relay TO " + r,
		"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA cdc_relay TO " + r,
		"GRANT USAGE ON ALL SEQUENCES IN SCHEMA cdc_relay TO " + r,
	}
	for _, t := range c.Tables {
		list = append(list, fmt.Sprintf("GRANT USAGE ON SCHEMA %s TO %s", quoteName(t.Schema), r),
			fmt.Sprintf("GRANT SELECT ON %s TO %s", quoteTable(t), r))
	}
	return list
}

// Init creates what is missing: tables when asked, schema, rights, publication and slot. With source.create: false publication and slot
// must be there, and are left as they are: they may be another program's, that still runs. It may be run any number of times.
func Init(ctx context.Context, c Config, opt InitOptions) error {
	if err := opt.validate(&c); err != nil {
		return err
	}
	owner := c
	if opt.URL != "" {
		owner.URL, owner.Password = opt.URL, nil
	}
	ddl, err := connectPool(&owner)
	if err != nil {
		return err
	}
	defer ddl.Close()
	if err := checkServer(ctx, ddl); err != nil {
		return err
	}
	if err := createObjects(ctx, ddl, &owner, opt); err != nil {
		return err
	}
	pool, err := connectPool(&c)
	if err != nil {
		return err
	}
	defer pool.Close()
	switch {
	case opt.NoSlot:
		return nil
	case !c.Create:
		err = findNamed(ctx, pool, &c)
	default:
		_, err = prepare(ctx, pool, &c)
	}
	if err != nil {
		return fatalOr(&c, err)
	}
	slot, err := readSlot(ctx, pool, c.Slot)
	if err != nil || slot == nil {
		return err
	}
	if err := lookAtPosition(ctx, pool, &c, slot); err != nil {
		return err
	}
	c.Log.Info("ready", append(c.relayed(), zap.String("slot", c.Slot), zap.String("publication", c.Publication))...)
	return nil
}

func createObjects(ctx context.Context, ddl *pgxpool.Pool, c *Config, opt InitOptions) error {
	if opt.OutboxTable {
		for _, t := range c.Tables {
			if _, err := ddl.Exec(ctx, outboxTableSQL(t)); err != nil {
				return fmt.Errorf("create table %s.%s: %w", t.Schema, t.Name, err)
			}
		}
	}
	schema := *c
	schema.Create = true
	if err := ensureSchema(ctx, ddl, &schema); err != nil {
		return err
	}
	if opt.Role != "" {
		err := pgx.BeginFunc(ctx, ddl, func(tx pgx.Tx) error {
			for _, sql := range grantSQL(c, opt.Role) {
				if _, err := tx.Exec(ctx, sql); err != nil {
					return fmt.Errorf("%s: %w", sql, err)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if !c.Create {
		return nil
	}
	rec, err := readRecord(ctx, ddl, c.Slot)
	if err != nil {
		return err
	}
	if rec != nil && rec.State == stateReady {
		return nil // a publication that is missing now was lost: prepare says what that means
	}
	if _, err := findTables(ctx, ddl, c, true); err != nil {
		return err
	}
	return ensurePublication(ctx, ddl, c)
}

// findNamed makes sure that publication and slot are there.
func findNamed(ctx context.Context, pool *pgxpool.Pool, c *Config) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	there, err := publicationExists(ctx, pool, c)
	if err != nil {
		return err
	}
	rec, err := readRecord(ctx, pool, c.Slot)
	if err != nil {
		return err
	}
	slot, err := readSlot(ctx, pool, c.Slot)
	if err != nil {
		return err
	}
	missing := func(what, name string) error {
		return &outbox.Stop{
			Code: outbox.ExitOperator, Reason: what + "_missing",
			What: fmt.Sprintf("%s %q does not exist and source.create is false; the schema is made", what, name), Mend: correctName(what),
		}
	}
	switch {
	case slot == nil && rec != nil && rec.State == stateReady:
		return slotGone(c, rec)
	case slot == nil:
		return missing("slot", c.Slot)
	case !there:
		return missing("publication", c.Publication)
	}
	return nil
}

// PrintInit writes the SQL of Init, for those who run it by other means. It does not connect.
func PrintInit(w io.Writer, c Config, opt InitOptions) error {
	if err := opt.validate(&c); err != nil {
		return err
	}
	var b strings.Builder
	if opt.OutboxTable {
		for _, t := range c.Tables {
			b.WriteString(outboxTableSQL(t) + ";\n\n")
		}
	}
	b.WriteString(bootstrapSchema + "\n")
	list, err := listMigrations()
	if err != nil {
		return err
	}
	for _, m := range list {
		fmt.Fprintf(&b, "%sINSERT INTO cdc_relay.migration (version) VALUES (%d);\n\n", m.sql, m.version)
	}
	if opt.Role != "" {
		fmt.Fprintf(&b, "ALTER ROLE %s REPLICATION;\n%s;\n\n", quoteName(opt.Role), strings.Join(grantSQL(&c, opt.Role), ";\n"))
	}
	if c.Create {
		b.WriteString("-- The publication must exist before the slot. One that exists is somebody else's, and is not marked.\nBEGIN;\n" +
			createPublicationSQL(&c) + ";\n" + markPublicationSQL(&c) + ";\nCOMMIT;\n\n")
	}
	if c.Create && !opt.NoSlot {
		fmt.Fprintf(&b, "-- A slot made by hand is adopted as it stands: rows committed before it are not sent, and nobody asks about them. The row says\n"+
			"-- that this is accepted, and is written for a slot that is younger than the publication: one that was made just now.\n"+
			"SELECT set_config('cdc_relay.published', pg_current_wal_insert_lsn()::text, false);\n"+
			"SELECT pg_create_logical_replication_slot(%[1]s, 'pgoutput');\n"+
			"INSERT INTO cdc_relay.slots (slot, system_id, timeline, publication, state, incarnation)\n"+
			"SELECT slot_name, '', 0, %[2]s, 'adopt', 0 FROM pg_replication_slots\n"+
			"WHERE slot_name = %[1]s AND active_pid IS NULL AND confirmed_flush_lsn >= current_setting('cdc_relay.published')::pg_lsn;\n", quoteText(c.Slot), quoteText(c.Publication))
	}
	_, err = io.WriteString(w, b.String())
	return err
}
