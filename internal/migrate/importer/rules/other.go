// The rules about rates and errors, about what shows in records, and about parts that the relay
// does without.

package rules

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/migrate/importer/output"
	"github.com/cdc-relay/cdc-relay/internal/migrate/importer/settings"
)

func timingRules() []rule {
	return []rule{
		superseded("the relay waits for nothing: an event is sent when its commit arrives", "poll.interval.ms", "poll.dispatch.interval.ms", "max.batch.size", "query.fetch.size"),
		when(mapped("delivery.max_in_flight", "events in flight, 1 to 10,000,000", "max.queue.size"), func(b *Builder, p *settings.Property) {
			b.takeNumber(p, "delivery.max_in_flight", 1, 10_000_000, "")
		}),
		when(mapped("delivery.max_in_flight_bytes", "64 KiB to 64 GiB; 0, no bound: superseded, the relay is always bounded", "max.queue.size.in.bytes"), func(b *Builder, p *settings.Property) {
			if b.Is(p.Name, "", "0") {
				b.Say(p, output.Superseded, "", "the relay is always bounded, by delivery.max_in_flight_bytes")
				return
			}
			b.takeNumber(p, "delivery.max_in_flight_bytes", 64<<10, 64<<30, "")
		}),
		superseded("PostgreSQL and the broker are waited for as long as it takes", "errors.max.retries", "errors.retry.delay.initial.ms", "errors.retry.delay.max.ms", "errors.retry.timeout", "retriable.restart.connector.wait.ms"),
		oneOf(mapped("dead_letters", "a record that cannot be made or sent becomes a dead letter; in Debezium none stops the connector, all drops the record", "errors.tolerance"), "", map[string]string{
			"none": "a record that cannot be made or sent becomes a dead letter, and the others go on",
			"all":  "a record that cannot be made or sent becomes a dead letter: it is kept and can be replayed, not dropped",
		}),
		superseded("each refused event is in the log and in `cdc-relay dead-letters`", "errors.log.enable", "errors.log.include.messages"),
		superseded("Connect has it for sink connectors only: it did nothing; refused events are in `cdc-relay dead-letters`", "errors.deadletterqueue.*"),
		oneOf(mapped("dead_letters", "fail, warn, skip: a row that cannot be read waits or becomes a dead letter, and is never dropped", "event.processing.failure.handling.mode", "event.converting.failure.handling.mode"), "",
			map[string]string{"fail": "an event that cannot be made becomes a dead letter", "warn": "an event that cannot be made becomes a dead letter, not dropped", "skip": "an event that cannot be made becomes a dead letter, not dropped"}),
	}
}

// takeNumber writes a whole number with its unit.
func (b *Builder) takeNumber(p *settings.Property, path string, low, high int, unit string) {
	text, ok := p.Value.Plain()
	n, err := strconv.Atoi(strings.TrimSpace(text))
	switch {
	case !ok:
		b.Set(path, output.Quote(p.Value.Written()+unit), p)
	case err != nil || n < low || n > high:
		b.Cannot(p, fmt.Sprintf("is no number from %d to %d", low, high))
		return
	default:
		b.Set(path, strconv.Itoa(n)+unit, p)
	}
	b.Say(p, output.Mapped, path, "")
}

