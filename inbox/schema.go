// The table of processed messages, and the statements on it.

package inbox

import (
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Schema returns the statements that make the table of processed messages if it does not exist:
// "name" or "schema.name", "" for processed_messages. It panics when table is something else. Put
// the statements into a migration: run again, they wait for the transactions that write to the
// table. Each ends with a semicolon. The role of the service needs the rights to SELECT, INSERT,
// UPDATE and DELETE: nothing is updated, but old rows are locked before they are deleted.
func Schema(table string) string {
	if table != "" && !tableName.MatchString(table) {
		panic(fmt.Sprintf("inbox: Schema of table %q: want \"name\" or \"schema.name\"", table))
	}
	return strings.NewReplacer("TABLE_NAME", quoted(table), "INDEX_NAME", indexOf(table)).Replace(`CREATE TABLE IF NOT EXISTS TABLE_NAME (
    service text NOT NULL,
    id text NOT NULL,
    fingerprint bytea, -- of the event's content: an id that another event has again is found
    processed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (service, id)
);
CREATE INDEX IF NOT EXISTS INDEX_NAME ON TABLE_NAME (service, processed_at);
`)
}

// quoted is a table's name as SQL has it.
func quoted(table string) string { return identifier(table).Sanitize() }

// indexOf is the name of the table's index, which is in the table's schema. PostgreSQL cuts names
// off after 63 bytes: uncut, the index of a table with a long name would be taken for the table,
// and not be made.
func indexOf(table string) string {
	const suffix = "_processed_at"
	name := identifier(table)
	last := name[len(name)-1]
	return pgx.Identifier{strings.ToValidUTF8(last[:min(len(last), 63-len(suffix))], "") + suffix}.Sanitize()
}

func identifier(table string) pgx.Identifier {
	if table == "" {
		table = "processed_messages"
	}
	return strings.Split(table, ".")
}

// statements are those on one table.
type statements struct{ record, recorded, settings, remembers, prune string }

func newStatements(table string) statements {
	name := quoted(table)
	return statements{
		// A process whose machine is frozen or has lost its power keeps the record locked, as long
		// as its transaction lives. The server ends one in which nothing has come for so long.
		record: "INSERT INTO " + name + " (service, id, fingerprint) SELECT $1::text, $2::text, $3::bytea" +
			" FROM set_config('idle_in_transaction_session_timeout', $4::text, true) ON CONFLICT (service, id) DO NOTHING",
		// The message has no meaning: see confirm.
		recorded:  "SELECT coalesce(fingerprint, $3) = $3 FROM " + name + ", pg_logical_emit_message(true, 'inbox', '') WHERE service = $1 AND id = $2",
		settings:  "SELECT current_setting('synchronous_commit'), relpersistence::text FROM pg_class WHERE oid = $1::text::regclass",
		remembers: "SELECT EXISTS (SELECT FROM " + name + " WHERE service = $1)",
		// Rows that another process deletes now are skipped: nobody waits, and no lock outlives a
		// batch. Found by ctid, they are deleted without another search, whatever the planner knows
		// of the table. They stay where they are: nobody updates them.
		prune: "DELETE FROM " + name + " WHERE ctid = ANY (ARRAY (SELECT ctid FROM " + name +
			" WHERE service = $1 AND processed_at < now() - $2 * interval '1 second' ORDER BY processed_at LIMIT $3 FOR UPDATE SKIP LOCKED))",
	}
}
