// The configuration of a writer: which table, which columns.

package outbox

import (
	"errors"
	"fmt"
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
	// AllowHeaders lists headers that steer RabbitMQ and are allowed all the same, such as
	// "x-delay": what sink.rabbitmq.allow_headers of the relay's configuration lists. The relay
	// drops others.
	AllowHeaders []string
	// MaxPayload is the largest payload in bytes, as the JSON that was given or as jsonb may write
	// it, with spaces and all digits of numbers: the longer one counts. Default 16 MiB, which is
	// what RabbitMQ 4 takes unless it is configured otherwise. Kafka takes about 1 MiB.
	MaxPayload int
}

// Writer writes events to one outbox. It is immutable: any number of goroutines may share it, each
// with a transaction of its own.
type Writer struct {
	cfg     Config // with its defaults
	table   string // quoted
	uuid    bool   // the id's column is that of Schema
	columns []column
	single  string // the INSERT of one event
}

// New makes a Writer. It asks no database: that the table has these columns shows at the first
// event.
func New(cfg Config) (*Writer, error) {
	w := &Writer{cfg: cfg, uuid: cfg.Columns.ID == ""}
	w.cfg.AllowHeaders = slices.Clone(cfg.AllowHeaders)
	c := &w.cfg.Columns
	for _, d := range []struct {
		text     *string
		standard string
	}{
		{&w.cfg.Table, "outbox"},
		{&w.cfg.Prefix, "outbox"},
		{&c.ID, "id"},
		{&c.Aggregate, "aggregatetype"},
		{&c.Key, "aggregateid"},
		{&c.Type, "type"},
		{&c.Payload, "payload"},
		{&c.Headers, "headers"},
		{&c.Traceparent, "traceparent"},
	} {
		if *d.text == "" {
			*d.text = d.standard
		}
	}
	if w.cfg.MaxPayload == 0 {
		w.cfg.MaxPayload = maxPayload
	}
	if err := w.validate(); err != nil {
		return nil, fmt.Errorf("outbox: invalid configuration: %w", err)
	}
	w.table = pgx.Identifier(strings.Split(w.cfg.Table, ".")).Sanitize()
	w.columns = insertColumns(c)
	w.single = insertSQL(w.table, w.columns, 1)
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
	if len(parts) > 2 || slices.ContainsFunc(parts, notAName) {
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
		if !slices.Contains(steering, name) {
			return fmt.Errorf("AllowHeaders has %q, which does not steer RabbitMQ: only %s need to be allowed", name, strings.Join(steering, ", "))
		}
	}
	return nil
}

func (c *Columns) validate() error {
	fields := map[string]string{} // by column
	for _, f := range []struct{ name, column string }{
		{"ID", c.ID},
		{"Aggregate", c.Aggregate},
		{"Key", c.Key},
		{"Type", c.Type},
		{"Payload", c.Payload},
		{"Headers", c.Headers},
		{"Traceparent", c.Traceparent},
	} {
		switch other, taken := fields[f.column]; {
		case notAName(f.column):
			return fmt.Errorf("Columns.%s is %q: want a name of 1 to %d bytes", f.name, f.column, maxName)
		case f.column == NoColumn:
			continue
		case taken:
			return fmt.Errorf("Columns.%s and Columns.%s are both %q", other, f.name, f.column)
		}
		fields[f.column] = f.name
	}
	if c.Payload == NoColumn {
		return errors.New("Columns.Payload is NoColumn: every outbox has a column for the payload")
	}
	return nil
}

// notAName is whether PostgreSQL cannot have a table or column of that name.
func notAName(name string) bool { return name == "" || len(name) > maxName || textProblem(name) != "" }
