// The section outbox: its keys, which a table's own entry may have too.

package config

import (
	"github.com/cdc-relay/cdc-relay/internal/config/document"
	"github.com/cdc-relay/cdc-relay/internal/config/setting"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// outboxFields are the keys of the outbox section, which a table's own entry may have too, read
// into o.
func (l *loader) outboxFields(o *Outbox) []setting.Key {
	return []setting.Key{
		l.columnKey("outbox.id", &o.ID).
			Doc("The event's id. Its text becomes `message_id` (Kafka: the header `id`)."),
		l.columnKey("outbox.aggregate", &o.Aggregate).
			Doc("What kind of thing the event is about. Part of the ordering key."),
		l.columnKey("outbox.key", &o.Key).
			Doc("Which thing of that kind it is about. Part of the ordering key.",
				"An event whose key is NULL, empty or not mapped has no order."),
		l.columnKey("outbox.type", &o.Type).
			Doc("What happened. Its text becomes the message's type."),
		l.columnKey("outbox.payload", &o.Payload).
			Doc("The body, byte for byte: `json`, `jsonb`, `text`, `varchar`, `char` or `bytea`."),
		l.columnKey("outbox.timestamp", &o.Timestamp).
			Doc("The message's time: `timestamptz` or `timestamp`. Empty: the time of the commit."),
		l.columnKey("outbox.transaction", &o.Transaction).
			Doc("The transaction that wrote the row: `xid8` or `bigint`.",
				"With its default, trigger and index (`cdc-relay init --add-transaction-column`). By it the relay knows [which rows were delivered](outbox.md#which-rows-were-delivered): `retention` and `events show` need it. Used where the table has it. Empty: nothing is recorded."),
		l.columnKey("outbox.traceparent", &o.Traceparent).
			Doc("[W3C trace context](metrics.md#tracing), sent as the header `traceparent`."),
		setting.Columns("outbox.headers", &o.Headers, setting.Form{"minLength": 1, "maxLength": maxHeaderName, "not": setting.Form{"enum": sink.ReservedHeaders}}, l.checkHeader).
			Doc("Headers by name, each from a column, as text. NULL leaves the header out."),
		l.columnKey("outbox.headers_column", &o.HeadersColumn).
			Doc("A `jsonb` or `json` object of headers."),
	}
}

func (l *loader) columnKey(path string, at *Column) setting.Key {
	return setting.Key{
		Name: path, Kind: document.List, Form: columnNames(),
		Set:  func(_ *setting.Reader, path string, n *document.Node) { *at = l.column(path, n) },
		Show: func() string { return showColumn(*at) },
	}
}

// columnNames is a name, "" for none, or a list of names.
func columnNames() setting.Form {
	return setting.AnyOf(setting.AnyText(), setting.Form{"type": "array", "items": setting.Form{"type": setting.PlainTypes, "minLength": 1}, "uniqueItems": true})
}

func showColumn(c Column) string {
	switch len(c.Names) {
	case 0:
		return `""`
	case 1:
		return setting.Quote(c.Names[0])
	}
	return setting.InlineList(c.Names, setting.Quote)
}
