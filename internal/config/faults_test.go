package config

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/sink/drivers"
)

// One case for each way to be wrong: the file is base with the change, or the whole content.
func TestFaults(t *testing.T) {
	source := "source: {url: postgres://relay@localhost:5432/shop}\n"
	rabbit := "sink: {rabbitmq: {}}\n"
	for _, c := range []struct {
		name    string
		content string
		env     string
		want    string // of the only fault; its beginning, when it ends with …
	}{
		{"not YAML", "source: [", "", "relay.yaml:1:9: not valid YAML: …"},
		{"a tab", "source:\n\turl: x\n", "", "relay.yaml:2:1: not valid YAML: a tab is not allowed here; YAML is indented with spaces"},
		{"a tab in a list", base + "log:\n  level: info\n\tformat: json\n", "", "relay.yaml:5:1: not valid YAML: a tab is not allowed here; YAML is indented with spaces"},
		{"an address with brackets", source + "sink: {kafka: {brokers: [[::1]:9092]}}\n", "", "relay.yaml:2:27: not valid YAML: …"},
		{"an address with brackets on a line", source + "sink:\n  kafka:\n    brokers:\n      - [::1]:9092\n", "", `relay.yaml:5:14: not valid YAML: value is not allowed in this context; a value with [ ] { } or : in it is written in quotes, such as "[::1]:9092"`},
		{"a line indented by one space more", "source:\n  url: postgres://h/d\nsink:\n  rabbitmq:\n    url: amqp://h\n   exchange: e\n", "", "relay.yaml:6:4: not valid YAML: this line is indented like no key above it; the keys of a section are indented by the same number of spaces"},
		{"a line indented too far", "source:\n  url: postgres://h/d\n   slot: s\nsink: {stdout: {}}\n", "", "relay.yaml:2:8: not valid YAML: mapping value is not allowed in this context; is the line below it indented too far…"},
		{"a key below the sections", base + "log:\n  level: info\n format: json\n", "", "relay.yaml:5:2: not valid YAML: this line is indented like no key above it…"},
		{"a first section that is indented", " source:\n  url: postgres://h/d\nsink:\n  stdout: {}\n", "", "relay.yaml:3:1: not valid YAML: this line is indented like no key above it…"},
		{"an address that is a variable which is not set", "source: {url: \"${NOT_SET}\"}\nsink: {stdout: {}}\n", "", "relay.yaml:1:15: source.url: the environment variable NOT_SET is not set"},
		{"two documents", base + "---\na: b\n", "", "relay.yaml:4:2: a second YAML document; the configuration is one document"},
		{"not a mapping", "- a\n", "CDC_RELAY_SINK__STDOUT={};CDC_RELAY_SOURCE__URL=host=h", "relay.yaml:1:1: wants a mapping of keys (source, outbox, sink, delivery, retry, dead_letters, guard, retention, admin, log), has a list"},
		{"a text", "localhost\n", "", "relay.yaml:1:1: wants a mapping of keys (source, outbox, …"},
		{"an anchor", base + "log: {level: &a info}\n", "", "relay.yaml:3:14: YAML anchors, aliases, tags and merge keys are not used here; write the value itself"},
		{"a merge key", base + "log:\n  <<: {level: info}\n", "", "relay.yaml:4:3: YAML anchors…"},
		{"a key twice", base + "log: {level: info, level: debug}\n", "", "relay.yaml:3:20: level: given twice, first at relay.yaml:3:7"},
		{"unknown section", base + "delivry: {}\n", "", "relay.yaml:3:1: delivry: unknown key, the nearest known one is delivery"},
		{"unknown key", base + "delivery:\n  ordring: 3\n", "", "relay.yaml:4:3: delivery.ordring: unknown key, the nearest known one is delivery.ordering"},
		{"key of another section", base + "delivery:\n  exchange: e\n", "", "relay.yaml:4:3: delivery.exchange: unknown key; known here are <delivery>; elsewhere there is sink.rabbitmq.exchange and sink.rabbitmq.allow.exchange and dead_letters.mirror.exchange"},
		{"unknown key without a near one", "version: 1\n" + base, "", "relay.yaml:1:1: version: unknown key; known here are <>"},
		{"unknown nested key", source + "sink: {rabbitmq: {tls: {cafile: x}}}\n", "", "relay.yaml:2:25: sink.rabbitmq.tls.cafile: unknown key; known here are <sink.rabbitmq.tls>"},
		{"unknown sink", source + "sink: {rabbitmq: {}, nats: {}}\n", "", "relay.yaml:2:22: sink.nats: unknown sink; want exactly one of rabbitmq, kafka, stdout"},
		{"unknown sink alone", source + "sink: {webhook: {url: http://h}}\n", "", "relay.yaml:2:8: sink.webhook: unknown sink; want exactly one of rabbitmq, kafka, stdout"},
		{"default exchange that is not allowed", source + "sink: {rabbitmq: {exchange: \"\", allow: {exchange: [orders]}}}\n", "", `relay.yaml:2:51: sink.rabbitmq.allow.exchange: does not allow "", where sink.rabbitmq.exchange sends every event; add it to the patterns`},
		{"no pattern", source + "sink: {kafka: {allow: {topic: []}}}\n", "", `relay.yaml:2:31: sink.kafka.allow.topic: has no pattern; write "*" to allow everything`},
		{"no part", source + "sink: {kafka: {allow: {}}}\n", "", "relay.yaml:2:23: sink.kafka.allow: is empty; leave it out to allow everything"},
		{"fixed exchange that is not allowed", source + "sink: {rabbitmq: {exchange: events, allow: {exchange: [orders, \"event\"]}}}\n", "", `relay.yaml:2:55: sink.rabbitmq.allow.exchange: does not allow "events", where sink.rabbitmq.exchange sends every event; add it to the patterns`},
		{"fixed topic of a profile that is not allowed", source + "sink: {kafka: {allow: {topic: orders}}, compat: {profile: debezium-server, options: {route.topic.replacement: all}}}\n", "", `relay.yaml:2:31: sink.kafka.allow.topic: does not allow "all", where sink.kafka.topic sends every event; add it to the patterns`},
		{"mirror that is not allowed", source + "sink: {kafka: {allow: {topic: \"outbox.*\"}}}\ndead_letters: {mirror: {topic: dead}}\n", "", `relay.yaml:2:31: sink.kafka.allow.topic: does not allow "dead", where dead_letters.mirror.topic sends the copies of dead letters; add it to the patterns`},
		{"mirror without a routing key", source + "sink: {rabbitmq: {allow: {routing_key: \"order.*\"}}}\ndead_letters: {mirror: {exchange: dead}}\n", "", `relay.yaml:2:40: sink.rabbitmq.allow.routing_key: does not allow "", where dead_letters.mirror.routing_key sends the copies of dead letters; add it to the patterns`},
		{"header that steers nothing", source + "sink: {rabbitmq: {allow_headers: [CC, cc]}}\n", "", `relay.yaml:2:39: sink.rabbitmq.allow_headers: has "cc", which is none of CC, BCC, x-delay, x-deduplication-header, x-cache-ttl, x-recent-history-no-store, x-received-from, x-death, x-mqtt-publish-qos, x-mqtt-dup, x-stream-filter-value`},
		{"misspelt sink", source + "sink: {kafak: {}}\n", "", "relay.yaml:2:8: sink.kafak: unknown sink, the nearest known one is sink.kafka; want exactly one of rabbitmq, kafka, stdout"},
		{"misspelt sink in a variable", source, "CDC_RELAY_SINK__RABITMQ__URL=amqp://h", "CDC_RELAY_SINK__RABITMQ__URL: unknown override; the nearest known one is CDC_RELAY_SINK__RABBITMQ__URL"},
		{"a sink without a name in a variable", source, "CDC_RELAY_SINK__=x", "CDC_RELAY_SINK__: unknown override…"},
		{"sink as a name", source + "sink: kafka\n", "", "relay.yaml:2:7: sink: wants a mapping of keys (<sink>), has a single value"},
		{"profile as a name", source + "sink: {kafka: {}, compat: debezium-server}\n", "", "relay.yaml:2:27: sink.compat: wants a mapping of keys (<sink.compat>), has a single value"},
		{"section of the wrong kind", base + "log: debug\n", "", "relay.yaml:3:6: log: wants a mapping of keys (<log>), has a single value"},
		{"scalar of the wrong kind", base + "log: {level: [debug]}\n", "", "relay.yaml:3:14: log.level: wants a single value, has a list"},
		{"choice", base + "delivery: {ordering: keys}\n", "", `relay.yaml:3:22: delivery.ordering: is "keys", want one of key, pipelined, commit, none`},
		{"bool", source + "sink: {rabbitmq: {declare: yes}}\n", "", `relay.yaml:2:28: sink.rabbitmq.declare: is "yes", want true or false`},
		{"integer", base + "delivery: {lanes: many}\n", "", `relay.yaml:3:19: delivery.lanes: is "many", want a whole number from 1 to 1024`},
		{"range", base + "delivery: {lanes: 0}\n", "", `relay.yaml:3:19: delivery.lanes: is "0", want a whole number from 1 to 1024`},
		{"fraction", base + "delivery: {max_in_flight: 1.5}\n", "", `relay.yaml:3:27: delivery.max_in_flight: is "1.5"…`},
		{"duration without unit", base + "delivery: {confirm_timeout: 30}\n", "", `relay.yaml:3:29: delivery.confirm_timeout: is "30", want a duration with its unit from 100ms to 1h, such as 20s`},
		{"negative duration", base + "delivery: {shutdown_grace: -1s}\n", "", `relay.yaml:3:28: delivery.shutdown_grace: is "-1s"…`},
		{"guard without max_bytes", base + "guard: {defer_at: 50%}\n", "", "relay.yaml:3:19: guard.defer_at: needs guard.max_bytes beside it: how large the relay's own tables may become, such as 10GiB"},
		{"guard without defer_at", base + "guard: {max_bytes: 10GiB}\n", "", "relay.yaml:3:20: guard.max_bytes: has no effect without guard.defer_at: how much WAL the slot may keep before events are deferred, such as 25%"},
		{"guard that could not defer", base + "guard: {defer_at: 2GiB, max_bytes: 22MiB}\n", "", "relay.yaml:3:36: guard.max_bytes: is 22MiB, want at least 23MiB: what is in flight, up to delivery.max_in_flight and delivery.max_in_flight_bytes, counts as deferred"},
		{"guard that could not defer so much", base + "guard: {defer_at: 2GiB, max_bytes: 2GiB}\ndelivery: {max_in_flight: 10000000}\n", "", "relay.yaml:3:36: guard.max_bytes: is 2GiB, want at least 12228MiB…"},
		{"guard at nothing", base + "guard: {defer_at: 0, max_bytes: 10GiB}\n", "", `relay.yaml:3:19: guard.defer_at: is "0", want a size such as 2GiB, from 1MiB to 1048576GiB, or a percentage from 1% to 100%`},
		{"guard at no percentage", base + "guard: {defer_at: 101%, max_bytes: 10GiB}\n", "", `relay.yaml:3:19: guard.defer_at: is "101%", want a size…`},
		{"guard without room", base + "guard: {defer_at: 2GiB, max_bytes: 0}\n", "", `relay.yaml:3:36: guard.max_bytes: is "0", want bytes or a size such as 10GiB, from 1MiB to 1048576GiB`},
		{"limit", strings.Replace(base, "source: {", "source: {max_event_bytes: 1KiB, ", 1), "", `relay.yaml:1:27: source.max_event_bytes: is "1KiB", want 0 for no limit, or bytes or a size such as 16MiB, from 64KiB to 1GiB`},
		{"size", base + "delivery: {max_in_flight_bytes: 16M}\n", "", `relay.yaml:3:33: delivery.max_in_flight_bytes: is "16M", want bytes or a size such as 16MiB, from 64KiB to 64GiB`},
		{"variable not set", base + "log: {level: \"${LEVEL}\"}\n", "", "relay.yaml:3:14: log.level: the environment variable LEVEL is not set"},
		{"file not there", "sink: {stdout: {}}\nsource: {url: postgres://h/d, password: \"${file:/no/such}\"}\n", "", "relay.yaml:2:41: source.password: read ${file:/no/such}: open /no/such: no such file or directory"},

		{"no source", rabbit, "", "source.url: is not set, and neither is PGHOST, PGSERVICE or PGDATABASE"},
		{"slot", "source: {url: postgres://h/d, slot: My-Slot}\n" + rabbit, "", `relay.yaml:1:37: source.slot: is "My-Slot", want 1 to 63 of a-z, 0-9 and _`},
		{"long slot", "source: {url: postgres://h/d, slot: " + strings.Repeat("a", 64) + "}\n" + rabbit, "", `relay.yaml:1:37: source.slot: is "aaaa…`},
		{"publication", "source: {url: postgres://h/d, publication: \"\"}\n" + rabbit, "", `relay.yaml:1:44: source.publication: is "", want a name of 1 to 63 bytes`},
		{"source url", "source: {url: \"postgres://u:topsecret/x@h/d\"}\n" + rabbit, "", "relay.yaml:1:15: source.url: cannot be …"},
		{"source url of another kind", "source: {url: \"mysql://u:topsecret@h/d\"}\n" + rabbit, "", "relay.yaml:1:15: source.url: begins with mysql://, and only PostgreSQL is supported; want postgres://user:password@host:port/database"},
		{"source url of JDBC", "source: {url: \"jdbc:mariadb://u:topsecret@h/d\"}\n" + rabbit, "", "relay.yaml:1:15: source.url: begins with jdbc:mariadb://, and only PostgreSQL is supported; …"},
		{"source url of PostgreSQL's JDBC", "source: {url: \"jdbc:postgresql://u:topsecret@h/d\"}\n" + rabbit, "", "relay.yaml:1:15: source.url: begins with jdbc:postgresql://; want postgres://user:password@host:port/database"},
		{"source url with a slash too few", "source: {url: \"postgres:/u:topsecret@h/d\"}\n" + rabbit, "", "relay.yaml:1:15: source.url: begins with postgres:/; want postgres://…"},
		{"source url in upper case", "source: {url: \"POSTGRES://u:topsecret@h/d\"}\n" + rabbit, "", "relay.yaml:1:15: source.url: begins with POSTGRES://; want postgres://…"},
		{"source url of the web", "source: {url: \"https://u:topsecret@h/d\"}\n" + rabbit, "", "relay.yaml:1:15: source.url: begins with https://, and only PostgreSQL is supported; …"},
		{"source key=value", "source: {url: \"host=h password=top secret\"}\n" + rabbit, "", "relay.yaml:1:15: source.url: cannot be parsed as postgres://…"},
		{"source sslmode", "source: {url: \"postgres://u:topsecret@h/d?sslmode=maybe\"}\n" + rabbit, "", "relay.yaml:1:15: source.url: cannot be used: failed to configure TLS (sslmode is invalid)"},
		{"source url with a list of revoked certificates", "source: {url: \"postgres://u:topsecret@h/d?sslmode=verify-full&sslcrl=/etc/crl.pem\"}\n" + rabbit, "", "relay.yaml:1:15: source.url: cannot be used: sslcrl is not supported, …"},
		{"source key=value of TLS", "source: {url: \"host=h ssl_min_protocol_version=TLSv1.3\"}\n" + rabbit, "", "relay.yaml:1:15: source.url: cannot be used: ssl_min_protocol_version is not supported, …"},
		{"source url with the server's user", "source: {url: \"postgres:///d?host=/run/postgresql&requirepeer=postgres\"}\n" + rabbit, "", "relay.yaml:1:15: source.url: cannot be used: requirepeer is not supported, …"},
		{"PGSSLCRL", base, "PGSSLCRL=/etc/crl.pem", "PGSSLCRL: source.url: is not supported, …"},
		{"PGGSSENCMODE", base, "PGGSSENCMODE=require", "PGGSSENCMODE: source.url: is not supported, …"},
		{"PGSSLCRLDIR", base, "PGSSLCRLDIR=/etc/crl", "PGSSLCRLDIR: source.url: is not supported, …"},
		{"PGSSLMINPROTOCOLVERSION", base, "PGSSLMINPROTOCOLVERSION=TLSv1.3", "PGSSLMINPROTOCOLVERSION: source.url: is not supported, …"},
		{"a PGSSL of a later libpq", base, "PGSSLKEYLOGFILE=/tmp/keys", "PGSSLKEYLOGFILE: source.url: is not supported, …"},
		{"PGREQUIREPEER", base, "PGREQUIREPEER=postgres", "PGREQUIREPEER: source.url: is not supported, …"},
		{"PGHOSTADDR", base, "PGHOSTADDR=10.0.0.1", "PGHOSTADDR: source.url: is not supported, …"},
		{"no table", "source: {url: postgres://h/d, tables: []}\n" + rabbit, "", "relay.yaml:1:39: source.tables: names no table, and source.message_prefix is not set: there is nothing to relay"},
		{"tables as a mapping", "source: {url: postgres://h/d, tables: {name: a}}\n" + rabbit, "", "relay.yaml:1:39: source.tables: wants a list of tables, has a mapping"},
		{"table twice", "source: {url: postgres://h/d, tables: [outbox, public.outbox]}\n" + rabbit, "", "relay.yaml:1:48: source.tables[1]: names public.outbox a second time"},
		{"three-part table", "source: {url: postgres://h/d, tables: [a.b.c]}\n" + rabbit, "", `relay.yaml:1:40: source.tables[0]: table "a.b.c": want name or schema.name`},
		{"open quote", "source: {url: postgres://h/d, tables: ['a.\"b']}\n" + rabbit, "", `relay.yaml:1:40: source.tables[0]: table "a.\"b": a double quote is not closed`},
		{"empty table", "source: {url: postgres://h/d, tables: [\"\"]}\n" + rabbit, "", `relay.yaml:1:40: source.tables[0]: table "": want name or schema.name`},
		{"long table", "source: {url: postgres://h/d, tables: [" + strings.Repeat("t", 64) + "]}\n" + rabbit, "", `relay.yaml:1:40: source.tables[0]: table "ttt…`},
		{"table without name", "source: {url: postgres://h/d, tables: [{id: a}]}\n" + rabbit, "", "relay.yaml:1:40: source.tables[0]: has no name"},
		{"unknown key of a table", "source: {url: postgres://h/d, tables: [{name: a, payloda: b}]}\n" + rabbit, "", "relay.yaml:1:50: source.tables[0].payloda: unknown key, the nearest known one is payload"},
		{"table without payload", "source: {url: postgres://h/d, tables: [{name: a, payload: \"\"}]}\n" + rabbit, "", `relay.yaml:1:40: source.tables[0].payload: is empty, but every event needs a payload: name the column that holds it`},

		{"no id", base + "outbox: {id: \"\"}\n", "", `relay.yaml:3:14: outbox.id: is empty, but every event needs an id: name the column that holds it`},
		{"no payload", base + "outbox: {payload: \"\"}\n", "", `relay.yaml:3:19: outbox.payload: is empty, but every event needs a payload: name the column that holds it`},
		{"id as a mapping", base + "outbox: {id: {a: b}}\n", "", "relay.yaml:3:14: outbox.id: wants a single value, has a mapping"},
		{"empty name in a list", base + "outbox: {key: [a, \"\"]}\n", "", "relay.yaml:3:19: outbox.key: has an empty column name in its list"},
		{"column twice", base + "outbox: {key: [a, a]}\n", "", `relay.yaml:3:19: outbox.key: has column "a" twice`},
		{"column of the transaction and of the id", base + "outbox: {transaction: id}\n", "", `relay.yaml:3:23: outbox.transaction: is "id", the column of id too: name a column that nothing else uses`},
		{"default column of the transaction", base + "outbox: {key: tx}\n", "", `relay.yaml:3:15: outbox.transaction: is "tx", the column of key too: name a column that nothing else uses`},
		{"column as a mapping", base + "outbox: {key: {a: b}}\n", "", "relay.yaml:3:15: outbox.key: wants a single value, has a mapping"},
		{"headers as a list", base + "outbox: {headers: [a]}\n", "", "relay.yaml:3:19: outbox.headers: wants a mapping of name: column, has a list"},
		{"header without column", base + "outbox: {headers: {a: \"\"}}\n", "", "relay.yaml:3:23: outbox.headers.a: wants the name of a column"},
		{"header with a list", base + "outbox: {headers: {a: [b, c]}}\n", "", "relay.yaml:3:23: outbox.headers.a: wants a single value, has a list"},
		{"headers of one table", "source: {url: postgres://h/d, tables: [{name: a, headers: {b: c}}]}\n" + rabbit, "", "relay.yaml:1:50: source.tables[0].headers: cannot be set for one table; outbox.headers are the same for all"},
		{"header without name", base + "outbox: {headers: {\"\": a}}\n", "", "relay.yaml:3:20: outbox.headers.: has a header without a name"},
		{"long header", base + "outbox: {headers: {" + strings.Repeat("h", 256) + ": a}}\n", "", "relay.yaml:3:20: outbox.headers.hhh…"},

		{"no sink", source, "", "sink: none is configured; want exactly one of rabbitmq, kafka, stdout"},
		{"an empty sink", source + "sink:\n", "", "sink: none is configured; want exactly one of rabbitmq, kafka, stdout"},
		{"two sinks", source + "sink: {rabbitmq: {}, stdout: {}}\n", "", "relay.yaml:2:22: sink: rabbitmq and stdout are configured; want exactly one of rabbitmq, kafka, stdout"},
		{"a second sink in a variable", base, "CDC_RELAY_SINK__STDOUT={}", "CDC_RELAY_SINK__STDOUT: sink: rabbitmq and stdout are configured; want exactly one of rabbitmq, kafka, stdout"},
		{"three sinks", source + "sink: {kafka: {}, rabbitmq: {}, stdout: {}}\n", "", "relay.yaml:2:19: sink: kafka and rabbitmq and stdout are configured; want exactly one of rabbitmq, kafka, stdout"},
		{"stdout with a key", source + "sink: {stdout: {format: x}}\n", "", "relay.yaml:2:16: sink.stdout: has no keys; {} chooses it"},
		{"no urls", source + "sink: {rabbitmq: {url: []}}\n", "", "relay.yaml:2:24: sink.rabbitmq.url: names no broker"},
		{"broker url", source + "sink: {rabbitmq: {url: \"amqp://u:topsecret/x@h/\"}}\n", "", "relay.yaml:2:24: sink.rabbitmq.url: cannot be parsed as amqp://…"},
		{"broker url with an open escape", source + "sink: {rabbitmq: {url: \"amqp://u:topsecret%@h/\"}}\n", "", "relay.yaml:2:24: sink.rabbitmq.url: cannot be parsed as amqp://…"},
		{"broker scheme", source + "sink: {rabbitmq: {url: \"http://h/\"}}\n", "", `relay.yaml:2:24: sink.rabbitmq.url: starts with "http:", want amqp:// or amqps://`},
		{"broker without scheme", source + "sink: {rabbitmq: {url: localhost}}\n", "", `relay.yaml:2:24: sink.rabbitmq.url: has no amqp:// or amqps:// in front, want amqp://host:port/vhost`},
		{"broker without host", source + "sink: {rabbitmq: {url: \"amqp:///v\"}}\n", "", "relay.yaml:2:24: sink.rabbitmq.url: has no host, want amqp://host:port/vhost"},
		{"broker port", source + "sink: {rabbitmq: {url: \"amqp://h:99999/\"}}\n", "", "relay.yaml:2:24: sink.rabbitmq.url: has port 99999, want 1 to 65535"},
		{"user twice", source + "sink: {rabbitmq: {url: \"amqp://u:p@h/\", username: v}}\n", "", "relay.yaml:2:24: sink.rabbitmq.url: has a user in the address, and username or password is given too; one of the two"},
		{"user in some addresses", source + "sink: {rabbitmq: {url: [\"amqp://u:p@h/\", amqp://i/]}}\n", "", "relay.yaml:2:24: sink.rabbitmq.url: has a user in some addresses and not in others; in all, or none and username and password"},
		{"tls without amqps", source + "sink: {rabbitmq: {tls: {ca: /ca.pem}}}\n", "", "relay.yaml:2:29: sink.rabbitmq.tls.ca: has no effect on an amqp:// address; write amqps://"},
		{"key without cert", source + "sink: {rabbitmq: {url: \"amqps://h\", tls: {key: c}}}\n", "", "relay.yaml:2:48: sink.rabbitmq.tls.key: is the key of no certificate: tls.cert is not set"},
		{"unknown property", source + "sink: {rabbitmq: {properties: {expiry: a}}}\n", "", "relay.yaml:2:32: sink.rabbitmq.properties.expiry: unknown property; known here are content_type, correlation_id, priority, expiration"},

		{"parameter of a broker url", source + "sink: {rabbitmq: {url: 'amqp://u:topsecret@h/?heartbeat=soon'}}\n", "", "relay.yaml:2:24: sink.rabbitmq.url: cannot be used: it has a space in it (written %20), or a parameter behind the ? that is no number"},
		{"open brace", source + "sink: {rabbitmq: {exchange: 'a{b'}}\n", "", `relay.yaml:2:29: sink.rabbitmq.exchange: parse template "a{b": a { without its }; …`},
		{"declare of a template", source + "sink: {rabbitmq: {exchange: 'events.{aggregate}', declare: true}}\n", "", `relay.yaml:2:60: sink.rabbitmq.declare: has no effect on exchange "events.{aggregate}", which each event names; …`},
		{"bindings of a template", source + "sink: {rabbitmq: {exchange: 'events.{aggregate}', bindings: [{queue: q}]}}\n", "", `relay.yaml:2:61: sink.rabbitmq.bindings: has no effect on exchange "events.{aggregate}", which each event names; …`},
		{"bindings of the default exchange", source + "sink: {rabbitmq: {exchange: '', bindings: [{queue: q}]}}\n", "", "relay.yaml:2:43: sink.rabbitmq.bindings: has no effect on the default exchange…"},
		{"binding without a queue", source + "sink: {rabbitmq: {bindings: [{key: k}]}}\n", "", "relay.yaml:2:30: sink.rabbitmq.bindings[0]: wants the name of a queue"},
		{"binding with another key", source + "sink: {rabbitmq: {bindings: [{queue: q, keys: k}]}}\n", "", "relay.yaml:2:41: sink.rabbitmq.bindings[0].keys: unknown key, the nearest known one is key"},
		{"binding that is a text", source + "sink: {rabbitmq: {bindings: [q]}}\n", "", "relay.yaml:2:30: sink.rabbitmq.bindings[0]: wants a mapping of queue, key and arguments, has a single value"},
		{"exchange type of no exchange", source + "sink: {rabbitmq: {exchange_type: fanout}}\n", "", "relay.yaml:2:34: sink.rabbitmq.exchange_type: has no effect without sink.rabbitmq.declare: true"},
		{"unroutable", source + "sink: {rabbitmq: {unroutable: drop}}\n", "", `relay.yaml:2:31: sink.rabbitmq.unroutable: is "drop", want one of pause, ignore`},
		{"unroutable of an exchange", source + "sink: {rabbitmq: {unroutable: {e: drop}}}\n", "", `relay.yaml:2:35: sink.rabbitmq.unroutable.e: is "drop", want one of pause, ignore`},
		{"declare of the default exchange", source + "sink: {rabbitmq: {exchange: '', declare: true}}\n", "", "relay.yaml:2:42: sink.rabbitmq.declare: has no effect on the default exchange…"},
		{"headers for nobody", source + "sink: {stdout: {}}\noutbox: {headers: {tenant: tenant}}\n", "", "relay.yaml:3:19: outbox.headers: has no effect with sink.stdout, …"},
		{"no brokers", source + "sink: {kafka: {brokers: []}}\n", "", "relay.yaml:2:25: sink.kafka.brokers: names no broker"},
		{"no brokers in a variable", source, "CDC_RELAY_SINK__KAFKA__BROKERS=", "CDC_RELAY_SINK__KAFKA__BROKERS: sink.kafka.brokers: names no broker"},
		{"an empty broker", source + "sink: {kafka: {brokers: [a, \"\"]}}\n", "", `relay.yaml:2:29: sink.kafka.brokers: has "", want host or host:port`},
		{"broker with a scheme", source + "sink: {kafka: {brokers: [\"SASL_SSL://a:9092\"]}}\n", "", `relay.yaml:2:26: sink.kafka.brokers: has "SASL_SSL://a:9092", want host or host:port without a scheme: …`},
		{"broker with a user", source + "sink: {kafka: {brokers: [u@a]}}\n", "", `relay.yaml:2:26: sink.kafka.brokers: has "u@a", want host or host:port`},
		{"broker port", source + "sink: {kafka: {brokers: [\"a:0\"]}}\n", "", `relay.yaml:2:26: sink.kafka.brokers: has "a:0", whose port is not 1 to 65535`},
		{"broker without port behind the colon", source + "sink: {kafka: {brokers: [\"a:\"]}}\n", "", `relay.yaml:2:26: sink.kafka.brokers: has "a:", whose port is not 1 to 65535`},
		{"broker address without brackets", source + "sink: {kafka: {brokers: [\"::1\"]}}\n", "", `relay.yaml:2:26: sink.kafka.brokers: has "::1", want host or host:port`},
		{"brokers as a mapping", source + "sink: {kafka: {brokers: {a: 9092}}}\n", "", "relay.yaml:2:25: sink.kafka.brokers: wants a single value, has a mapping"},
		{"a topic with a slash", source + "sink: {kafka: {topic: \"outbox/{aggregate}\"}}\n", "", `relay.yaml:2:23: sink.kafka.topic: is "outbox/{aggregate}"; a topic's name has only letters, digits, '.', '_' and '-'`},
		{"an empty topic", source + "sink: {kafka: {topic: \"\"}}\n", "", `relay.yaml:2:23: sink.kafka.topic: is "", which cannot be the name of a topic`},
		{"a topic of a dot", source + "sink: {kafka: {topic: \".\"}}\n", "", `relay.yaml:2:23: sink.kafka.topic: is ".", which cannot be the name of a topic`},
		{"a long topic", source + "sink: {kafka: {topic: " + strings.Repeat("t", 250) + "}}\n", "", "relay.yaml:2:23: sink.kafka.topic: has 250 characters, the most a topic's name has is 249"},
		{"a topic of a part that is not mapped", source + "sink: {kafka: {}}\noutbox: {aggregate: \"\"}\n", "", `relay.yaml:3:21: sink.kafka.topic: "outbox.event.{aggregate}" uses {aggregate}, but no column of public.outbox is mapped to it; …`},
		{"compression", source + "sink: {kafka: {compression: brotli}}\n", "", `relay.yaml:2:29: sink.kafka.compression: is "brotli", want one of none, gzip, snappy, lz4, zstd`},
		{"sasl mechanism", source + "sink: {kafka: {sasl: {mechanism: gssapi, username: u, password: p}}}\n", "", `relay.yaml:2:34: sink.kafka.sasl.mechanism: is "gssapi", want one of plain, scram-sha-256, scram-sha-512, oauthbearer, aws-msk-iam`},
		{"sasl without password", source + "sink: {kafka: {sasl: {mechanism: plain, username: u}}}\n", "", "sink.kafka.sasl.password: is not set, and sasl.mechanism plain needs it"},
		{"sasl without mechanism", source + "sink: {kafka: {sasl: {username: usecret}}}\n", "", "relay.yaml:2:33: sink.kafka.sasl.username: has no effect without sasl.mechanism: plain, scram-sha-256 or scram-sha-512"},
		{"token of no client", source + "sink: {kafka: {sasl: {mechanism: oauthbearer, oauth: {token_url: 'https://i/t', client_id: c}}}}\n", "", "sink.kafka.sasl.oauth.client_secret: is not set, and a token is asked for with it"},
		{"token of no issuer", source + "sink: {kafka: {sasl: {mechanism: oauthbearer, oauth: {client_id: c, client_secret: s}}}}\n", "", "sink.kafka.sasl.oauth.token_url: is not set: want the issuer's token endpoint, such as https://login.example/oauth2/token"},
		{"token and user", source + "sink: {kafka: {sasl: {mechanism: oauthbearer, username: u, oauth: {token_url: 'https://i/t', client_id: c, client_secret: s}}}}\n", "", "relay.yaml:2:57: sink.kafka.sasl.username: has no effect without sasl.mechanism: plain, scram-sha-256 or scram-sha-512"},
		{"issuer of no use", source + "sink: {kafka: {sasl: {oauth: {token_url: 'https://i/t'}}}}\n", "", "relay.yaml:2:42: sink.kafka.sasl.oauth.token_url: has no effect without sasl.mechanism: oauthbearer"},
		{"region of no use", source + "sink: {kafka: {sasl: {region: r}}}\n", "", "relay.yaml:2:31: sink.kafka.sasl.region: has no effect without sasl.mechanism: aws-msk-iam"},
		{"role of no use", source + "sink: {kafka: {sasl: {role_arn: r}}}\n", "", "relay.yaml:2:33: sink.kafka.sasl.role_arn: has no effect without sasl.mechanism: aws-msk-iam"},
		{"extension of no use", source + "sink: {kafka: {sasl: {extensions: {a: b}}}}\n", "", "relay.yaml:2:35: sink.kafka.sasl.extensions: has no effect without sasl.mechanism: oauthbearer"},
		{"extension without a name", source + "sink: {kafka: {sasl: {mechanism: oauthbearer, extensions: {auth: b}, oauth: {token_url: 'https://i/t', client_id: c, client_secret: s}}}}\n", "", "relay.yaml:2:60: sink.kafka.sasl.extensions.auth: is no name of an extension: want a to z and A to Z, and not auth"},
		{"msk without TLS", source + "sink: {kafka: {sasl: {mechanism: aws-msk-iam}}}\n", "", "relay.yaml:2:34: sink.kafka.sasl.mechanism: is aws-msk-iam, which MSK takes over TLS only: set tls: {enabled: true}"},
		{"two logins", source + "sink: {rabbitmq: {username: u, oauth: {token_url: 'https://i/t', client_id: c, client_secret: s}}}\n", "", "relay.yaml:2:51: sink.rabbitmq.oauth.token_url: is given, and so is a user or a password; the token is both: one of the two"},
		{"issuer without https", source + "sink: {rabbitmq: {oauth: {token_url: ftp://i, client_id: c, client_secret: s}}}\n", "", "relay.yaml:2:38: sink.rabbitmq.oauth.token_url: cannot be used: …"},
		{"secret without an issuer", source + "sink: {rabbitmq: {oauth: {client_secret: s}}}\n", "", "relay.yaml:2:42: sink.rabbitmq.oauth.client_secret: has no effect without oauth.token_url"},
		{"command that does not exist", source + "sink: {kafka: {sasl: {mechanism: plain, username: u, password: '${exec:/no/such topsecret}'}}}\n", "", "relay.yaml:2:64: sink.kafka.sasl.password: run /no/such: …"},
		{"command in an address", "source: {url: '${exec:sh}'}\nsink: {stdout: {}}\n", "", "relay.yaml:1:15: source.url: ${exec:COMMAND} is only for user, password and client_secret, …"},
		{"sasl without a password's file", source + "sink: {kafka: {sasl: {mechanism: plain, username: u, password: \"${file:/no/such}\"}}}\n", "", "relay.yaml:2:64: sink.kafka.sasl.password: read ${file:/no/such}: …"},
		{"kafka tls of a doubtful kind", source + "sink: {kafka: {tls: {enabled: yes, ca: /ca.pem}}}\n", "", `relay.yaml:2:31: sink.kafka.tls.enabled: is "yes", want true or false`},
		{"kafka tls that is off", source + "sink: {kafka: {tls: {ca: /ca.pem}}}\n", "", "relay.yaml:2:26: sink.kafka.tls.ca: has no effect without tls.enabled: true"},
		{"kafka tls that is empty", source + "sink: {kafka: {tls: {}}}\n", "", "relay.yaml:2:21: sink.kafka.tls: is empty, which would leave TLS off; write {enabled: true}, or leave it out"},
		{"kafka key without cert", source + "sink: {kafka: {tls: {enabled: true, key: c}}}\n", "", "relay.yaml:2:42: sink.kafka.tls.key: is the key of no certificate: tls.cert is not set"},
		{"lanes of kafka", source + "sink: {kafka: {}}\ndelivery: {lanes: 32}\n", "", "relay.yaml:3:19: delivery.lanes: has no effect with sink.kafka, where each partition of a topic is a lane; leave it out"},
		{"unknown key of kafka", source + "sink: {kafka: {bootstrap: [a]}}\n", "", "relay.yaml:2:16: sink.kafka.bootstrap: unknown key; known here are <sink.kafka>"},
		{"unknown variable of kafka", source + "sink: {kafka: {}}\n", "CDC_RELAY_SINK__KAFKA__BROKER=a", "CDC_RELAY_SINK__KAFKA__BROKER: unknown override; the nearest known one is CDC_RELAY_SINK__KAFKA__BROKERS"},

		{"retry attempts", base + "retry: {max_attempts: 0}\n", "", `relay.yaml:3:23: retry.max_attempts: is "0", want a whole number from 1 to 1000000`},
		{"retry backoff", base + "retry: {backoff: 0s}\n", "", `relay.yaml:3:18: retry.backoff: is "0s", want a duration with its unit from 10ms to 24h, such as 20s`},
		{"backoff over its bound", base + "retry: {backoff: 11m}\n", "", "relay.yaml:3:18: retry.backoff: max_backoff 10m is shorter than backoff 11m, which it bounds"},
		{"backoff bound", base + "retry: {backoff: 1s, max_backoff: 500ms}\n", "", "relay.yaml:3:35: retry.max_backoff: max_backoff 500ms is shorter than backoff 1s, which it bounds"},
		{"destination age", base + "retry: {destination_max_age: -1h}\n", "", `relay.yaml:3:30: retry.destination_max_age: is "-1h", want a duration with its unit from 0s to 87600h, such as 20s`},
		{"on dead letter", base + "dead_letters: {on_dead_letter: drop}\n", "", `relay.yaml:3:32: dead_letters.on_dead_letter: is "drop", want one of continue, block`},
		{"retention mode", base + "retention: {mode: drop}\n", "", `relay.yaml:3:19: retention.mode: is "drop", want one of none, delete`},
		{"retention without a table", "source: {url: \"postgres://localhost/shop\", message_prefix: m, tables: []}\nsink: {stdout: {}}\nretention: {mode: delete}\n", "", `relay.yaml:3:19: retention.mode: is "delete", and source.tables names no table: there is nothing to delete`},
		{"retention keep", base + "retention: {keep: -1h}\n", "", `relay.yaml:3:19: retention.keep: is "-1h", want a duration with its unit from 0s to 87600h, such as 20s`},
		{"keep", base + "dead_letters: {keep: 0}\n", "", `relay.yaml:3:22: dead_letters.keep: is "0", want a duration with its unit from 1s to 87600h, such as 20s`},
		{"mirror of the other broker", base + "dead_letters: {mirror: {topic: t}}\n", "", "relay.yaml:3:32: dead_letters.mirror.topic: is Kafka's; with sink.rabbitmq the mirror is dead_letters.mirror.exchange and routing_key"},
		{"mirror of a template", base + "dead_letters: {mirror: {exchange: \"{aggregate}.dlx\"}}\n", "", `relay.yaml:3:35: dead_letters.mirror.exchange: is "{aggregate}.dlx", want a plain name, not a template: all dead letters are mirrored to one place`},
		{"long mirror", base + "dead_letters: {mirror: {routing_key: " + strings.Repeat("k", 256) + "}}\n", "", "relay.yaml:3:38: dead_letters.mirror.routing_key: has 256 bytes, the most it may have is 255"},
		{"mirror of Kafka", source + "sink: {kafka: {}}\ndead_letters: {mirror: {exchange: x}}\n", "", "relay.yaml:3:35: dead_letters.mirror.exchange: is RabbitMQ's; with sink.kafka the mirror is dead_letters.mirror.topic"},
		{"mirror topic", source + "sink: {kafka: {}}\ndead_letters: {mirror: {topic: a/b}}\n", "", `relay.yaml:3:32: dead_letters.mirror.topic: is "a/b"; a topic's name has only letters, digits, '.', '_' and '-'`},
		{"mirror of stdout", source + "sink: {stdout: {}}\ndead_letters: {mirror: {topic: t}}\n", "", "relay.yaml:3:32: dead_letters.mirror.topic: has no effect with sink.stdout, which has no second place; leave it out"},
		{"mirror as a name", base + "dead_letters: {mirror: dlx}\n", "", "relay.yaml:3:24: dead_letters.mirror: wants a mapping of keys (<dead_letters.mirror>), has a single value"},
		{"payloads of a doubtful kind", base + "admin: {show_payloads: no}\n", "", `relay.yaml:3:24: admin.show_payloads: is "no", want true or false`},

		{"admin address", base + "admin: {listen: 8464}\n", "", `relay.yaml:3:17: admin.listen: is "8464", want host:port, such as 127.0.0.1:8464`},
		{"admin port", base + "admin: {listen: \"localhost:99999\"}\n", "", `relay.yaml:3:17: admin.listen: is "localhost:99999"…`},
		{"metrics on the same port", base + "admin: {listen: \"h:1\", metrics_listen: \"h:1\"}\n", "", "relay.yaml:3:40: admin.metrics_listen: is the address of admin.listen; want another port, or leave it out"},
		{"advertised without a scheme", base + "admin: {advertise: \"relay-0:8464\"}\n", "", `relay.yaml:3:20: admin.advertise: is "relay-0:8464", want http(s)://HOST:PORT, such as https://relay-0.internal:8464`},
		{"advertised with a password", base + "admin: {advertise: \"https://a:b@relay-0\"}\n", "", `relay.yaml:3:20: admin.advertise: is "…`},
		{"advertised with a query", base + "admin: {advertise: \"https://relay-0/?a\"}\n", "", `relay.yaml:3:20: admin.advertise: is "…`},
		{"advertised as a script", base + "admin: {advertise: \"javascript:alert(1)\"}\n", "", `relay.yaml:3:20: admin.advertise: is "…`},
		{"advertised at length", base + "admin: {advertise: https://" + strings.Repeat("s", 250) + "}\n", "", "relay.yaml:3:20: admin.advertise: is longer than 255 bytes"},
		{"long socket", base + "admin: {socket: /" + strings.Repeat("s", 107) + "}\n", "", "relay.yaml:3:17: admin.socket: is longer than 107 bytes, the most a Unix socket's path may have"},
		{"key without a certificate", base + "admin: {tls: {key: k}}\n", "", "relay.yaml:3:20: admin.tls.key: has no effect: admin.tls.cert is not set"},
		{"one token", base + "admin: {tokens: t}\n", "", "relay.yaml:3:17: admin.tokens: wants a list of {name, role, value}, has a single value"},
		{"token without a role", base + "admin: {tokens: [{name: a, value: 0123456789abcdef}]}\n", "", "relay.yaml:3:18: admin.tokens[0]: wants name, role and value"},
		{"token of no role", base + "admin: {tokens: [{name: a, role: admin, value: 0123456789abcdef}]}\n", "", `relay.yaml:3:34: admin.tokens[0].role: is "admin", want one of read, operate`},
		{"short token", base + "admin: {tokens: [{name: a, role: read, value: short}]}\n", "", "relay.yaml:3:47: admin.tokens[0].value: is shorter than 16 characters"},
		{"token from an empty variable", base, "TOKEN=;CDC_RELAY_ADMIN__TOKENS=a:read:${TOKEN}", "CDC_RELAY_ADMIN__TOKENS: admin.tokens[0].value: is shorter than 16 characters"},
		{"token twice", base + "admin: {tokens: [{name: a, role: read, value: 0123456789abcdef}, {name: a, role: read, value: 0123456789abcdef}]}\n", "", `relay.yaml:3:66: admin.tokens[1]: is "a", the name of another token too`},
		{"token of a variable in the wrong order", base, "CDC_RELAY_ADMIN__TOKENS=a:S3cret/secret-secret:read-read-read-read", "CDC_RELAY_ADMIN__TOKENS: admin.tokens[0].role: is not shown; want one of read, operate"},
		{"token of a variable without a name", base, "CDC_RELAY_ADMIN__TOKENS=S3cret/secret-secret:read:0123456789abcdef", "CDC_RELAY_ADMIN__TOKENS: admin.tokens[0].name: is not shown; want 1 to 64 of a-z, A-Z, 0-9, dot, _ and -"},
		{"token of a variable for its name", base + "admin: {tokens: [{name: \"${T}\", role: read, value: 0123456789abcdef}]}\n", "T=S3cret/secret-secret", "relay.yaml:3:25: admin.tokens[0].name: is not shown; want 1 to 64 of a-z, A-Z, 0-9, dot, _ and -"},
		{"token of a variable twice", base, "CDC_RELAY_ADMIN__TOKENS=S3cret:read:0123456789abcdef,S3cret:read:0123456789abcdef", "CDC_RELAY_ADMIN__TOKENS: admin.tokens[1]: is not shown; the name of another token too"},
		{"token of an odd name", base + "admin: {tokens: [{name: \"a b\", role: read, value: 0123456789abcdef}]}\n", "", `relay.yaml:3:25: admin.tokens[0].name: is "a b", want 1 to 64 of a-z, A-Z, 0-9, dot, _ and -`},
		{"log level", base + "log: {level: trace}\n", "", `relay.yaml:3:14: log.level: is "trace", want one of debug, info, warn, error`},

		{"unknown variable", base, "CDC_RELAY_SINK__RABBITMQ__URI=x", "CDC_RELAY_SINK__RABBITMQ__URI: unknown override; the nearest known one is CDC_RELAY_SINK__RABBITMQ__URL"},
		{"variable of nothing that is known", base, "CDC_RELAY_LOG__WEATHER=red", "CDC_RELAY_LOG__WEATHER: unknown override: there is no key log.weather"},
		{"variable in lower case", base, "CDC_RELAY_LOG__level=debug", "CDC_RELAY_LOG__level: unknown override; the nearest known one is CDC_RELAY_LOG__LEVEL"},
		{"variable out of range", base, "CDC_RELAY_DELIVERY__LANES=0", `CDC_RELAY_DELIVERY__LANES: delivery.lanes: is "0", want a whole number from 1 to 1024`},
		{"header variable without column", base, "CDC_RELAY_OUTBOX__HEADERS=tenant", "CDC_RELAY_OUTBOX__HEADERS: outbox.headers.tenant: wants the name of a column"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var env []string
			if c.env != "" {
				env = strings.Split(c.env, ";")
			}
			_, err := load(t, c.content, env...)
			got := faultsOf(t, err)
			want, open := strings.CutSuffix(withKeys(c.want), "…")
			if len(got) != 1 || open && !strings.HasPrefix(got[0], want) || !open && got[0] != want {
				t.Errorf("got  %q\nwant %q", got, want)
			}
			if strings.Contains(strings.ReplaceAll(strings.Join(got, ""), "client_secret", ""), "secret") {
				t.Errorf("%q shows a password", got)
			}
			if c.env == "" && structural.MatchString(c.want) && schemaTakes(t, c.content) == nil {
				t.Errorf("the schema takes what is %s", c.want)
			}
		})
	}
}

