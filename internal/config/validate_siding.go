package config

import (
	"errors"
	"fmt"
	"strings"
)

func (l *loader) validateRetry() {
	r := &l.cfg.Retry
	if r.MaxBackoff >= r.Backoff || l.faulty("retry.backoff") || l.faulty("retry.max_backoff") {
		return
	}
	path := "retry.max_backoff"
	if l.where(path) == (place{}) {
		path = "retry.backoff"
	}
	l.check(path, fmt.Errorf("max_backoff %s is shorter than backoff %s, which it bounds", showDuration(r.MaxBackoff), showDuration(r.Backoff)))
}

const maxShortString = 255 // bytes; of AMQP 0-9-1: names of exchanges and routing keys

// validateMirror wants what the sink's broker has, exchanges or topics, and names: the mirror is one place.
func (l *loader) validateMirror() {
	const section = "dead_letters.mirror."
	if len(l.sinks) != 1 {
		return // said already, and nobody knows which broker is meant
	}
	m := &l.cfg.DeadLetters.Mirror
	names := []struct{ key, value, of string }{
		{"exchange", m.Exchange, "rabbitmq"}, {"routing_key", m.RoutingKey, "rabbitmq"}, {"topic", m.Topic, "kafka"},
	}
	for _, n := range names {
		switch {
		case n.value == "":
		case l.cfg.Sink.Stdout != nil:
			l.check(section+n.key, errors.New("has no effect with sink.stdout, which has no second place; leave it out"))
		case l.cfg.Sink.RabbitMQ == nil && n.of == "rabbitmq":
			l.check(section+n.key, errors.New("is RabbitMQ's; with sink.kafka the mirror is dead_letters.mirror.topic"))
		case l.cfg.Sink.Kafka == nil && n.of == "kafka":
			l.check(section+n.key, errors.New("is Kafka's; with sink.rabbitmq the mirror is dead_letters.mirror.exchange and routing_key"))
		case strings.ContainsAny(n.value, "{}"):
			l.check(section+n.key, fmt.Errorf("is %q, want a plain name, not a template: all dead letters are mirrored to one place", n.value))
		case n.of == "kafka":
			l.check(section+n.key, checkTopic(template(n.value)))
		case len(n.value) > maxShortString:
			l.check(section+n.key, fmt.Errorf("has %d bytes, the most it may have is %d", len(n.value), maxShortString))
		}
	}
}
