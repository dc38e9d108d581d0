package replication

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// createPublicationSQL publishes inserts only, so that housekeeping of the outbox table costs a decode and no traffic,
// and a partitioned table under its own name.
func createPublicationSQL(c *Config) string {
	return fmt.Sprintf("CREATE PUBLICATION %s FOR TABLE %s WITH (publish = 'insert', publish_via_partition_root = true)",
		quoteName(c.Publication), c.tableNames())
}

// ensurePublication creates a missing publication. It must come before the slot: a slot that decodes a row while its
// publication is missing fails for ever (PostgreSQL 14 to 17) or drops the row (18).
func ensurePublication(ctx context.Context, pool *pgxpool.Pool, c *Config) error {
	var there bool
	err := pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_publication WHERE pubname = $1)`, c.Publication).Scan(&there)
	if err != nil {
		return fmt.Errorf("read pg_publication: %w", err)
	}
	if there {
		return nil
	}
	if !c.Create {
		return publicationMissing(c)
	}
	_, err = pool.Exec(ctx, createPublicationSQL(c))
	switch pgCode(err) {
	case "42710": // another relay was faster
		return nil
	case "42501":
		return &outbox.Stop{
			Code: outbox.ExitFailure, Reason: "rights", Err: err,
			What: fmt.Sprintf("publication %q does not exist and this role may not create it", c.Publication),
			Mend: "run `cdc-relay init --url <URL of the tables' owner>`, or: " + createPublicationSQL(c),
		}
	}
	if err != nil {
		return fmt.Errorf("create publication %q: %w", c.Publication, err)
	}
	return nil
}

func publicationMissing(c *Config) *outbox.Stop {
	return &outbox.Stop{
		Code: outbox.ExitOperator, Reason: "publication",
		What: fmt.Sprintf("publication %q does not exist", c.Publication),
		Mend: remakePublication(c),
	}
}

// remakePublication needs a new slot: the old one decodes with the catalogue of the time of each row, in which the
// publication is missing, and fails there for ever (PostgreSQL 14 to 17).
func remakePublication(c *Config) string {
	return createPublicationSQL(c) + "; " + renewSlot(c)
}

// renewSlot is the mend for a slot whose publication was missing for a time.
func renewSlot(c *Config) string {
	return fmt.Sprintf("SELECT pg_drop_replication_slot(%s)%s (a new slot is created); then find and re-send what is missing",
		quoteText(c.Slot), adoptHint(c))
}

// adoptHint says how to go on after an operator accepted that rows may be missing.
func adoptHint(c *Config) string {
	return fmt.Sprintf("; then accept the slot as it is: UPDATE cdc_relay.slots SET state = 'adopt' WHERE slot = %s", quoteText(c.Slot))
}

// checkPublication compares the publication with what the relay needs: every table in it, all of its rows, under its own
// name when it is partitioned, with inserts; and with what it was (nothing: the slot is new, or adopted as it is). It
// returns what it is. (A column list that hides a mapped column shows in the Relation message.) What is missing is silently
// not sent, so this runs at the start of every session and while it lasts.
func checkPublication(ctx context.Context, q querier, c *Config, was sends) (sends, error) {
	now := sends{Tables: map[string]sentTable{}}
	var inserts, viaRoot, bySchema bool
	err := q.QueryRow(ctx, `SELECT oid, pubinsert, pubviaroot, to_regclass('pg_catalog.pg_publication_namespace') IS NOT NULL
		FROM pg_publication WHERE pubname = $1`, c.Publication).Scan(&now.Publication, &inserts, &viaRoot, &bySchema)
	if errors.Is(err, pgx.ErrNoRows) {
		return now, publicationMissing(c)
	}
	if err != nil {
		return now, fmt.Errorf("read pg_publication: %w", err)
	}
	if was.Publication != 0 && was.Publication != now.Publication {
		return now, publicationStop(c, fmt.Sprintf("was dropped and created anew (OID %d, it was %d)", now.Publication, was.Publication),
			renewSlot(c))
	}
	if !inserts {
		return now, publicationStop(c, "does not publish inserts",
			fmt.Sprintf("ALTER PUBLICATION %s SET (publish = 'insert')", quoteName(c.Publication)))
	}
	for _, t := range c.Tables {
		p, err := readPublished(ctx, q, c, t, was.oid(t), bySchema)
		if err != nil {
			return now, err
		}
		if err := p.check(c, t, was, viaRoot); err != nil {
			return now, err
		}
		now.Tables[quoteTable(t)] = p.sentTable
	}
	return now, nil
}

func publicationStop(c *Config, what, mend string) *outbox.Stop {
	return &outbox.Stop{
		Code: outbox.ExitOperator, Reason: "publication",
		What: fmt.Sprintf("publication %q %s", c.Publication, what),
		Mend: mend,
	}
}

// findTables looks the tables up in the catalogue, checks their mappings and returns them with their OIDs. firstStart
// says whether a table that is not there is a wrong configuration (exit 4) or a loss (exit 3).
func findTables(ctx context.Context, pool *pgxpool.Pool, c *Config, firstStart bool) ([]decode.Table, error) {
	found := make([]decode.Table, len(c.Tables))
	for i, t := range c.Tables {
		columns, oid, err := readColumns(ctx, pool, t)
		if err != nil {
			return nil, err
		}
		if oid == 0 {
			return nil, tableMissing(c, t, firstStart)
		}
		if err := t.Check(columns, c.Columns); err != nil {
			return nil, err
		}
		t.OID = oid
		found[i] = t
	}
	return found, nil
}

func tableMissing(c *Config, t decode.Table, firstStart bool) *outbox.Stop {
	stop := &outbox.Stop{
		Code: outbox.ExitOperator, Reason: "table",
		What: fmt.Sprintf("table %s.%s does not exist", t.Schema, t.Name),
		Mend: "restore it, or name the table that took its place in source.tables" + adoptHint(c),
	}
	if firstStart {
		stop.Code, stop.Mend = outbox.ExitMapping, "create it (`cdc-relay init --outbox-table` does), or correct source.tables"
	}
	return stop
}

// readColumns is the table's columns in order; oid 0 when there is no such table.
func readColumns(ctx context.Context, pool *pgxpool.Pool, t decode.Table) (columns []decode.Column, oid uint32, err error) {
	rows, err := pool.Query(ctx, `SELECT c.oid, coalesce(a.attname, ''), coalesce(a.atttypid, 0)
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
		WHERE n.nspname = $1 AND c.relname = $2 AND c.relkind IN ('r', 'p') ORDER BY a.attnum`, t.Schema, t.Name)
	if err != nil {
		return nil, 0, fmt.Errorf("read columns of %s.%s: %w", t.Schema, t.Name, err)
	}
	var col decode.Column
	_, err = pgx.ForEachRow(rows, []any{&oid, &col.Name, &col.TypeOID}, func() error {
		if col.Name != "" {
			columns = append(columns, col)
		}
		return nil
	})
	if err != nil {
		return nil, 0, fmt.Errorf("read columns of %s.%s: %w", t.Schema, t.Name, err)
	}
	return columns, oid, nil
}

// namedIn says in words which tables, for log lines.
func namedIn(tables []decode.Table) string {
	names := make([]string, len(tables))
	for i, t := range tables {
		names[i] = t.Schema + "." + t.Name
	}
	return strings.Join(names, ", ")
}
