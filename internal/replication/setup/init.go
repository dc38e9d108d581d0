// Package setup creates what a relay needs (init), and removes it (teardown).
package setup

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/publication"
	"github.com/cdc-relay/cdc-relay/internal/replication/schema"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// InitOptions say what Init creates in addition to schema, publication and slot.
type InitOptions struct {
	OutboxTable bool   // create the configured tables that are missing, in the relay's own layout
	URL         string // of a role that may create them; "" is the relay's own
	Role        string // to GRANT the relay's rights to
	NoSlot      bool   // leave the slot to the first start, or to a takeover

	// Check is asked when the tables are there and the slot is not; nil: there is nothing to ask
	Check func(context.Context, *pgxpool.Pool) error
}

// Validate returns a Stop with exit code event.ExitUsage if the options or the configuration are
// not valid; it asks no server.
func (o InitOptions) Validate(c *source.Config) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if o.OutboxTable && len(c.Tables) == 0 {
		return &event.Stop{
			Code: event.ExitUsage, Reason: "config",
			What: "--outbox-table has no effect: source.tables names no table", Fix: "leave it out, or name the table",
		}
	}
	return nil
}

// outboxTableSQL is the layout that the default configuration reads, with the column of the row's
// transaction if one is mapped.
func outboxTableSQL(t decode.Table) []string {
	const layout = `CREATE TABLE IF NOT EXISTS %s (
    id            uuid PRIMARY KEY,
    aggregatetype text NOT NULL,
    aggregateid   text NOT NULL,
    type          text NOT NULL,
    payload       jsonb,
    headers       jsonb,
    traceparent   text,
    created_at    timestamptz NOT NULL DEFAULT now()%s
)`
	c := transactionColumn(t)
	if c.Name == "" {
		return []string{fmt.Sprintf(layout, source.QuoteTable(t), "")}
	}
	column := fmt.Sprintf(",\n    %-13s %s DEFAULT %s", source.QuoteName(c.Name), c.Type(), c.Value())
	return []string{fmt.Sprintf(layout, source.QuoteTable(t), column), c.TableSQL()}
}

// createTable creates a table that is missing. One that is there stays as it is, and is refused if
// a stranger could run code by it; it may have come just now.
func createTable(ctx context.Context, ddl *pgxpool.Pool, t decode.Table, role string) error {
	err := pgx.BeginFunc(ctx, ddl, func(tx pgx.Tx) error {
		var there bool
		if err := tx.QueryRow(ctx, `SELECT to_regclass($1) IS NOT NULL`, source.QuoteTable(t)).Scan(&there); err != nil {
			return err
		}
		if err := refuseForeign(ctx, tx, t, role); err != nil || there {
			return err
		}
		for _, sql := range outboxTableSQL(t) {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		return refuseForeign(ctx, tx, t, role)
	})
	if stop, ok := errors.AsType[*event.Stop](err); ok {
		return stop
	}
	if err != nil {
		return fmt.Errorf("create table %s.%s: %w", t.Schema, t.Name, err)
	}
	return nil
}

// tableGrantSQL is what a role needs to relay, in addition to schema.GrantSQL and the attribute
// REPLICATION.
func tableGrantSQL(c *source.Config, role string) []string {
	var list []string
	r := source.QuoteName(role)
	for _, t := range c.Tables {
		list = append(list, fmt.Sprintf("GRANT USAGE ON SCHEMA %s TO %s", source.QuoteName(t.Schema), r),
			fmt.Sprintf("GRANT SELECT ON %s TO %s", source.QuoteTable(t), r))
		if c.Deletes {
			list = append(list, source.GrantDelete(t, r))
		}
	}
	return list
}

// Init creates what is missing: tables when asked, schema, rights, publication and slot. With
// source.create: false publication and slot must exist, and are not changed: they may belong to
// another program that is still running. Init may be run any number of times.
func Init(ctx context.Context, c source.Config, opt InitOptions) error {
	if err := opt.Validate(&c); err != nil {
		return err
	}
	owner := c
	if opt.URL != "" {
		owner.URL, owner.Password = opt.URL, nil
	}
	ddl, err := source.ConnectPool(&owner)
	if err != nil {
		return err
	}
	defer ddl.Close()
	if err := source.CheckServer(ctx, ddl); err != nil {
		return err
	}
	if err := source.CheckFailoverSlot(ctx, ddl, &c); err != nil {
		return err
	}
	if err := CreateObjects(ctx, ddl, &owner, opt); err != nil {
		return err
	}
	if opt.Check != nil {
		if err := opt.Check(ctx, ddl); err != nil {
			return err
		}
	}
	pool, err := source.ConnectPool(&c)
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
		err = slot.Prepare(ctx, pool, &c)
	}
	if err != nil {
		return slot.Named(ctx, c, source.OrFatal(&c, err), 0)
	}
	view, err := slot.Read(ctx, pool, c.Slot)
	if err != nil || view == nil {
		return err
	}
	if err := slot.CheckRecordedPosition(ctx, pool, &c, view); err != nil {
		return slot.Named(ctx, c, err, 0)
	}
	c.Log.Info("ready", append(c.Relayed(), zap.String("slot", c.Slot), zap.String("publication", c.Publication))...)
	return nil
}

// CreateObjects does, as the role of ddl, what Init does before the slot: tables and rights if opt
// asks for them, the schema, and the publication unless source.create is false or the slot is in
// use.
func CreateObjects(ctx context.Context, ddl *pgxpool.Pool, c *source.Config, opt InitOptions) error {
	if opt.OutboxTable {
		for _, t := range c.Tables {
			if err := createTable(ctx, ddl, t, opt.Role); err != nil {
				return err
			}
		}
	}
	if err := schema.Install(ctx, ddl, opt.Role); err != nil {
		return err
	}
	if opt.Role != "" {
		err := pgx.BeginFunc(ctx, ddl, func(tx pgx.Tx) error {
			for _, sql := range tableGrantSQL(c, opt.Role) {
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
	rec, err := slot.ReadRecord(ctx, ddl, c.Slot)
	if err != nil {
		return err
	}
	if rec != nil && rec.State == slot.StateReady {
		return nil // a publication that is missing now was lost: prepare says what that means
	}
	if _, err := publication.FindTables(ctx, ddl, c, true); err != nil {
		return err
	}
	return publication.Ensure(ctx, ddl, c)
}

// findNamed makes sure that publication and slot are there.
func findNamed(ctx context.Context, pool *pgxpool.Pool, c *source.Config) error {
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	there, err := publication.Exists(ctx, pool, c)
	if err != nil {
		return err
	}
	rec, view, err := slot.ReadBoth(ctx, pool, c.Slot)
	if err != nil {
		return err
	}
	missing := func(what, name string) error {
		return &event.Stop{
			Code: event.ExitOperator, Reason: what + "_missing",
			What: fmt.Sprintf("%s %q does not exist and source.create is false; the schema was created", what, name), Fix: source.NameHint(what),
		}
	}
	switch {
	case view == nil && rec != nil && rec.State == slot.StateReady:
		return slot.Missing(c, rec, slot.Identity{})
	case view == nil:
		return missing("slot", c.Slot)
	case !there:
		return missing("publication", c.Publication)
	}
	return nil
}
