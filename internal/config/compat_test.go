package config

import (
	"reflect"
	"strings"
	"testing"
)

const compatSource = "source: {url: postgres://relay@localhost:5432/shop}\n"

// A profile names the columns by Debezium's options, and keeps the order of the commits.
func TestCompat(t *testing.T) {
	c := mustLoad(t, compatSource+`sink:
  kafka: {brokers: ['k:9092']}
  compat:
    profile: debezium-connect
    options:
      table.field.event.key: aggregate_id
      table.field.event.timestamp: created_at
      table.fields.additional.placement: "type:header:eventType, tenant:header"
      route.topic.replacement: "$${routedByValue}.events"
      table.expand.json.payload: false
`)
	want := Outbox{
		ID: Column{[]string{"id"}, true}, Aggregate: Column{[]string{"aggregatetype"}, true}, Key: Column{[]string{"aggregate_id"}, true},
		Payload: Column{[]string{"payload"}, true}, Timestamp: Column{[]string{"created_at"}, true}, Transaction: Column{[]string{"tx"}, false},
	}
	if !reflect.DeepEqual(c.Outbox, want) || !reflect.DeepEqual(c.Source.Tables[0].Outbox, want) {
		t.Errorf("the columns are %+v, of the table %+v", c.Outbox, c.Source.Tables[0].Outbox)
	}
	if got := c.Sink.Compat.Records().Columns().Extra; !reflect.DeepEqual(got, []string{"tenant", "type"}) {
		t.Errorf("the extra columns are %q", got)
	}
	if c.Delivery.Ordering != OrderingCommit {
		t.Errorf("the ordering is %s", c.Delivery.Ordering)
	}
	if c := mustLoad(t, compatSource+"sink: {stdout: {}, compat: {profile: debezium-server}}\ndelivery: {ordering: key}\n"); c.Delivery.Ordering != OrderingKey {
		t.Errorf("the ordering that is written is not kept: it is %s", c.Delivery.Ordering)
	}
}

// In a variable options are separated by commas; a value may have some itself.
func TestCompatInVariables(t *testing.T) {
	c, err := load(t, compatSource+"sink: {stdout: {}}\n", "CDC_RELAY_SINK__COMPAT__PROFILE=debezium-connect",
		"CDC_RELAY_SINK__COMPAT__OPTIONS=table.fields.additional.placement=type:header,tenant:header:who, table.field.event.key=k")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, o := range c.Sink.Compat.Options {
		got[o.Name] = o.Value
	}
	if want := (map[string]string{"table.fields.additional.placement": "type:header,tenant:header:who", "table.field.event.key": "k"}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %q", got)
	}
}

func TestCompatFaults(t *testing.T) {
	kafka := compatSource + "sink:\n  kafka: {}\n  compat:\n    profile: debezium-connect\n    options:\n      "
	for _, c := range []struct{ name, content, want string }{
		{
			"profile", compatSource + "sink: {kafka: {}, compat: {profile: debezium}}\n",
			`relay.yaml:2:37: sink.compat.profile: is "debezium", want one of debezium-connect, debezium-server`,
		},
		{
			"options without profile", compatSource + "sink: {kafka: {}, compat: {options: {topic.prefix: a}}}\n",
			"relay.yaml:2:37: sink.compat.options: has no effect without sink.compat.profile: debezium-connect or debezium-server",
		},
		{
			"no mapping", compatSource + "sink: {kafka: {}, compat: {profile: debezium-connect, options: [a]}}\n",
			"relay.yaml:2:64: sink.compat.options: wants a mapping of Debezium's options, has a list",
		},
		{
			"unknown", kafka + "table.field.event.kye: k\n",
			"relay.yaml:7:30: sink.compat.options.table.field.event.kye: unknown option, the nearest known one is table.field.event.key",
		},
		{
			"of the other profile", kafka + "format.value: json\n",
			"relay.yaml:7:21: sink.compat.options.format.value: unknown option of debezium-connect; docs/reference.md#debezium-properties lists them",
		},
		{
			"a list", kafka + "table.fields.additional.placement: [type:header]\n",
			"relay.yaml:7:42: sink.compat.options.table.fields.additional.placement: wants a single value, has a list",
		},
		{
			"reference", kafka + "route.topic.replacement: \"${routedByValue}\"\n",
			"relay.yaml:7:32: sink.compat.options.route.topic.replacement: the environment variable routedByValue is not set; a ${...} that is for Debezium is written $${...}",
		},
		{
			"regex", kafka + "route.topic.regex: \"(?<a>.*)(?=b)\"\n",
			"relay.yaml:7:26: sink.compat.options.route.topic.regex: has (?=b), which RE2 lacks or reads differently",
		},
		{
			"placement", kafka + "table.fields.additional.placement: type:haeder\n",
			`relay.yaml:7:42: sink.compat.options.table.fields.additional.placement: has the placement "haeder", want header, envelope or partition`,
		},
		{
			"converter", kafka + "value.converter: io.confluent.connect.avro.AvroConverter\n",
			`relay.yaml:7:24: sink.compat.options.value.converter: is "io.confluent.connect.avro.AvroConverter", which is not taken here: want one of org…`,
		},
		{
			"a topic that is none", kafka + "route.topic.replacement: \"a b.$${routedByValue}\"\n",
			`relay.yaml:7:32: sink.compat.options.route.topic.replacement: makes the topic, which is "a b.{aggregate}"; a topic's name has only letters, digits, '.', '_' and '-'`,
		},
		{
			"RabbitMQ behind Connect", compatSource + "sink: {rabbitmq: {}, compat: {profile: debezium-connect}}\n",
			"relay.yaml:2:40: sink.compat.profile: is debezium-connect, which has no RabbitMQ; want debezium-server",
		},
		{
			"a topic", compatSource + "sink: {kafka: {topic: t}, compat: {profile: debezium-connect}}\n",
			"relay.yaml:2:23: sink.kafka.topic: has no effect with sink.compat; write sink.compat.options: {route.topic.replacement: ...}",
		},
		{
			"an exchange", compatSource + "sink: {rabbitmq: {exchange: e}, compat: {profile: debezium-server}}\n",
			"relay.yaml:2:29: sink.rabbitmq.exchange: has no effect with sink.compat; write sink.compat.options: {sink.rabbitmq.exchange: ...}",
		},
		{
			"a column", compatSource + "sink: {kafka: {}, compat: {profile: debezium-connect}}\noutbox: {key: k}\n",
			"relay.yaml:3:15: outbox.key: has no effect with sink.compat; write sink.compat.options: {table.field.event.key: ...}",
		},
		{
			"a column of one table", "source: {url: postgres://h/d, tables: [{name: a, key: k}]}\nsink: {kafka: {}, compat: {profile: debezium-connect}}\n",
			"relay.yaml:1:50: source.tables[0].key: has no effect with sink.compat, whose options name the columns of all tables",
		},
		{
			"messages", "source: {url: postgres://h/d, message_prefix: m}\nsink: {kafka: {}, compat: {profile: debezium-connect}}\n",
			"relay.yaml:1:47: source.message_prefix: cannot be used with sink.compat: the Event Router makes no records of messages",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := load(t, c.content)
			got := faultsOf(t, err)
			if begin, rest := strings.CutSuffix(c.want, "…"); len(got) != 1 || got[0] != c.want && !(rest && strings.HasPrefix(got[0], begin)) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), c.want)
			}
		})
	}
}
