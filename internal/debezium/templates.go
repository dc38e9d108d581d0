// Where records go, as the relay's own templates would say it: for people, and for what checks a
// destination before there is an event. The records' own destinations are made in topic.go and
// rabbit.go.

package debezium

// Templates are the topic, and RabbitMQ's exchange and routing key. A part of a topic that a
// regular expression takes from the routed value stands there as {aggregate}, or as {key} when the
// column that routes is that of the key: keys may be about people, and what is made from them is
// not shown.
func (o *Options) Templates() (topic, exchange, routingKey string) {
	part := "{aggregate}"
	if o.route == o.key {
		part = "{key}"
	}
	topic = o.topics.pattern(part)
	if exchange = o.rabbit.exchange; exchange == "" {
		exchange = topic
	}
	switch o.rabbit.source {
	case fromTopic:
		routingKey = topic
	case fromKey:
		routingKey = "{key}"
	default:
		routingKey = o.rabbit.routingKey
	}
	return topic, exchange, routingKey
}
