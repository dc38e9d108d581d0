// What Debezium Server's sink for RabbitMQ makes of a record: exchange and routing key.

package debezium

// appendDestination fills in exchange and routing key, of which the topic and the key are made
// already.
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
