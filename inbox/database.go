// What the inbox does in the service's database: it checks that the database can record events,
// waits for it, and keeps the table of processed messages.

package inbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cdc-relay/cdc-relay/inbox/internal/work"
)

// Ready waits until the database can record events. It returns an error when ctx ends, and for a
// fault that waiting does not cure, such as a missing table. Call it before messages are asked for:
// a message that is delivered and cannot be processed is delivered again, and brokers count that.
func (t *Transport) Ready(ctx context.Context) error {
	in := t.in
	pause := newBackoff()
	for {
		err := in.checkDatabase(ctx)
		switch {
		case err == nil:
			in.database.noteUp()
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case hasSQLState(err, "42P01", "3F000", "42703"): // no such table, schema or column
			return fmt.Errorf("find the table of processed messages: %w: create it as inbox.Schema does:\n\n%s", err, Schema(in.cfg.Table))
		// the login or a right is missing
		case hasSQLState(err, "28", "3D", "42"), errors.Is(err, errNotDurable):
			return err
		}
		in.database.noteDown(err)
		if err := pause.Pause(ctx); err != nil {
			return err
		}
	}
}

// errNotDurable says that a setting may let effects, or the records of their events, vanish.
var errNotDurable = errors.New("the database may forget what is processed")

// checkDatabase does the same statements as attempt, confirmRecord and Prune, and rolls them back.
func (in *Inbox) checkDatabase(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, in.cfg.Timeout)
	defer cancel()
	tx, err := in.db.begin(ctx)
	if err != nil {
		return fmt.Errorf("begin a transaction: %w", err)
	}
	defer tx.rollback(ctx)
	var synchronous, persistence string
	if err := tx.queryRow(ctx, in.sql.readSettings, []any{quotedTable(in.cfg.Table)}, &synchronous, &persistence); err != nil {
		return fmt.Errorf("read the settings of %s: %w", in.cfg.Table, err)
	}
	first, err := in.recordEvent(ctx, tx, "", nil)
	switch {
	case err != nil:
		return err
	case !first: // every message would count as a duplicate
		return fmt.Errorf("%w: %s does not take a row: has it a trigger or a rule? Make it as inbox.Schema does", errNotDurable, in.cfg.Table)
	}
	// These statements show that the rights are there. The second one deletes no rows.
	if _, err := tx.exec(ctx, in.sql.compareRecord, in.cfg.Service, "", []byte{}); err != nil {
		return fmt.Errorf("read an event in %s: %w", in.cfg.Table, err)
	}
	if _, err := tx.exec(ctx, in.sql.deleteOld, in.cfg.Service, in.cfg.Keep.Seconds(), 0); err != nil {
		return fmt.Errorf("delete old rows of %s: %w", in.cfg.Table, err)
	}
	switch {
	case synchronous == "off":
		return fmt.Errorf("%w: synchronous_commit is off: a crash of the server would undo effects whose messages are acknowledged. Set it to on for this database or role", errNotDurable)
	case persistence != "p":
		return fmt.Errorf("%w: %s is not logged: a crash of the server would empty it. ALTER TABLE %s SET LOGGED", errNotDurable, in.cfg.Table, quotedTable(in.cfg.Table))
	}
	return nil
}

// recordEvent records an event as processed by the transaction. It returns false when the event was
// recorded before. While another transaction has recorded the event and has not ended, it waits for
// that one.
func (in *Inbox) recordEvent(ctx context.Context, tx transaction, id string, content []byte) (first bool, err error) {
	idle := strconv.FormatInt((in.cfg.Timeout + handlerOvertime).Milliseconds(), 10)
	rows, err := tx.exec(ctx, in.sql.insertRecord, in.cfg.Service, id, content, idle)
	// the server is a standby now, and a new connection may find the primary
	if hasSQLState(err, "25006") {
		tx.discardConnection(ctx)
	}
	if err != nil {
		return false, fmt.Errorf("record an event in %s: %w", in.cfg.Table, err)
	}
	return rows == 1, nil
}

// availability says whether the database records events: in the log and in a metric.
type availability struct {
	journal *work.Journal
	up      prometheus.Gauge
}

func newAvailability(log *slog.Logger, up prometheus.Gauge) *availability {
	return &availability{work.NewJournal(log, "the database does not record events, processing waits", "the database records events again"), up}
}

func (a *availability) noteDown(err error) {
	a.up.Set(0)
	a.journal.Failed(err)
}

func (a *availability) noteUp() {
	a.up.Set(1)
	a.journal.Works()
}

// newBackoff makes the pauses between two attempts while the database does not answer.
func newBackoff() work.Backoff { return work.Backoff{Max: 5 * time.Second} }

