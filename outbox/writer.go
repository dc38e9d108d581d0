// A writer: which table, which columns, and the statements that make them.

package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// NoColumn says that a table does not have a column.
const NoColumn = "-"

// Columns names the columns of an outbox table, and the members of a logical message, as the
// section outbox of the relay's configuration does. An empty name is the default. NoColumn says
// that there is no such column: an event that has something for it is refused.
type Columns struct {
	// ID has the event's id. Default "id", of type uuid. A column that is named here, be it "id",
	// may have any type that your ids fit. NoColumn: the database makes the ids, events have none,
	// and Emit is not possible.
	ID string
	// Aggregate has the event's aggregate. Default "aggregatetype".
	Aggregate string
	// Key has the event's key, and an empty text for none. Default "aggregateid".
	Key string
	// Type has the event's type. Default "type".
	Type string
	// Payload has the event's payload, and is of type jsonb, json or text. Default "payload"; there
	// always is one.
	Payload string
	// Headers has the event's headers, and is of type jsonb or json: the relay's
	// outbox.headers_column. Default "headers".
	Headers string
	// Traceparent has the trace context. Default "traceparent". NoColumn: it is not written, and
	// the trace begins at the relay.
	Traceparent string
}

// column is one of Columns: its field and name, the name by default, the type in Schema, and what
// an event has for it.
type column struct {
	field  string
	name   *string
	preset string
	kind   string
	null   bool // for an empty value
	json   bool // the value is JSON, else text
	value  func(*row) string
}

func (c *Columns) list() []column {
	return []column{
		{"ID", &c.ID, "id", "uuid PRIMARY KEY", false, false, func(r *row) string { return r.id }},
		{"Aggregate", &c.Aggregate, "aggregatetype", "text NOT NULL", false, false, func(r *row) string { return r.aggregate }},
		{"Key", &c.Key, "aggregateid", "text NOT NULL", false, false, func(r *row) string { return r.key }},
		{"Type", &c.Type, "type", "text NOT NULL", false, false, func(r *row) string { return r.typ }},
		{"Payload", &c.Payload, "payload", "jsonb", true, true, func(r *row) string { return r.payload }},
		{"Headers", &c.Headers, "headers", "jsonb", true, true, func(r *row) string { return r.headers }},
		{"Traceparent", &c.Traceparent, "traceparent", "text", true, false, func(r *row) string { return r.traceparent }},
	}
}

// Config is the configuration of a Writer. The zero value is that of the package's functions.
type Config struct {
	// Table is the outbox table, "name" or "schema.name", exactly as the catalog has it: it is
	// quoted. Without a schema the search_path decides. Default "outbox".
	Table string
	// Columns names its columns.
	Columns Columns
	// Prefix is the prefix of logical messages, the relay's source.message_prefix. Default
	// "outbox".
	Prefix string
	// Trace puts the trace context of the span in ctx into carrier, as "traceparent" and
	// "tracestate". It goes with the events, and the relay's span is below that span. By default
	// there is none, and the trace begins at the relay. With OpenTelemetry:
	//
	//	Trace: func(ctx context.Context, carrier map[string]string) {
	//		propagation.TraceContext{}.Inject(ctx, propagation.MapCarrier(carrier))
	//	},
	Trace func(ctx context.Context, carrier map[string]string)
	// AllowHeaders lists headers that steer RabbitMQ and are allowed all the same, such as
	// "x-delay": what sink.rabbitmq.allow_headers of the relay's configuration lists. The relay
	// drops others.
	AllowHeaders []string
	// MaxPayload is the largest payload in bytes, as the JSON that was given or as jsonb may write
	// it, with spaces and all digits of numbers: the longer one counts. Default 16 MiB, which is
	// what RabbitMQ 4 takes unless it is configured otherwise. Kafka takes about 1 MiB.
	MaxPayload int
}

// Writer writes events to one outbox. Any number of goroutines may share it, each with a
// transaction of its own.
type Writer struct {
	cfg       Config // with its defaults
	table     string // quoted
	idIsUUID  bool   // the id's column is that of Schema
	columns   []column
	insertOne string // the INSERT of one event
	ids       ids
}

