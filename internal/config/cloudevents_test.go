package config

import (
	"strings"
	"testing"
)

// Without a source in the configuration it names the database and what has the events there. It has
// no host, so it is the same after a promotion.
func TestSourceOfCloudEvents(t *testing.T) {
	for _, c := range []struct{ source, written, want string }{
		{"url: 'postgres://relay@a:5432,b:5432/shop'", "", "/cdc-relay/shop/public.outbox"},
		{"url: 'host=b dbname=shop user=relay'", "", "/cdc-relay/shop/public.outbox"},
		// the server takes the user's name
		{"url: 'postgres://relay@h'", "", "/cdc-relay/relay/public.outbox"},
		{"url: postgres://h/a%20%7Bb%7D, tables: ['\"ü\".\"a/b\"']", "", "/cdc-relay/a%20%7Bb%7D/%C3%BC.a%2Fb"},
		{"url: postgres://h/shop, tables: [], message_prefix: order.events", "", "/cdc-relay/shop/order.events"},
		{"url: postgres://h/shop, tables: [a, b]", "urn:shop", "urn:shop"},
		{"url: postgres://h/shop, tables: [a, b]", "https://shop.example/{aggregate}", "https://shop.example/{aggregate}"},
	} {
		written := ""
		if c.written != "" {
			written = ", source: '" + c.written + "'"
		}
		conf := mustLoad(t, "source: {"+c.source+"}\nsink: {kafka: {topic: t}, cloudevents: {mode: binary"+written+"}}\n")
		if got := conf.Sink.CloudEvents.Source.String(); got != c.want {
			t.Errorf("%s: the source is %s, want %s", c.source, got, c.want)
		}
	}
}

func TestCloudEventsFaults(t *testing.T) {
	with := func(more string) string {
		return compatSource + "sink:\n  kafka: {topic: t}\n  cloudevents:\n    mode: binary\n    " + more + "\n"
	}
	for _, c := range []struct{ name, content, want string }{
		{
			"no mode", compatSource + "sink: {kafka: {}, cloudevents: {type: a}}\n",
			"relay.yaml:2:39: sink.cloudevents.type: has no effect without sink.cloudevents.mode: binary or structured",
		},
		{
			"mode", compatSource + "sink: {kafka: {}, cloudevents: {mode: json}}\n",
			`relay.yaml:2:39: sink.cloudevents.mode: is "json", want one of binary, structured`,
		},
		{
			"a profile", compatSource + "sink: {kafka: {}, compat: {profile: debezium-connect}, cloudevents: {mode: binary}}\n",
			"relay.yaml:2:76: sink.cloudevents.mode: cannot be used with sink.compat.profile: a message has one of the two forms",
		},
		{
			"no sink", compatSource + "sink: {cloudevents: {mode: binary}}\n",
			"sink: none is configured; want exactly one of rabbitmq, kafka, stdout",
		},
		{
			"tables", "source: {url: postgres://h/d, tables: [a, b]}\nsink: {kafka: {topic: t}, cloudevents: {mode: binary}}\n",
			"sink.cloudevents.source: is not set, and events come from public.a and public.b, which may have equal ids; " +
				"write a source, and if ids are unique only within each of them one that tells them apart, such as /shop/{aggregate}",
		},
		{
			"a table and messages", "source: {url: postgres://h/d, message_prefix: m}\nsink: {kafka: {topic: t}, cloudevents: {mode: binary}}\n",
			"sink.cloudevents.source: is not set, and events come from public.outbox and m, which may have equal ids; " +
				"write a source, and if ids are unique only within each of them one that tells them apart, such as /shop/{aggregate}",
		},
		{
			"no type", with("") + "outbox: {type: ''}\n",
			`relay.yaml:7:16: sink.cloudevents.type: "{type}" uses {type}, but no column of public.outbox is mapped to it; map one in the outbox section, or write the template without it`,
		},
		{
			"empty type", with("type: ' '"),
			"relay.yaml:6:11: sink.cloudevents.type: is empty, and every CloudEvent must have one",
		},
		{
			"source", with("source: my shop"),
			`relay.yaml:6:13: sink.cloudevents.source: is "my shop", which has a character that a URI must write as %XX`,
		},
		{
			"source with a template", with("source: '/{key}/%zz'"),
			`relay.yaml:6:13: sink.cloudevents.source: is "/{key}/%zz", which is no URI (RFC 3986)`,
		},
		{
			"schema", with("dataschema: /schemas/{type}"),
			`relay.yaml:6:17: sink.cloudevents.dataschema: is "/schemas/{type}", which is no absolute URI, such as https://example.com/schema`,
		},
		{
			"subject", with(`subject: "a\tb"`),
			"relay.yaml:6:14: sink.cloudevents.subject: has a control character or a noncharacter of Unicode, which no attribute may have",
		},
		{
			"content type", with("datacontenttype: avro"),
			`relay.yaml:6:22: sink.cloudevents.datacontenttype: is "avro", which is no content type, such as application/json (RFC 2046)`,
		},
		{
			"content type of a whole event", with("datacontenttype: application/cloudevents+avro"),
			`relay.yaml:6:22: sink.cloudevents.datacontenttype: is "application/cloudevents+avro", which begins with application/cloudevents, by which consumers know messages in structured mode`,
		},
		{
			"name", with("extensions: {tenant_id: tenant}"),
			`relay.yaml:6:18: sink.cloudevents.extensions.tenant_id: has the name "tenant_id"; the name of an attribute has only a-z and 0-9`,
		},
		{
			"long name", with("extensions: {" + strings.Repeat("x", 201) + ": tenant}"),
			"relay.yaml:6:18: sink.cloudevents.extensions." + strings.Repeat("x", 201) + ": has a name of 201 bytes; a name of an attribute has at most 200 here, and at most 20 is best",
		},
		{
			"data", with("extensions: {data: tenant}"),
			`relay.yaml:6:18: sink.cloudevents.extensions.data: has "data", which the relay or the format writes (specversion, id, source, type, subject, time, datacontenttype, dataschema, traceparent, partitionkey, sequence, data); choose another name`,
		},
		{
			"header", with("") + "outbox: {headers: {Ce_Tenant: tenant}}\n",
			`relay.yaml:7:19: outbox.headers: has the header "Ce_Tenant", and those of CloudEvents (ce_*) are written by the relay; an attribute of your own is a line of sink.cloudevents.extensions`,
		},
		{
			"header of RabbitMQ", compatSource + "sink: {rabbitmq: {}, cloudevents: {mode: binary}}\noutbox: {headers: {'cloudEvents_tenant': tenant}}\n",
			`relay.yaml:3:19: outbox.headers: has the header "cloudEvents_tenant", and those of CloudEvents (cloudEvents_*) are written by the relay; an attribute of your own is a line of sink.cloudevents.extensions`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := load(t, c.content)
			if got := faultsOf(t, err); len(got) != 1 || got[0] != c.want {
				t.Errorf("got  %s\nwant %s", strings.Join(got, "\n"), c.want)
			}
		})
	}
	// a schema of its own takes the content type that is a marker in the headers
	mustLoad(t, strings.Replace(with("datacontenttype: application/cloudevents+avro"), "binary", "structured", 1))
	// other headers, and those of the other broker, are a row's own
	mustLoad(t, with("")+"outbox: {headers: {tenant: tenant, 'cloudEvents:tenant': tenant}}\n")
}
