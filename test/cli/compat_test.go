package cli

import (
	"fmt"
	"testing"
)

const stringConverters = `key.converter: org.apache.kafka.connect.storage.StringConverter, value.converter: org.apache.kafka.connect.storage.StringConverter`

// What a record in Debezium's form has, and nothing else.
func TestCompatRecord(t *testing.T) {
	t.Parallel()
	k := withKafka(t, 12)
	k.sink = fmt.Sprintf("  kafka: {brokers: ['%s']}\n  compat: {profile: debezium-connect, options: {%s, route.topic.replacement: '%s', table.fields.additional.placement: 'type:header:eventType'}}",
		k.kafka.Brokers()[0], stringConverters, k.topic)
	k.start()
	k.exec(`INSERT INTO outbox VALUES ('11111111-1111-1111-1111-111111111111', 'order', '10711fa5', 'created', '{"total": 12.50}')`)
	r := k.records(k.topic, 1)[0]
	if r.Partition != 11 || orNull(r.Key) != "10711fa5" || orNull(r.Value) != `{"total": 12.50}` || len(r.Headers) != 2 ||
		r.Headers[0].Name != "id" || orNull(r.Headers[0].Value) != "11111111-1111-1111-1111-111111111111" ||
		r.Headers[1].Name != "eventType" || orNull(r.Headers[1].Value) != "created" {
		t.Errorf("the record is %+v", r)
	}
}
