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
// UPDATE and DELETE: nothing is updated, but old rows are locked before they are deleted. A
// consumer also runs on the table of an earlier version, without what a column adds that it does
// not have.
func Schema(table string) string {
	if table != "" && !tableName.MatchString(table) {
		panic(fmt.Sprintf("inbox: Schema of table %q: want \"name\" or \"schema.name\"", table))
	}
	return strings.NewReplacer("TABLE_NAME", quoted(table), "INDEX_NAME", indexOf(table)).Replace(`CREATE TABLE IF NOT EXISTS TABLE_NAME (
    service text NOT NULL,
    id text NOT NULL,
    fingerprint bytea, -- of aggregate, key, type and payload: an id that another event has again is found
    processed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (service, id)
);
-- The same of the headers, too: the first byte is its version. Beside it the other stays, for consumers of an earlier version.
ALTER TABLE TABLE_NAME ADD COLUMN IF NOT EXISTS content_hash bytea;
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

// statements are those on one table. The fingerprints of an event are one parameter: see
// fingerprints.
type statements struct{ record, recorded, settings, remembers, prune string }

// newStatements are those on a table with or without the column content_hash.
func newStatements(table string, hashed bool) *statements {
	name := quoted(table)
	columns, values, same := "fingerprint", "substr($3::bytea, 1, 8)", "coalesce(fingerprint = substr($3::bytea, 1, 8), true)"
	if hashed {
		columns, values = columns+", content_hash", values+", substr($3::bytea, 9)"
		// What a consumer of another version has recorded may not have ours.
		same = "CASE WHEN substr(content_hash, 1, 1) = substr($3::bytea, 9, 1) THEN content_hash = substr($3::bytea, 9) ELSE " + same + " END"
	}
	return &statements{
		// A process whose machine is frozen or has lost its power keeps the record locked, as long
		// as its transaction lives. The server ends one in which nothing has come for so long.
		record: "INSERT INTO " + name + " (service, id, " + columns + ") SELECT $1::text, $2::text, " + values +
			" FROM set_config('idle_in_transaction_session_timeout', $4::text, true) ON CONFLICT (service, id) DO NOTHING",
		// The message has no meaning: see confirm.
		recorded: "SELECT " + same + " FROM " + name + ", pg_logical_emit_message(true, 'inbox', '') WHERE service = $1 AND id = $2",
		settings: "SELECT current_setting('synchronous_commit'), relpersistence::text, EXISTS (SELECT FROM pg_attribute" +
			" WHERE attrelid = c.oid AND attname = 'content_hash' AND atttypid = 'bytea'::regtype AND NOT attisdropped)" +
			" FROM pg_class c WHERE oid = $1::text::regclass",
		remembers: "SELECT EXISTS (SELECT FROM " + name + " WHERE service = $1)",
		// Rows that another process deletes now are skipped: nobody waits, and no lock outlives a
		// batch. Found by ctid, they are deleted without another search, whatever the planner knows
		// of the table. They stay where they are: nobody updates them.
		prune: "DELETE FROM " + name + " WHERE ctid = ANY (ARRAY (SELECT ctid FROM " + name +
			" WHERE service = $1 AND processed_at < now() - $2 * interval '1 second' ORDER BY processed_at LIMIT $3 FOR UPDATE SKIP LOCKED))",
	}
}
