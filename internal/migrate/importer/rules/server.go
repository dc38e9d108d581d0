// What is Debezium Server's or Connect's own, and the choice of the sink.

package rules

import (
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/debezium"
	"github.com/cdc-relay/cdc-relay/internal/migrate/importer/output"
	"github.com/cdc-relay/cdc-relay/internal/migrate/importer/settings"
)

func serverRules() []rule {
	return only(debezium.Server,
		when(honoured("sink", "rabbitmq and kafka; any other: cannot", "sink.type"), func(b *Builder, p *settings.Property) {
			switch kind, _ := p.Value.Plain(); strings.TrimSpace(kind) {
			case "rabbitmq", "kafka":
				b.Say(p, output.Honoured, "sink."+strings.TrimSpace(kind), "")
			case "rabbitmqstream":
				b.Cannot(p, "speaks the protocol of RabbitMQ's streams; sink.rabbitmq publishes to a stream through an exchange")
			default:
				b.Cannot(p, "is a sink that does not exist here: rabbitmq, kafka and stdout do")
			}
		}),
		when(impossible("the options of another sink", "sink.*"), func(b *Builder, p *settings.Property) {
			kind, _, _ := strings.Cut(strings.TrimPrefix(p.Name, "sink."), ".")
			switch {
			case b.kind() != kind:
				b.Say(p, output.Superseded, "", "sink.type is not "+kind)
				return
			case kind != "rabbitmq" && kind != "kafka":
				b.Cannot(p, "is of a sink that does not exist here")
				return
			}
			b.Cannot(p, unknownProperty)
		}),
		superseded("the relay has its own metrics and health", "debezium.api.*", "quarkus.*"),
		superseded("not Debezium's; references to them are followed", "other.*"),
	)
}

func connectRules() []rule {
	return slices.Concat(only(debezium.Connect,
		when(impossible("required: cannot, the relay delivers at least once; requested: superseded, unless the worker's exactly.once.source.support is enabled", "exactly.once.support"), func(b *Builder, p *settings.Property) {
			if b.Is(p.Name, "", "requested") && !b.Is("worker.exactly.once.source.support", "disabled", "enabled") {
				b.Say(p, output.Superseded, "", "nothing was exactly once: the worker does not have it enabled")
				return
			}
			b.Cannot(p, noExactlyOnce)
		}),
		impossible("nothing is exactly once here", "transaction.boundary", "transaction.boundary.interval.ms"),
		oneOf(superseded("false; true (the default): cannot if topics have groups, the relay creates none", "topic.creation.enable"), createTopics, map[string]string{"false": "topics are not created"}),
		impossible(createTopics, "topic.creation.*"),
		superseded("a matter of Connect's", "config.action.reload"),
		oneOf(superseded("disabled, preparing; enabled: cannot, nothing is exactly once here", "worker.exactly.once.source.support"), noExactlyOnce,
			map[string]string{"disabled": "nothing is exactly once here, and nothing was", "preparing": "nothing is exactly once here, and nothing was"}),
		superseded("of the worker: the relay needs none", "worker.*"),
	), []rule{
		when(superseded(followedProviders, "config.providers", "config.providers.*"), (*Builder).takeProvider),
	})
}

const followedProviders = "its references to files and variables are followed; others: cannot, where they are used"

// takeProvider refuses another provider under the name by which a usual one is known.
func (b *Builder) takeProvider(p *settings.Property) {
	alias, option := strings.CutSuffix(strings.TrimPrefix(p.Name, "config.providers."), ".class")
	class, known := p.Value.Plain()
	class = strings.TrimSpace(class)
	if usual := settings.UsualProviders[alias]; option && usual != "" && (!known || class[strings.LastIndexByte(class, '.')+1:] != usual) {
		b.Cannot(p, "is not "+usual+", as which this importer reads references to "+alias)
		return
	}
	b.Say(p, output.Superseded, "", followedProviders)
}

const noExactlyOnce = "nothing is exactly once here: at least once, and each event has its id"

const createTopics = "the relay creates no topics, and has no broker create them: make them beforehand; until then their events wait"

// kind is the sink that is chosen.
func (b *Builder) kind() string {
	if b.Connect() {
		return "kafka"
	}
	return strings.TrimSpace(firstOf(b.Plain("sink.type", "")))
}

// sink writes the section of the broker.
func (b *Builder) sink() {
	switch b.kind() {
	case "kafka":
		b.kafka()
	case "rabbitmq":
		b.rabbitmq()
	case "":
		b.Absent(output.Cannot, "sink.type", "sink", "it says where events go")
	}
}
