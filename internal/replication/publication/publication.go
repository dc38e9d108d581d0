// Package publication creates the publication and checks that it sends what the relay needs, and
// has done so without interruption.
package publication

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// Ensure creates a missing publication. It must come before the slot: a slot that
// decodes a row while its publication is missing fails for ever (PostgreSQL 14 to 17) or drops the
// row (18).
func Ensure(ctx context.Context, pool *pgxpool.Pool, c *source.Config) error {
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	there, err := Exists(ctx, pool, c)
	if err != nil || there {
		return err
	}
	if !c.Create {
		return Missing(c)
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		for _, sql := range []string{CreateSQL(c), MarkSQL(c)} {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		return nil
	})
	switch source.SQLState(err) {
	case "42710", "23505": // another relay was faster, by much or by little
		return nil
	case "42501":
		return mayNotCreate(c, err)
	}
	if err != nil {
		return fmt.Errorf("create publication %q: %w", c.Publication, err)
	}
	return nil
}

// MayCreate returns why Ensure cannot create a publication that does not exist; nil: it can.
func MayCreate(ctx context.Context, q source.Querier, c *source.Config) error {
	var tables []uint32
	for _, t := range c.Tables {
		tables = append(tables, t.OID)
	}
	var may bool
	err := q.QueryRow(ctx, `SELECT has_database_privilege(current_database(), 'CREATE')
		AND NOT EXISTS (SELECT FROM pg_class WHERE oid = ANY ($1::oid[]) AND NOT pg_has_role(relowner, 'USAGE'))`, tables).Scan(&may)
	if err == nil && !may {
		return mayNotCreate(c, nil)
	}
	return err
}

func mayNotCreate(c *source.Config, cause error) error {
	return &event.Stop{
		Code: event.ExitFailure, Reason: "rights", Err: cause,
		What: fmt.Sprintf("publication %q does not exist and this role may not create it", c.Publication),
		Fix:  "run `cdc-relay init --no-slot --url <URL of the tables' owner>`, or: " + CreateSQL(c),
	}
}

// Exists reports whether the server has a publication of the configured name, whatever it
// publishes.
func Exists(ctx context.Context, q source.Querier, c *source.Config) (there bool, err error) {
	err = q.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_publication WHERE pubname = $1)`, c.Publication).Scan(&there)
	if err != nil {
		return false, fmt.Errorf("read pg_publication: %w", err)
	}
	return there, nil
}

// Check compares the publication with what the relay needs: every table in it, all of its rows,
// under its own name when it is partitioned, with inserts and the mapped columns; and with its
// previous state (none: the slot is new, or adopted as it is). It returns the current state.
// PostgreSQL does not report what it does not send, so this runs at the start of every session and
// while it lasts.
func Check(ctx context.Context, q source.Querier, c *source.Config, was State) (State, error) {
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	now := State{Tables: map[string]Table{}}
	if c.Messages.Prefix != "" {
		now.Prefixes = []string{c.Messages.Prefix}
	}
	var inserts, viaRoot, bySchema bool
	err := q.QueryRow(ctx, `SELECT oid, xmin::text, pubinsert, pubviaroot, to_regclass('pg_catalog.pg_publication_namespace') IS NOT NULL
		FROM pg_publication WHERE pubname = $1`, c.Publication).Scan(&now.Publication, &now.Version, &inserts, &viaRoot, &bySchema)
	if source.IsNoRows(err) {
		return now, Missing(c)
	}
	if err != nil {
		return now, fmt.Errorf("read pg_publication: %w", err)
	}
	if was.Publication != 0 && was.Publication != now.Publication {
		return now, Stop(c, fmt.Sprintf("was dropped and created again (OID %d, it was %d)", now.Publication, was.Publication),
			RenewSlotHint(c))
	}
	if !inserts && len(c.Tables) > 0 {
		return now, Stop(c, "does not publish inserts",
			fmt.Sprintf("ALTER PUBLICATION %s SET (publish = 'insert')", source.QuoteName(c.Publication))+was.again())
	}
	for _, t := range c.Tables {
		p, err := readPublished(ctx, q, c, t, was.oid(t), bySchema)
		if err != nil {
			return now, err
		}
		if err := p.check(c, t, was, viaRoot); err != nil {
			return now, droppedMeanwhile(ctx, q, c, err)
		}
		now.Tables[source.QuoteTable(t)] = p.Table
	}
	now.Foreign = was.Foreign
	if was.Publication == 0 { // the slot's first use: other listed tables belong to others
		if now.Foreign, err = listedOthers(ctx, q, c, now); err != nil {
			return now, err
		}
	}
	if now.Foreign, err = withLeaves(ctx, q, now.Foreign); err != nil {
		return now, err
	}
	// No alteration hides a message.
	if len(c.Tables)+len(was.Tables) > 0 && was.Version != "" && was.Version != now.Version {
		return now, Stop(c, "was altered: in between it may have sent no inserts, or partitions under their own names",
			source.AcceptHint)
	}
	return now, nil
}

// droppedMeanwhile is the finding that the publication is gone, if it was dropped after Check had
// read it. Its tables left it with that, so found would advise to add them to it. Otherwise it is
// found. Both are exit 3: no event is passed over either way.
func droppedMeanwhile(ctx context.Context, q source.Querier, c *source.Config, found error) error {
	exists := true
	err := q.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_publication WHERE pubname = $1)`, c.Publication).Scan(&exists)
	if err == nil && !exists {
		return Missing(c)
	}
	return found
}

// listedOthers are the tables that the publication lists by name and that are not configured, by
// OID, in ascending order. A partition of a configured table is none of them: rows under its own
// name are rows of that table, from before publish_via_partition_root was set.
func listedOthers(ctx context.Context, q source.Querier, c *source.Config, ours State) ([]uint32, error) {
	var known []uint32
	for _, t := range ours.Tables {
		known = append(known, t.OID)
	}
	var listed []uint32
	err := q.QueryRow(ctx, `SELECT array(SELECT r.prrelid FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid
		WHERE p.pubname = $1 AND r.prrelid <> ALL (coalesce($2::oid[], '{}')) AND NOT `+isPartitionSQL("r.prrelid", "$2::oid[]")+` ORDER BY 1)`, c.Publication, known).Scan(&listed)
	if err != nil {
		return nil, fmt.Errorf("read pg_publication_rel: %w", err)
	}
	return listed, nil
}

// isPartitionSQL is the SQL condition that a table is a partition of one of some tables.
func isPartitionSQL(table, tables string) string {
	return `EXISTS (SELECT FROM pg_partition_ancestors(` + table + `) a(relid) WHERE a.relid = ANY (` + tables + `))`
}

// withLeaves adds the partitions of foreign tables, whose rows may come under the partitions' OIDs,
// even if these are detached or dropped by then.
func withLeaves(ctx context.Context, q source.Querier, foreign []uint32) ([]uint32, error) {
	if len(foreign) == 0 {
		return nil, nil
	}
	var leaves []uint32
	err := q.QueryRow(ctx, `WITH RECURSIVE tree AS (SELECT inhrelid FROM pg_inherits WHERE inhparent = ANY ($1::oid[])
			UNION SELECT i.inhrelid FROM tree JOIN pg_inherits i ON i.inhparent = tree.inhrelid)
		SELECT array(SELECT c.oid FROM tree JOIN pg_class c ON c.oid = inhrelid WHERE c.relispartition)`, foreign).Scan(&leaves)
	if err != nil {
		return nil, fmt.Errorf("read pg_inherits: %w", err)
	}
	all := slices.Concat(foreign, leaves)
	slices.Sort(all)
	return slices.Compact(all), nil
}
