// The statements that create the table.

package outbox

import (
	"fmt"
	"hash/crc32"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Schema is the statements that create this writer's table if it does not exist, with the types of
// the package's [Schema]. Where the database makes the ids it has them in a column id of type
// bigint.
//
// The column tx has the transaction that wrote the row, whatever an INSERT says: by it the relay
// knows which rows were delivered (docs/outbox.md#which-rows-were-delivered). Of a table that
// exists without it nothing is changed: `cdc-relay init --add-transaction-column` adds it.
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
	add("tx", "xid8 DEFAULT pg_current_xact_id()")
	return fmt.Sprintf("CREATE TABLE IF NOT EXISTS %s (\n%s\n);\n", w.table, strings.Join(lines, ",\n")) + w.transactionSQL()
}

// transactionSQL makes index and trigger of the column tx, once. What it makes is what `cdc-relay
// init --outbox-table` makes.
func (w *Writer) transactionSQL() string {
	name := strings.Split(w.cfg.Table, ".")
	last := len(name) - 1
	function := pgx.Identifier(append(name[:last:last], shortened("cdc_relay_"+name[last]+"_set_tx"))).Sanitize()
	return fmt.Sprintf(`DO $schema$ BEGIN
    IF EXISTS (SELECT FROM pg_attribute
            JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
            WHERE attrelid = %[3]s::regclass AND attname = 'tx'
                AND atttypid = 'xid8'::regtype
                AND pg_get_expr(adbin, adrelid) LIKE '%%pg_current_xact_id()%%')
        AND NOT EXISTS (SELECT FROM pg_trigger
            WHERE tgrelid = %[3]s::regclass AND tgname = 'zz_cdc_relay_tx')
    THEN
        IF NOT EXISTS (SELECT FROM pg_index
                JOIN pg_attribute ON attrelid = indrelid AND attnum = indkey[0]
                WHERE indrelid = %[3]s::regclass AND attname = 'tx' AND indpred IS NULL)
        THEN
            CREATE INDEX ON %[1]s (tx);
        END IF;
        CREATE OR REPLACE FUNCTION %[2]s()
            RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN NEW."tx" := pg_catalog.pg_current_xact_id(); RETURN NEW; END $$;
        ALTER FUNCTION %[2]s() OWNER TO CURRENT_USER;
        CREATE TRIGGER zz_cdc_relay_tx BEFORE INSERT ON %[1]s FOR EACH ROW
            WHEN (NEW.tx IS DISTINCT FROM pg_current_xact_id())
            EXECUTE FUNCTION %[2]s();
        ALTER TABLE %[1]s ENABLE ALWAYS TRIGGER zz_cdc_relay_tx;
    END IF;
END $schema$;
`, w.table, function, "'"+strings.ReplaceAll(w.table, "'", "''")+"'")
}

// shortened is a name that PostgreSQL does not cut: one that is too long ends with a checksum of it
// all, so that those of two tables are not the same.
func shortened(name string) string {
	if len(name) <= maxName {
		return name
	}
	sum := fmt.Sprintf("_%08x", crc32.ChecksumIEEE([]byte(name)))
	return strings.ToValidUTF8(name[:maxName-len(sum)], "") + sum
}