// withKeys is a fault with the names of a section's keys in the place of <section>: a new key
// changes none of these tests.
func withKeys(fault string) string {
	return regexp.MustCompile(`<[a-z._]*>`).ReplaceAllStringFunc(fault, func(section string) string {
		return strings.Join(keysIn(strings.Trim(section, "<>")), ", ")
	})
}

// A header is refused where the relay writes one of that name itself: the names differ by sink.
func TestReservedHeaders(t *testing.T) {
	reservedBySink := map[string][]string{"sink.rabbitmq": drivers.ByName("rabbitmq").Reserved, "sink.kafka": drivers.ByName("kafka").Reserved}
	for kind := range reservedBySink {
		with := "source: {url: postgres://h/d}\nsink: {" + strings.TrimPrefix(kind, "sink.") + ": {}}\n"
		for _, name := range slices.Concat([]string{"cdc_position", "cdc_replay", "traceparent", "x-retry-count"}, reservedBySink[kind]) {
			_, err := load(t, with+"outbox: {headers: {"+name+": a}}\n")
			if got := faultsOf(t, err); len(got) != 1 || !strings.HasPrefix(got[0], "relay.yaml:3:20: outbox.headers."+name+": is a header that the relay writes") {
				t.Errorf("%s, %s: got %q", kind, name, got)
			}
		}
		for other, names := range reservedBySink {
			for _, name := range names {
				if _, err := load(t, with+"outbox: {headers: {"+name+": a}}\n"); other != kind && err != nil {
					t.Errorf("%s, %s: got %v, want no fault", kind, name, err)
				}
			}
		}
	}
}

