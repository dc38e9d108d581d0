// The column in which a row has its transaction: the SQL that makes it.

package sent

import (
	"fmt"
	"hash/crc32"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Column is the column of a table for the row's transaction.
type Column struct {
	Schema, Table, Name string
	Bigint              bool // its type is bigint, for tools that do not know xid8
}

func (c Column) quoted() (table, column string) {
	return pgx.Identifier{c.Schema, c.Table}.Sanitize(), pgx.Identifier{c.Name}.Sanitize()
}

// Value is the SQL of the column's default: the transaction that runs, with its epoch.
func (c Column) Value() string {
	if c.Bigint {
		return "pg_catalog.pg_current_xact_id()::text::bigint"
	}
	return "pg_catalog.pg_current_xact_id()"
}

// Type is the SQL of the column's type.
func (c Column) Type() string {
	if c.Bigint {
		return "bigint"
	}
	return "xid8"
}

// AddSQL adds the column. Rows that are there stay NULL, whoever wrote them: with the default at
// once they would all get the transaction of this statement.
func (c Column) AddSQL() string {
	table, column := c.quoted()
	return fmt.Sprintf("ALTER TABLE %s ADD COLUMN %s %s, ALTER COLUMN %[2]s SET DEFAULT %[4]s", table, column, c.Type(), c.Value())
}

// IndexSQL makes the index by which retention finds rows; on is "ON", "ON ONLY" or
// "CONCURRENTLY ON". PostgreSQL chooses a name that is free.
func (c Column) IndexSQL(on string) string {
	table, column := c.quoted()
	return fmt.Sprintf("CREATE INDEX %s %s (%s)", on, table, column)
}

// Trigger is the trigger's name. It sorts behind those of other triggers, which run before it.
func (c Column) Trigger() string { return shortened("zz_cdc_relay_" + c.Name) }

// Function is the name of the trigger's function, in the table's schema: each table has its own, as
// two tables may have two owners.
func (c Column) Function() string { return shortened("cdc_relay_" + c.Table + "_set_" + c.Name) }

func (c Column) function() string { return pgx.Identifier{c.Schema, c.Function()}.Sanitize() }

// functionSQL makes the trigger's function. Somebody else may have made one of that name before,
// who could change later what runs as whoever inserts: it is taken from him.
func (c Column) functionSQL() []string {
	_, column := c.quoted()
	return []string{
		fmt.Sprintf("CREATE OR REPLACE FUNCTION %s() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.%s := %s; RETURN NEW; END $$", c.function(), column, c.Value()),
		fmt.Sprintf("ALTER FUNCTION %s() OWNER TO CURRENT_USER", c.function()),
	}
}

// triggerSQL makes the trigger. With its condition it is called for the rows alone that it changes.
// It is ALWAYS for a subscription's rows.
func (c Column) triggerSQL() []string {
	table, column := c.quoted()
	trigger := pgx.Identifier{c.Trigger()}.Sanitize()
	return []string{
		fmt.Sprintf("CREATE OR REPLACE TRIGGER %s BEFORE INSERT ON %s FOR EACH ROW WHEN (NEW.%s IS DISTINCT FROM %s) EXECUTE FUNCTION %s()", trigger, table, column, c.Value(), c.function()),
		fmt.Sprintf("ALTER TABLE %s ENABLE ALWAYS TRIGGER %s", table, trigger),
	}
}

// TriggerSQL makes what sets the column at each INSERT, whatever the statement says: a row that is
// inserted again, from a copy, by a subscription or with NULL, is a row of the transaction that
// inserts it. The function is ours once it is changed: its first statement is one transaction.
func (c Column) TriggerSQL() []string {
	return append([]string{"DO $do$ BEGIN " + strings.Join(c.functionSQL(), "; ") + "; END $do$"}, c.triggerSQL()...)
}

// TableSQL makes index and trigger of a table that was created with the column. A table that has
// the trigger, and one whose column is another's, stay as they are.
func (c Column) TableSQL() string {
	table, _ := c.quoted()
	return fmt.Sprintf(`DO $do$ BEGIN
    IF EXISTS (SELECT FROM pg_attribute JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
            WHERE attrelid = %[1]s::regclass AND attname = %[2]s AND atttypid = '%[4]s'::regtype
                AND pg_get_expr(adbin, adrelid) LIKE '%%pg_current_xact_id()%%')
        AND NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = %[1]s::regclass AND tgname = %[3]s)
    THEN
        IF NOT EXISTS (SELECT FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = indkey[0]
                WHERE indrelid = %[1]s::regclass AND attname = %[2]s AND indpred IS NULL)
        THEN
            %[5]s;
        END IF;
        %[6]s;
    END IF;
END $do$`, text(table), text(c.Name), text(c.Trigger()), c.Type(), c.IndexSQL("ON"), strings.Join(append(c.functionSQL(), c.triggerSQL()...), ";\n        "))
}

func text(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// shortened is a name that PostgreSQL does not cut: one of more than 63 bytes ends with a checksum
// of it all, so that those of two tables are not the same.
func shortened(name string) string {
	const longest = 63
	if len(name) <= longest {
		return name
	}
	sum := fmt.Sprintf("_%08x", crc32.ChecksumIEEE([]byte(name)))
	return strings.ToValidUTF8(name[:longest-len(sum)], "") + sum
}
