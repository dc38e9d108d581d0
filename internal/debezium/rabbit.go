// What Debezium Server's sink for RabbitMQ makes of a record: exchange and routing key.

package debezium

import (
	"errors"
	"fmt"
)

// rabbitOptions are those of the sink.
type rabbitOptions struct {
	exchange   string // "": the topic
	routingKey string
	source     routingKeySource
	transient  bool // deliveryMode 1
	null       []byte
}

// routingKeySource is routingKey.source.
type routingKeySource uint8

const (
	fromStatic routingKeySource = iota
	fromTopic
	fromKey
)

const rabbitPrefix = "sink.rabbitmq."

var rabbitDefinitions = []definition{
	{name: rabbitPrefix + "exchange", only: Server, set: func(o *Options, v string) error { o.rabbit.exchange = v; return nil }},
	{name: rabbitPrefix + "routingKey", only: Server, set: func(o *Options, v string) error { o.rabbit.routingKey = v; return nil }},
	{name: rabbitPrefix + "routingKey.source", only: Server, set: oneOf(func(o *Options, i int) { o.rabbit.source = routingKeySource(i) }, "static", "topic", "key")},
	{name: rabbitPrefix + "deliveryMode", only: Server, set: deliveryMode},
	{name: rabbitPrefix + "null.value", only: Server, set: func(o *Options, v string) error { o.rabbit.null = []byte(v); return nil }},
	{name: rabbitPrefix + "autoCreateRoutingKey", only: Server, set: truthThatIs(false, "declares a queue of the routing key's name; declare it at the broker")},
	{name: rabbitPrefix + "routingKeyDurable", only: Server, set: truth(func(*Options, bool) {})},       // of the queue that is not declared
	{name: rabbitPrefix + "routingKeyFromTopicName", only: Server, set: truth(func(*Options, bool) {})}, // Debezium warns, and does nothing
	{name: rabbitPrefix + "ackTimeout", only: Server, set: refused("is delivery.confirm_timeout here")},
}

func deliveryMode(o *Options, value string) error {
	if value != "1" && value != "2" {
		return fmt.Errorf("is %q, want 1 (transient) or 2 (persistent)", value)
	}
	o.rabbit.transient = value == "1"
	return nil
}

// truthThatIs takes a boolean of one value.
func truthThatIs(want bool, otherwise string) func(*Options, string) error {
	return func(_ *Options, value string) error {
		v, err := parseTruth(value)
		if err == nil && v != want {
			err = errors.New("is not taken: it " + otherwise)
		}
		return err
	}
}

// appendDestination fills in exchange and routing key, of which the topic and the key are made already.
func (o *Options) appendDestination(dst []byte, topic, key []byte) (exchange, routingKey, _ []byte) {
	exchange = topic
	if o.rabbit.exchange != "" {
		start := len(dst)
		dst = append(dst, o.rabbit.exchange...)
		exchange = dst[start:len(dst):len(dst)]
	}
	switch o.rabbit.source {
	case fromTopic:
		routingKey = topic
	case fromKey:
		routingKey = key
	default:
		start := len(dst)
		dst = append(dst, o.rabbit.routingKey...)
		routingKey = dst[start:len(dst):len(dst)]
	}
	if routingKey == nil {
		routingKey = []byte{} // a null key
	}
	return exchange, routingKey, dst
}

// Transient says whether messages are not to be persistent.
func (o *Options) Transient() bool { return o.rabbit.transient }

// NullValue is the body of a message whose record has a null value.
func (o *Options) NullValue() []byte { return o.rabbit.null }

// TextHeaders says whether headers are strings, not bytes.
func (o *Options) TextHeaders() bool { return o.textHeaders }