// Schema returns the statements that create the table of processed messages if it does not exist.
// table is "name" or "schema.name"; "" means processed_messages. Schema panics when table is
// something else. Put the statements into a migration: run again, they wait for the transactions
// that write to the table. Each ends with a semicolon. The role of the service needs the rights to
// SELECT, INSERT, UPDATE and DELETE: nothing is updated, but old rows are locked before they are
// deleted.
func Schema(table string) string {
	if table != "" && !tableName.MatchString(table) {
		panic(fmt.Sprintf("inbox: Schema of table %q: want \"name\" or \"schema.name\"", table))
	}
	return strings.NewReplacer("TABLE_NAME", quotedTable(table), "INDEX_NAME", indexName(table)).Replace(`CREATE TABLE IF NOT EXISTS TABLE_NAME (
    service text NOT NULL,
    id text NOT NULL,
    content_hash bytea, -- of all that an event has: an id that another event has again is found
    processed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (service, id)
);
CREATE INDEX IF NOT EXISTS INDEX_NAME ON TABLE_NAME (service, processed_at);
`)
}

// quotedTable returns a table's name as SQL has it.
func quotedTable(table string) string { return tableIdentifier(table).Sanitize() }

// indexName returns the name of the table's index, which is in the table's schema. It shortens the
// name to the 63 bytes after which PostgreSQL cuts names off. Otherwise the index of a table with a
// long name would get the table's own name, and would not be made.
func indexName(table string) string {
	const suffix = "_processed_at"
	name := tableIdentifier(table)
	last := name[len(name)-1]
	return pgx.Identifier{strings.ToValidUTF8(last[:min(len(last), 63-len(suffix))], "") + suffix}.Sanitize()
}

func tableIdentifier(table string) pgx.Identifier {
	if table == "" {
		table = "processed_messages"
	}
	return strings.Split(table, ".")
}

// statements are the SQL statements on the table of processed messages.
type statements struct{ insertRecord, compareRecord, readSettings, hasRecords, deleteOld string }

func newStatements(table string) *statements {
	name := quotedTable(table)
	return &statements{
		// A process whose machine is frozen or has lost its power keeps the record locked as long
		// as its transaction lives. The server ends a transaction in which nothing has come for so
		// long.
		insertRecord: "INSERT INTO " + name + " (service, id, content_hash) SELECT $1::text, $2::text, $3::bytea" +
			" FROM set_config('idle_in_transaction_session_timeout', $4::text, true) ON CONFLICT (service, id) DO NOTHING",
		// A consumer of another version may have recorded another kind of fingerprint, or none. The
		// logical message has no meaning of its own: see confirmRecord.
		compareRecord: "SELECT CASE WHEN substr(content_hash, 1, 1) = substr($3::bytea, 1, 1) THEN content_hash = $3 ELSE true END FROM " + name +
			", pg_logical_emit_message(true, 'inbox', '') WHERE service = $1 AND id = $2",
		readSettings: "SELECT current_setting('synchronous_commit'), relpersistence::text FROM pg_class WHERE oid = $1::text::regclass",
		hasRecords:   "SELECT EXISTS (SELECT FROM " + name + " WHERE service = $1)",
		// Rows that another process deletes now are skipped: nobody waits, and no lock outlives a
		// batch. Found by ctid, rows are deleted without another search, whatever the planner knows
		// of the table. A ctid stays valid because nobody updates the rows.
		deleteOld: "DELETE FROM " + name + " WHERE ctid = ANY (ARRAY (SELECT ctid FROM " + name +
			" WHERE service = $1 AND processed_at < now() - $2 * interval '1 second' ORDER BY processed_at LIMIT $3 FOR UPDATE SKIP LOCKED))",
	}
}

const (
	pruneBatch = 1000
	pruneEvery = 10 * time.Minute
)

// Prune deletes the records of this service that are older than Config.Keep, and returns how many.
// It deletes in small transactions, waits for no lock of a row, and may run in several processes at
// once. A consumer that runs does it every ten minutes.
func (in *Inbox) Prune(ctx context.Context) (int64, error) {
	for all := int64(0); ; {
		rows, err := in.db.exec(ctx, in.sql.deleteOld, in.cfg.Service, in.cfg.Keep.Seconds(), pruneBatch)
		if err != nil {
			return all, fmt.Errorf("delete old rows of %s: %w", in.cfg.Table, err)
		}
		all += rows
		if rows < pruneBatch {
			return all, nil
		}
	}
}

// Prune deletes old records every ten minutes, until ctx ends. A consumer runs it beside its
// sessions.
func (t *Transport) Prune(ctx context.Context) {
	in := t.in
	ticker := time.NewTicker(pruneEvery)
	defer ticker.Stop()
	for {
		if n, err := in.Prune(ctx); err != nil && ctx.Err() == nil {
			in.cfg.Log.Warn("prune processed messages", "error", err)
		} else if n > 0 {
			in.cfg.Log.Info("processed messages pruned", "rows", n)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}
