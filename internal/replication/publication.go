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
// and a partitioned table under its own name. Messages are sent whatever is in it; without tables it is empty.
func createPublicationSQL(c *Config) string {
	tables := ""
	if len(c.Tables) > 0 {
		tables = "FOR TABLE " + c.tableNames() + " "
	}
	return fmt.Sprintf("CREATE PUBLICATION %s %sWITH (publish = 'insert', publish_via_partition_root = true)", quoteName(c.Publication), tables)
}

// madeByRelay is the comment on a publication that is ours to drop. It stands with the publication itself: one that somebody
// made under the name later does not have it, and all slots that are read with it can see it.
const madeByRelay = "Made by cdc-relay, whose teardown drops it."

func markPublicationSQL(c *Config) string {
	return fmt.Sprintf("COMMENT ON PUBLICATION %s IS %s", quoteName(c.Publication), quoteText(madeByRelay))
}

// ensurePublication creates a missing publication. It must come before the slot: a slot that decodes a row while its
// publication is missing fails for ever (PostgreSQL 14 to 17) or drops the row (18).
func ensurePublication(ctx context.Context, pool *pgxpool.Pool, c *Config) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	there, err := publicationExists(ctx, pool, c)
	if err != nil || there {
		return err
	}
	if !c.Create {
		return publicationMissing(c)
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		for _, sql := range []string{createPublicationSQL(c), markPublicationSQL(c)} {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		return nil
	})
	switch pgCode(err) {
	case "42710", "23505": // another relay was faster, by much or by little
		return nil
	case "42501":
		return &outbox.Stop{
			Code: outbox.ExitFailure, Reason: "rights", Err: err,
			What: fmt.Sprintf("publication %q does not exist and this role may not create it", c.Publication),
			Mend: "run `cdc-relay init --no-slot --url <URL of the tables' owner>`, or: " + createPublicationSQL(c),
		}
	}
	if err != nil {
		return fmt.Errorf("create publication %q: %w", c.Publication, err)
	}
	return nil
}

func publicationExists(ctx context.Context, q querier, c *Config) (there bool, err error) {
	err = q.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_publication WHERE pubname = $1)`, c.Publication).Scan(&there)
	if err != nil {
		return false, fmt.Errorf("read pg_publication: %w", err)
	}
	return there, nil
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
	return fmt.Sprintf("SELECT pg_drop_replication_slot(%s)%s%s; then find and re-send what is missing", quoteText(c.Slot), adoptHint(c), newSlotHint(c))
}

// newSlotHint says who makes the slot after that.
func newSlotHint(c *Config) string {
	if c.Create {
		return " (a new slot is created)"
	}
	return "; then make the slot, since source.create is false: " + makeSlotSQL(c)
}

func makeSlotSQL(c *Config) string {
	return fmt.Sprintf("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", quoteText(c.Slot))
}

// adoptHint says how to go on after an operator accepted that rows may be missing.
func adoptHint(c *Config) string {
	return fmt.Sprintf("; then accept the slot as it is: UPDATE cdc_relay.slots SET state = 'adopt' WHERE slot = %s", quoteText(c.Slot))
}

// checkPublication compares the publication with what the relay needs: every table in it, all of its rows, under its own
// name when it is partitioned, with inserts and the mapped columns; and with what it was (nothing: the slot is new, or
// adopted as it is). It returns what it is. What is missing is silently not sent, so this runs at the start of every session
// and while it lasts.
func checkPublication(ctx context.Context, q querier, c *Config, was sends) (sends, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	now := sends{Tables: map[string]sentTable{}}
	if c.Messages.Prefix != "" {
		now.Prefixes = []string{c.Messages.Prefix}
	}
	var inserts, viaRoot, bySchema bool
	err := q.QueryRow(ctx, `SELECT oid, xmin::text, pubinsert, pubviaroot, to_regclass('pg_catalog.pg_publication_namespace') IS NOT NULL
		FROM pg_publication WHERE pubname = $1`, c.Publication).Scan(&now.Publication, &now.Version, &inserts, &viaRoot, &bySchema)
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
	if !inserts && len(c.Tables) > 0 {
		return now, publicationStop(c, "does not publish inserts",
			fmt.Sprintf("ALTER PUBLICATION %s SET (publish = 'insert')", quoteName(c.Publication))+was.accept(c))
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
	now.Foreign = was.Foreign
	if was.Publication == 0 { // the slot's first use: what is listed beside ours belongs to others
		if now.Foreign, err = listedBeside(ctx, q, c, now); err != nil {
			return now, err
		}
	}
	if now.Foreign, err = withLeaves(ctx, q, now.Foreign); err != nil {
		return now, err
	}
	// No alteration hides a message.
	if len(c.Tables)+len(was.Tables) > 0 && was.Version != "" && was.Version != now.Version {
		return now, publicationStop(c, "was altered: in between it may have sent no inserts, or partitions under their own names",
			"find and re-send what is missing, if anything is"+adoptHint(c))
	}
	return now, nil
}

// accept is the end of a mend for a publication that a slot in use was read with: what it hid is lost, and the operator says
// so by adopting the slot. A new slot has lost nothing.
func (s sends) accept(c *Config) string {
	if s.Publication == 0 {
		return ""
	}
	return "; then find and re-send what is missing" + adoptHint(c)
}

func publicationStop(c *Config, what, mend string) *outbox.Stop {
	return &outbox.Stop{
		Code: outbox.ExitOperator, Reason: "publication",
		What: fmt.Sprintf("publication %q %s", c.Publication, what),
		Mend: mend,
	}
}

// namedIn says in words which tables, for log lines.
func namedIn(tables []decode.Table) string {
	names := make([]string, len(tables))
	for i, t := range tables {
		names[i] = t.Schema + "." + t.Name
	}
	return strings.Join(names, ", ")
}