// New makes a Writer. It asks no database: that the table has these columns shows at the first
// event.
func New(cfg Config) (*Writer, error) {
	w := &Writer{cfg: cfg, idIsUUID: cfg.Columns.ID == ""}
	w.cfg.AllowHeaders = slices.Clone(cfg.AllowHeaders)
	c := &w.cfg.Columns
	w.cfg.Table, w.cfg.Prefix = cmp.Or(cfg.Table, "outbox"), cmp.Or(cfg.Prefix, "outbox")
	w.cfg.MaxPayload = cmp.Or(cfg.MaxPayload, maxPayload)
	for _, col := range c.list() {
		*col.name = cmp.Or(*col.name, col.preset)
	}
	if err := w.validate(); err != nil {
		return nil, fmt.Errorf("outbox: invalid configuration: %w", err)
	}
	w.table = pgx.Identifier(strings.Split(w.cfg.Table, ".")).Sanitize()
	w.columns = slices.DeleteFunc(c.list(), func(col column) bool { return *col.name == NoColumn })
	w.insertOne = insertSQL(w.table, w.columns, 1)
	return w, nil
}

func mustNew(cfg Config) *Writer {
	w, err := New(cfg)
	if err != nil {
		panic(err) // cannot be: a test makes it
	}
	return w
}

// maxName is how long a name of PostgreSQL's may be, in bytes. It cuts off what is longer, so that
// another table or column would be meant.
const maxName = 63

func (w *Writer) validate() error {
	parts := strings.Split(w.cfg.Table, ".")
	if len(parts) > 2 || slices.ContainsFunc(parts, isNoName) {
		return fmt.Errorf("Table is %q: want \"name\" or \"schema.name\", each of 1 to %d bytes", w.cfg.Table, maxName)
	}
	if err := w.cfg.Columns.validate(); err != nil {
		return err
	}
	switch {
	case textProblem(w.cfg.Prefix) != "":
		return fmt.Errorf("Prefix %s", textProblem(w.cfg.Prefix))
	case w.cfg.MaxPayload < 0:
		return errors.New("MaxPayload is negative")
	}
	for _, name := range w.cfg.AllowHeaders {
		if !slices.Contains(steeringHeaders, name) {
			return fmt.Errorf("AllowHeaders has %q, which does not steer RabbitMQ: only %s need to be allowed", name, strings.Join(steeringHeaders, ", "))
		}
	}
	return nil
}

func (c *Columns) validate() error {
	fields := map[string]string{} // by column
	for _, col := range c.list() {
		switch other, taken := fields[*col.name]; {
		case isNoName(*col.name):
			return fmt.Errorf("Columns.%s is %q: want a name of 1 to %d bytes", col.field, *col.name, maxName)
		case *col.name == NoColumn:
			continue
		case taken:
			return fmt.Errorf("Columns.%s and Columns.%s are both %q", other, col.field, *col.name)
		}
		fields[*col.name] = col.field
	}
	if c.Payload == NoColumn {
		return errors.New("Columns.Payload is NoColumn: every outbox has a column for the payload")
	}
	return nil
}

// isNoName reports whether PostgreSQL cannot have a table or column of that name.
func isNoName(name string) bool { return name == "" || len(name) > maxName || textProblem(name) != "" }

// Schema is the statements that create this writer's table if it does not exist, with the types of
// the package's [Schema]. Where the database makes the ids it has them in a column id of type
// bigint.
//
// The column tx has the transaction that wrote the row, whatever an INSERT says: by it the relay
// knows which rows were delivered (docs/outbox.md#which-rows-were-delivered). Of a table that
// exists without it nothing is changed: `cdc-relay init --add-transaction-column` prints how.
func (w *Writer) Schema() string {
	var lines []string
	add := func(name, kind string) {
		lines = append(lines, fmt.Sprintf("    %s %s", pgx.Identifier{name}.Sanitize(), kind))
	}
	if w.cfg.Columns.ID == NoColumn {
		add("id", "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY")
	}
	for _, col := range w.columns {
		add(*col.name, col.kind)
	}
	add("created_at", "timestamptz NOT NULL DEFAULT clock_timestamp()")
	add("tx", "xid8 DEFAULT pg_current_xact_id()")
	return fmt.Sprintf("CREATE TABLE IF NOT EXISTS %s (\n%s\n);\n", w.table, strings.Join(lines, ",\n")) + w.transactionSQL()
}

// transactionSQL makes index and trigger of the column tx, once. It makes the same table as
// `cdc-relay init --outbox-table`.
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
