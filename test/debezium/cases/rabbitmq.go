package cases

// serverRabbitMQ are Debezium Server's rules for RabbitMQ.
func serverRabbitMQ() []Group {
	all := []Group{
		onServer("rabbit-json", map[string]string{"sink.rabbitmq.exchange": "events", "sink.rabbitmq.routingKey": "constant"}, serverTypes, serverKeys),
		onServer("rabbit-topic", with(simple, "sink.rabbitmq.exchange", "events", "sink.rabbitmq.routingKey.source", "topic"), serverTypes, serverKeys),
		onServer("rabbit-key", with(simple, "sink.rabbitmq.exchange", "events", "sink.rabbitmq.routingKey.source", "key", "sink.rabbitmq.deliveryMode", "1",
			"sink.rabbitmq.null.value", "nothing"), serverTypes, serverKeys),
		onServer("rabbit-key-json", map[string]string{"sink.rabbitmq.exchange": "events", "sink.rabbitmq.routingKey.source": "key", "format.schemas.enable": "false"},
			serverTypes, serverKeys),
		ofServer("rabbit-exchange-of-topic", with(simple, placement, everyHeader, "format.header", "clientprovided", "format.header.class", simpleConverter)),
		ofServer("rabbit-headers", map[string]string{"sink.rabbitmq.exchange": "events", placement: everyHeader}),
		ofServer("rabbit-headers-bare", with(simple, "sink.rabbitmq.exchange", "events", "sink.rabbitmq.routingKey", "r", placement, everyHeader)),
		ofServer("rabbit-headers-bytes", with(simple, "sink.rabbitmq.exchange", "events", "format.header", "jsonbytearray", placement, someOther,
			"sink.rabbitmq.routingKeyFromTopicName", "true")),
		ofServer("rabbit-envelope", map[string]string{"sink.rabbitmq.exchange": "events", "format.value.schemas.enable": "false", placement: everyField + ",part:partition",
			"table.field.event.timestamp": "at"}),
		{Name: "rabbit-binary", Options: with(simple, "sink.rabbitmq.exchange", "events", "format.value", "binary"),
			Setup: []string{outbox("outbox", "bytea")}, End: row("outbox", `'\x656e64'`),
			Cases: []Case{{Name: "bytea", SQL: []string{row("outbox", `'\x00ff10'`), row("outbox", `NULL`), row("outbox", `'\x'`)}}}},
		tombstones("rabbit-tombstone", with(simple, "sink.rabbitmq.exchange", "events")),
	}
	for i := range all {
		all[i].Profile, all[i].Rabbit = Server, true
	}
	return all
}
