// The table of processed messages, and the statements on it.

package inbox

import (
	"strings"

	"github.com/jackc/pgx/v5"
)

// Schema returns the statements that make the table of processed messages: "name" or "schema.name",
// "" for processed_messages. Put them into a migration. The role of the service needs the rights to
// SELECT, INSERT and DELETE.
func Schema(table string) string {
	return strings.NewReplacer("TABLE_NAME", quoted(table)).Replace(`CREATE TABLE TABLE_NAME (
    service text NOT NULL,
    id text NOT NULL,
    fingerprint bytea, -- of the event's content: an id that another event has again is found
    processed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (service, id)
);
CREATE INDEX ON TABLE_NAME (service, processed_at);
`)
}

// quoted is a table's name as SQL has it.
func quoted(table string) string {
	if table == "" {
		table = "processed_messages"
	}
	return pgx.Identifier(strings.Split(table, ".")).Sanitize()
}

// statements are those on one table.
type statements struct{ record, recorded, remembers, prune string }

func newStatements(table string) statements {
	name := quoted(table)
	return statements{
		record:    "INSERT INTO " + name + " (service, id, fingerprint) VALUES ($1, $2, $3) ON CONFLICT (service, id) DO NOTHING",
		recorded:  "SELECT coalesce(fingerprint, $3) = $3 FROM " + name + " WHERE service = $1 AND id = $2",
		remembers: "SELECT EXISTS (SELECT FROM " + name + " WHERE service = $1)",
		// Rows that another process deletes now are skipped: nobody waits, and no lock outlives a
		// batch. Found by ctid, they are deleted without another search, whatever the planner knows
		// of the table. They stay where they are: nobody updates them.
		prune: "DELETE FROM " + name + " WHERE ctid = ANY (ARRAY (SELECT ctid FROM " + name +
			" WHERE service = $1 AND processed_at < now() - $2 * interval '1 second' ORDER BY processed_at LIMIT $3 FOR UPDATE SKIP LOCKED))",
	}
}