func recordRules() []rule {
	return []rule{
		honoured(compatOptions, "names the schemas of records that carry one", "topic.prefix"),
		mapped(compatOptions, "the old name of topic.prefix; beside it: superseded", "database.server.name"),
		honoured(compatOptions, "", "binary.handling.mode", "time.precision.mode", "decimal.handling.mode", "schema.name.adjustment.mode"),
		superseded("the connector's renames columns, which have their own names here; members of expanded payloads are renamed by the Event Router's option of this name", "field.name.adjustment.mode"),
		when(superseded("false: neither sends headers `__debezium.context.*`; true or absent: a warning, Debezium 3.2 and later adds four of them to each record, and the relay none", extendedHeaders), (*Builder).takeExtendedHeaders),
		superseded("no column of such a type is an event's", "hstore.handling.mode", "interval.handling.mode", "money.fraction.digits", "include.unknown.datatypes"),
		superseded("a row that is inserted has all its values", "unavailable.value.placeholder"),
		superseded("the Event Router sends neither deletions nor tombstones for them", "tombstones.on.delete"),
		when(superseded("the Event Router makes the topic. It shows in the name of the value's schema; where JsonConverter sends that: cannot", "topic.naming.strategy", "topic.delimiter"), func(b *Builder, p *settings.Property) {
			if b.schemas("value") && !b.Is(p.Name, "", "io.debezium.schema.SchemaTopicNamingStrategy") && !b.Is(p.Name, "", ".") {
				b.Cannot(p, "would show in the name of the schema that is sent with each value")
				return
			}
			b.Say(p, output.Superseded, "", "the Event Router makes the topic")
		}),
		superseded("the source block and the schema of change events do not reach the Event Router's records", "sourceinfo.struct.maker", "sanitize.field.names"),
	}
}

// extendedHeaders has Debezium put names of the connector and a random id of its run on each
// record.
const (
	extendedHeaders = "extended.headers.enabled"
	leftOutHeaders  = "the four headers __debezium.context.*, which Debezium 3.2 and later puts on each record, are not sent: see that no consumer reads them"
)

func (b *Builder) takeExtendedHeaders(p *settings.Property) {
	if b.Is(p.Name, "", "false") {
		b.Say(p, output.Superseded, "", "the headers __debezium.context.* are not sent, here as there")
		return
	}
	b.Warn(p, output.Superseded, "", leftOutHeaders)
}

// headers says it of a configuration that leaves them at their default, which is to send them.
func (b *Builder) headers() {
	if b.ByName[extendedHeaders] == nil {
		b.Absent(output.Superseded, extendedHeaders, "", leftOutHeaders)
		b.Entries[len(b.Entries)-1].Warning = true
	}
}

func otherRules() []rule {
	return []rule{
		unlessOn("there are no transaction records", "the records about transactions are not sent", "provide.transaction.metadata"),
		superseded("there are no transaction records", "transaction.metadata.factory", "topic.transaction"),
		when(superseded("absent, or an exclude list: logical messages are not sent; an include list: cannot, a profile excludes source.message_prefix", "message.prefix.exclude.list", "message.prefix.include.list"), func(b *Builder, p *settings.Property) {
			if p.Name == "message.prefix.include.list" {
				b.Cannot(p, "logical messages, which Debezium sends to a topic of their own, are not sent")
				return
			}
			b.Say(p, output.Superseded, "", "logical messages are not sent")
		}),
		warned(superseded("signals ask for snapshots, of which there are none; the table of signals is left out of source.tables", "signal.*")),
		when(superseded("channels log and jmx; sink: cannot, notifications are not sent", "notification.enabled.channels"), func(b *Builder, p *settings.Property) {
			for _, channel := range settings.SplitList(firstOf(p.Value.Plain())) {
				if channel != "log" && channel != "jmx" {
					b.Cannot(p, "notifications are not sent")
					return
				}
			}
			b.Say(p, output.Superseded, "", "the relay's state is in its log, its metrics and cdc-relay status")
		}),
		superseded("the relay's state is in its log, its metrics and `cdc-relay status`", "notification.*"),
		superseded("PostgreSQL's connector has no history of schemas", "schema.history.*", "schema.history", "include.schema.changes"),
		unlessOn("there is no lineage", "lineage is not sent", "openlineage.integration.enabled"),
		superseded("there is no lineage", "openlineage.*"),
		superseded("the relay has its own metrics", "statistics.metrics.enabled", "custom.metric.tags"),
		impossible(noClasses, "converters", "post.processors", "queue.provider.type"),
		superseded("the events in flight are bounded by delivery.max_in_flight", "topic.cache.size", "guardrail.collections.*"),
		superseded("the relay's threads are its own; order is kept", "record.processing.*", "task.management.timeout.ms"),
	}
}
