// The statement that creates the table.

package outbox

import (
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Schema is the statement that creates this writer's table if it does not exist, with the types of
// the package's [Schema]. Where the database makes the ids it has them in a column id of type
// bigint.
func (w *Writer) Schema() string {
	c := &w.cfg.Columns
	var lines []string
	add := func(name, kind string) {
		if name != NoColumn {
			lines = append(lines, fmt.Sprintf("    %s %s", pgx.Identifier{name}.Sanitize(), kind))
		}
	}
	if c.ID == NoColumn {
		add("id", "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY")
	}
	add(c.ID, "uuid PRIMARY KEY")
	add(c.Aggregate, "text NOT NULL")
	add(c.Key, "text NOT NULL")
	add(c.Type, "text NOT NULL")
	add(c.Payload, "jsonb")
	add(c.Headers, "jsonb")
	add(c.Traceparent, "text")
	add("created_at", "timestamptz NOT NULL DEFAULT now()")
	return fmt.Sprintf("CREATE TABLE IF NOT EXISTS %s (\n%s\n);\n", w.table, strings.Join(lines, ",\n"))
}