// All faults are reported at once: of the file in its order, then of the variables, then what is
// missing.
func TestEveryFaultAtOnce(t *testing.T) {
	_, err := load(t, "delivery: {lanes: 0}\nmax_in_flight: 1\nlog:\n  level: x\n  weather: true\n", "CDC_RELAY_LOG__FORMAT=xml")
	want := []string{
		`relay.yaml:1:19: delivery.lanes: is "0", want a whole number from 1 to 1024`,
		"relay.yaml:2:1: max_in_flight: unknown key; known here are <>; elsewhere there is delivery.max_in_flight",
		`relay.yaml:4:10: log.level: is "x", want one of debug, info, warn, error`,
		"relay.yaml:5:3: log.weather: unknown key; known here are <log>",
		`CDC_RELAY_LOG__FORMAT: log.format: is "xml", want one of auto, json, console`,
		"sink: none is configured; want exactly one of rabbitmq, kafka, stdout",
		"source.url: is not set, and neither is PGHOST, PGSERVICE or PGDATABASE",
	}
	for i := range want {
		want[i] = withKeys(want[i])
	}
	if got := faultsOf(t, err); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if text := err.Error(); strings.Count(text, "\n") != len(want) || !strings.HasPrefix(text, "the configuration cannot be used: 7 faults\n  relay.yaml:1") {
		t.Errorf("the error is %q, want a count and a line each", text)
	}
}

// Whatever the file is, Load answers: it never panics.
func FuzzLoad(f *testing.F) {
	for _, seed := range []string{base, "a: &a [*a]", "? x\n: y", "<<: {a: b}", "- - -", "a:\n- b\n c", "source: {tables: [{name: }]}", "outbox: {headers: {1: [a], true: b}}", "%YAML 1.2\n---\n!!map {a: b}", "source: |\n  x\n", "sink: {kafka: {brokers: [[a], 'b,c']}}", "\x00", "'", "${", "sink: {rabbitmq: {url: ${}}}", "sink: {kafka: {brokers: [a:1, b: , 'c':1, d:[e], ü:2]}}"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, content string) {
		l := newLoader(nil)
		l.file("relay.yaml", []byte(content))
		l.assign()
		l.validate()
	})
}
