// The rules about transforms: the Outbox Event Router's own options, and the other transforms.

package rules

import (
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/migrate/importer/output"
	"github.com/cdc-relay/cdc-relay/internal/migrate/importer/settings"
)

const mongoRouter = "io.debezium.connector.mongodb.transforms.outbox.MongoEventRouter"

// routerOptions are the Event Router's that go into sink.compat.options under their own names.
var routerOptions = []string{
	"table.field.event.id", "table.field.event.key", "table.field.event.payload", "table.field.event.timestamp", "table.field.event.schema.version",
	"table.fields.additional.placement", "table.field.additional.missing",
	"table.expand.json.payload", "table.json.payload.null.behavior", "table.json.payload.empty.array.behavior",
	"field.name.adjustment.mode",
	"route.by.field", "route.topic.regex", "route.topic.replacement", "route.tombstone.on.empty.payload",
}

// oldRouterOptions are names of Debezium 1, which later versions do not read.
var oldRouterOptions = map[string]string{
	"debezium.expand.json.payload": "table.expand.json.payload",
	"table.field.event.payload.id": "table.field.event.key",
}

func router(names ...string) []string {
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = "router." + name
	}
	return out
}

func routerRules() []rule {
	return []rule{
		when(honoured("sink.compat.profile", "", router("type")...), func(b *Builder, p *settings.Property) { b.Say(p, output.Honoured, "sink.compat.profile", "") }),
		honoured(compatOptions, "verbatim, as the option of the same name. A Java regular expression that needs what RE2 lacks (look-around, back-references, possessive quantifiers, atomic groups): cannot, by name", router(routerOptions...)...),
		warned(superseded("these do something only with OpenTelemetry's agent beside Debezium, which puts a header `traceparent` on records; the relay adds no header with a profile", router("tracing.span.context.field", "tracing.operation.name", "tracing.with.context.field.only")...)),
		superseded("Debezium reads it nowhere; the type is sent by table.fields.additional.placement", router("table.field.event.type")...),
		when(superseded("an UPDATE of the outbox is ignored, as with warn; fatal, at which Debezium ends: with a warning", router("table.op.invalid.behavior", "debezium.op.invalid.behavior")...), func(b *Builder, p *settings.Property) {
			if b.Is(p.Name, "", "fatal") {
				b.Warn(p, output.Superseded, "", "an UPDATE of the outbox is ignored here, and does not stop the relay")
				return
			}
			b.Say(p, output.Superseded, "", "an UPDATE of the outbox is ignored")
		}),
		when(mapped("", "the old names of options that Debezium 2 dropped. A connector of Debezium 2 or newer ignored them; beside the new one: superseded", router("debezium.expand.json.payload", "table.field.event.payload.id")...), func(b *Builder, p *settings.Property) {
			b.Warn(p, output.Mapped, compatOptions+"."+oldRouterOptions[strings.TrimPrefix(p.Name, "router.")], "its old name; Debezium 2 and newer ignore it: leave it out if yours is one")
		}),
		when(mapped(compatOptions+".table.field.additional.missing", "the old name and its values: true is error, false is ignore", router("table.fields.additional.error.on.missing")...), func(b *Builder, p *settings.Property) {
			b.Say(p, output.Mapped, compatOptions+".table.field.additional.missing", "")
		}),
		when(superseded("TopicNameMatches: source.tables has the tables that it lets through; another table of table.include.list: cannot, its change events bypass the Event Router (those of signals and heartbeats are left out); RecordIsTombstone with negate: the relay sees no tombstones; others: cannot", router("predicate", "negate")...), (*Builder).takePredicate),
	}
}

func transformRules() []rule {
	return []rule{
		when(honoured("sink.compat", "only the Outbox Event Router; any other transform: cannot, by name", "transforms"), func(b *Builder, p *settings.Property) {
			if b.Router == "" {
				b.Cannot(p, "has no "+settings.EventRouter+": this connector sends change events, which is not what the relay is for")
				return
			}
			b.Say(p, output.Honoured, "sink.compat", "")
		}),
		when(impossible("transforms other than the Outbox Event Router do not exist here; one that is not in `transforms`: superseded", "transforms.*"), (*Builder).takeTransform),
		superseded("what they are for is decided where they are used", "predicates", "predicates.*"),
	}
}

// takeTransform is about the options of all transforms but the router.
func (b *Builder) takeTransform(p *settings.Property) {
	alias, option, _ := strings.Cut(strings.TrimPrefix(p.Name, "transforms."), ".")
	class := "the transform " + alias
	if t := b.ByName["transforms."+alias+".type"]; t != nil {
		class = firstOf(t.Value.Plain())
	}
	switch {
	case !slices.Contains(b.Transforms, alias):
		b.Say(p, output.Superseded, "", "transforms does not list "+alias)
	case option == "type" && class == settings.EventRouter:
		b.Cannot(p, "is a second Outbox Event Router")
	case option == "type" && class == mongoRouter:
		b.Cannot(p, "is MongoDB's Event Router; this relay reads PostgreSQL")
	case option == "type":
		b.Cannot(p, class+" does not exist here: the relay sends what the Outbox Event Router makes of the row")
	default:
		b.Cannot(p, "is of "+class+", which does not exist here")
	}
}

// transforms reports what is missing in the chain of transforms.
func (b *Builder) transforms() {
	if b.ByName["transforms"] == nil {
		b.Absent(output.Cannot, "transforms", "", "without the Outbox Event Router this connector sends change events, which is not what the relay is for")
	}
	for _, alias := range b.Transforms {
		if alias != b.Router && b.ByName["transforms."+alias+".type"] == nil {
			b.Absent(output.Cannot, "transforms."+alias+".type", "", "transforms lists it")
		}
	}
}

// predicate is the one of the Event Router, if it has one.
func (b *Builder) predicate() *settings.Property { return b.Get("router.predicate") }

// topicPredicate is the pattern of a TopicNameMatches that the router has; "" for none.
func (b *Builder) topicPredicate() (pattern string, negate bool) {
	p := b.predicate()
	if p == nil {
		return "", false
	}
	name := strings.TrimSpace(firstOf(p.Value.Plain()))
	if class, _ := b.Plain("predicates."+name+".type", ""); strings.TrimSpace(class) != topicNameMatches {
		return "", false
	}
	pattern, _ = b.Plain("predicates."+name+".pattern", "")
	return pattern, b.IsOn("router.negate", false)
}

const (
	topicNameMatches  = "org.apache.kafka.connect.transforms.predicates.TopicNameMatches"
	recordIsTombstone = "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone"
)

func (b *Builder) takePredicate(p *settings.Property) {
	used := b.predicate()
	if used == nil {
		b.Say(p, output.Superseded, "", "there is no predicate")
		return
	}
	name := strings.TrimSpace(firstOf(used.Value.Plain()))
	switch class := strings.TrimSpace(firstOf(b.Plain("predicates."+name+".type", ""))); {
	case class == topicNameMatches:
		b.Say(p, output.Mapped, "source.tables", "the tables that it lets through")
	case class == recordIsTombstone && b.IsOn("router.negate", false):
		b.Say(p, output.Superseded, "", "the relay sees no tombstones")
	case class == "":
		b.Cannot(p, "predicate "+name+" has no type")
	default:
		b.Cannot(p, "the predicate "+class+" does not exist here")
	}
}
