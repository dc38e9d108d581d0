// What Debezium Server's sink for RabbitMQ makes of a record: exchange and routing key.

package debezium

// appendDestination fills in exchange and routing key, of which the topic is made already. The
// routing key is left out when it is the record's key.
func (o *Options) appendDestination(rec *Record) {
	rec.Exchange = rec.Topic
	if o.rabbit.exchange != "" {
		rec.Exchange = rec.append(o.rabbit.exchange)
	}
	switch o.rabbit.source {
	case fromTopic:
		rec.RoutingKey = rec.Topic
	case fromStatic:
		rec.RoutingKey = rec.append(o.rabbit.routingKey)
	case fromKey:
	}
}

// append appends a text to Buf.
func (rec *Record) append(text string) []byte {
	start := len(rec.Buf)
	rec.Buf = append(rec.Buf, text...)
	return rec.Since(start)
}
