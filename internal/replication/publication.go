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
	return fmt.Sprintf("%s; SELECT pg_drop_replication_slot(%s)%s (a new slot is created); then find and re-send what is missing",
		createPublicationSQL(c), quoteText(c.Slot), adoptHint(c))
}

// adoptHint says how to go on after an operator accepted that rows may be missing.
func adoptHint(c *Config) string {
	return fmt.Sprintf("; then accept the slot as it is: UPDATE cdc_relay.slots SET state = 'adopt' WHERE slot = %s", quoteText(c.Slot))
}

// checkPublication compares the publication with what the relay needs: every table in it, under its own name when it
// is partitioned, with inserts. (A column list that hides a mapped column shows in the Relation message.) A table that
// was taken out, or re-created, is silently not sent, so this runs at the start of every session and while it lasts.
func checkPublication(ctx context.Context, q querier, c *Config) error {
	var inserts, viaRoot bool
	err := q.QueryRow(ctx, `SELECT pubinsert, pubviaroot FROM pg_publication WHERE pubname = $1`, c.Publication).
		Scan(&inserts, &viaRoot)
	if errors.Is(err, pgx.ErrNoRows) {
		return publicationMissing(c)
	}
	if err != nil {
		return fmt.Errorf("read pg_publication: %w", err)
	}
	if !inserts {
		return publicationStop(c, "does not publish inserts",
			fmt.Sprintf("ALTER PUBLICATION %s SET (publish = 'insert')", quoteName(c.Publication)))
	}
	for i := range c.Tables {
		if err := checkPublished(ctx, q, c, c.Tables[i], viaRoot); err != nil {
			return err
		}
	}
	return nil
}

func checkPublished(ctx context.Context, q querier, c *Config, t decode.Table, viaRoot bool) error {
	var same, member, listed bool
	var kind string
	err := q.QueryRow(ctx, `SELECT c.oid = $2, c.relkind::text,
			EXISTS (SELECT FROM pg_publication_tables p WHERE p.pubname = $1 AND p.schemaname = n.nspname AND p.tablename = c.relname),
			EXISTS (SELECT FROM pg_publication_rel r JOIN pg_publication b ON b.oid = r.prpubid WHERE b.pubname = $1 AND r.prrelid = c.oid)
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.oid = $2 OR n.nspname = $3 AND c.relname = $4 ORDER BY 1 DESC LIMIT 1`, c.Publication, t.OID, t.Schema, t.Name).
		Scan(&same, &kind, &member, &listed)
	if err != nil && !isNoRows(err) {
		return fmt.Errorf("read pg_publication_tables: %w", err)
	}
	// A new table of the old name is sent without a gap when the publication has it through ALL TABLES or its schema; one
	// that was listed by itself was listed some time after its first rows.
	if isNoRows(err) || !same && (!member || listed) {
		return tableGone(c, t)
	}
	if kind == "p" && !viaRoot {
		return publicationStop(c, fmt.Sprintf("sends the partitions of %s.%s under their own names", t.Schema, t.Name),
			fmt.Sprintf("ALTER PUBLICATION %s SET (publish_via_partition_root = true)", quoteName(c.Publication)))
	}
	if !member {
		return publicationStop(c, fmt.Sprintf("does not contain table %s.%s", t.Schema, t.Name),
			fmt.Sprintf("ALTER PUBLICATION %s ADD TABLE %s", quoteName(c.Publication), quoteTable(t)))
	}
	return nil
}

func publicationStop(c *Config, what, mend string) *outbox.Stop {
	return &outbox.Stop{
		Code: outbox.ExitOperator, Reason: "publication",
		What: fmt.Sprintf("publication %q %s", c.Publication, what),
		Mend: mend,
	}
}

func tableGone(c *Config, t decode.Table) *outbox.Stop {
	return &outbox.Stop{
		Code: outbox.ExitOperator, Reason: "table",
		What: fmt.Sprintf("table %s.%s (OID %d) is gone, or was created anew: rows of a new table of that name are not sent unless it is in the publication",
			t.Schema, t.Name, t.OID),
		Mend: fmt.Sprintf("ALTER PUBLICATION %s ADD TABLE %s%s", quoteName(c.Publication), quoteTable(t), adoptHint(c)),
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
