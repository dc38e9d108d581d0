// The rules that say what becomes of each of Debezium's properties. docs/reference.md is made of
// the same rules, so the page cannot differ from what import does.

package importer

import (
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/cdc-relay/cdc-relay/internal/debezium"
)

// rule says how some properties are converted. Names are properties of Kafka Connect; Debezium
// Server's without debezium.source., and sink., format., transforms. and predicates. without
// debezium.; producer. is Connect's producer.override. and the server's sink.kafka.producer.;
// router. is transforms.NAME. of the Outbox Event Router. A * at the end, or between dots, is any
// text.
type rule struct {
	names   []string
	verdict Verdict
	target  string // our key
	why     string // for the report and for docs/reference.md
	warning bool
	convert conversion // nil means that the verdict is the same for every value
}

// conversion looks at a property's value and may write keys of the relay's. A non-empty Verdict in
// the entry it returns replaces the rule's verdict, target and warning; its Why and Warning count
// also without one.
type conversion func(r *Result, p *property) Entry

// honoured makes a rule for properties that have a key of the relay's.
func honoured(target, why string, names ...string) rule {
	return rule{names: names, verdict: Honoured, target: target, why: why}
}

// superseded makes a rule for properties that have no effect on the relay, and need none.
func superseded(why string, names ...string) rule {
	return rule{names: names, verdict: Superseded, why: why}
}

// impossible makes a rule for properties that are refused.
func impossible(why string, names ...string) rule {
	return rule{names: names, verdict: Cannot, why: why}
}

// oldName makes a rule for names of Debezium 1, which later versions ignore.
func oldName(newer string, names ...string) rule {
	return impossible("a name of Debezium 1: write "+newer+" in its place, or leave it out, if yours is newer and ignores it", names...)
}

// warned makes a rule of another one: its reason is shown as a warning.
func warned(of rule) rule {
	of.warning = true
	return of
}

// when makes a rule of another one: the conversion looks at the value.
func when(of rule, convert conversion) rule {
	of.convert = convert
	return of
}

// oneOf makes a rule of another one: it accepts the listed values, separated by |, and refuses
// others. noOthers says why, for the report.
func oneOf(of rule, values, noOthers string) rule { return when(of, allowed(values, noOthers)) }

// fits reports whether a name matches a pattern in which * is any text.
func fits(pattern, name string) bool {
	fits, err := path.Match(pattern, name)
	return err == nil && fits
}

const (
	compatOptions = "sink.compat.options"
	sourceURL     = "source.url"
	rabbitURL     = "sink.rabbitmq.url"
	kafkaSASL     = "sink.kafka.sasl"
	kafkaTLS      = "sink.kafka.tls"

	noClasses      = "there are no Java classes here"
	noExactlyOnce  = "nothing is exactly once here: at least once, and each event has its id"
	noOthersMove   = "nobody else may move the slot"
	noPredicates   = "the relay has no predicates: in the file that you import, leave this out and only the outbox in table.include.list, and give tables whose change events you need a connector, slot and publication of their own"
	kafkaProvider  = "org.apache.kafka.common.config.provider."
	otherProvider  = "as which this importer reads references of that name"
	noSchemas      = "would show in the schemas of JsonConverter; leave it out if no key, value or header carries one (schemas.enable: false; Debezium Server's headers do by default)"
	keyPassword    = "is the password of a key, and the relay reads keys without one: openssl pkey -in KEY -out KEY.pem"
	leftOutHeaders = "the four headers __debezium.context.*, which Debezium 3.2 and later puts on each record, are not sent: see that no consumer reads them"
)

// chapter is a heading of docs/reference.md with its rules.
type chapter struct {
	title  string
	only   string // the profile whose files it is for; "" means both
	prefix string // the prefix of all names in its rules
	rules  []rule
}

// chapters returns all rules in the order of docs/reference.md. The first rule that fits a name
// counts.
var chapters = sync.OnceValue(func() []chapter {
	all := []chapter{
		{"The connector and its database", "", "", []rule{
			oneOf(honoured("source", "only PostgreSQL's; connectors of other databases: cannot", "connector.class"), "io.debezium.connector.postgresql.PostgresConnector|PostgresConnector|Postgres", "this relay reads PostgreSQL"),
			superseded("the relay is named by its slot", "name"),
			superseded("one slot has one reader, here as there", "tasks.max", "tasks.max.enforce"),
			superseded("PostgreSQL's connector does not read it", "database.server.id", "database.history", "database.history.*"),
			honoured(sourceURL, "", "database.hostname", "database.port", "database.user", "database.dbname"),
			when(honoured("source.password", "a reference stays one; for a plain password, which is not copied, there is a variable", "database.password"), secret("source.password", "POSTGRES_PASSWORD")),
			oneOf(honoured(sourceURL, "disable, allow, prefer, require, verify-ca and verify-full", "database.sslmode"), "disable|allow|prefer|require|verify-ca|verify-full", ""),
			when(honoured(sourceURL, "a PEM file in both; keys in other forms: cannot, with the line that converts them", "database.sslcert", "database.sslrootcert", "database.sslkey"), pemFile("")),
			impossible(keyPassword, "database.sslpassword"),
			oneOf(superseded("org.postgresql.ssl.LibPQFactory is what the relay does; another class: cannot, there are no Java classes here", "database.sslfactory"), "org.postgresql.ssl.LibPQFactory|", noClasses),
			superseded("the relay's connections keep themselves alive", "database.tcpKeepAlive", "database.tcpkeepalive"),
			impossible("the relay sends no statements of its own at the start of a connection; ALTER ROLE … SET does the same for the role", "database.initial.statements"),
			superseded("every question to the database has its own bound", "database.query.timeout.ms", "connection.validation.timeout.ms", "database.connection.timeout.ms"),
			impossible(noClasses, "database.connection.factory.class"),
		}},
		{"Slot, publication, position", "", "", []rule{
			superseded("the relay's own slot is of pgoutput, and takes the place of a slot of any plugin", "plugin.name"),
			superseded("`cdc-relay takeover --from-slot NAME` moves from Debezium's slot to one of the relay's own, cdc_relay", "slot.name"),
			oneOf(superseded("the relay never drops a slot at its stop; true: cannot, Debezium would drop the slot at its stop", "slot.drop.on.stop"),
				"false", "stopping Debezium would drop the slot that the relay is to take over: set it to false there, restart Debezium, then import"),
			superseded("the slot exists, and has this property or not", "slot.failover"),
			superseded("the relay waits for its slot, and for PostgreSQL, as long as it takes", "slot.max.retries", "slot.retry.delay.ms"),
			oneOf(superseded("origin=any is what the relay asks for; other parameters: cannot", "slot.stream.params"), "origin=any|", "the relay asks for no other parameters"),
			when(honoured("source.publication", "Debezium's own publication (default `dbz_publication`)", "publication.name"), publication),
			superseded("the publication exists and is used as it is: all tables, all operations, rows that are deleted in their own transaction", "publication.autocreate.mode", "replica.identity.autoset.values"),
			superseded("the publication exists, and has this property or not. For a partitioned outbox the relay needs it, and `cdc-relay check` says how to turn it on", "publish.via.partition.root"),
			warned(superseded("PostgreSQL's keepalives move the slot while nothing happens; there are no heartbeat messages", "heartbeat.interval.ms")),
			warned(superseded("an idle outbox moves its slot without it; if anything else needs the rows that it writes, run it elsewhere", "heartbeat.action.query")),
			warned(superseded("no heartbeat messages are sent to that topic", "topic.heartbeat.prefix", "topic.heartbeat.name", "heartbeat.topics.prefix")),
			superseded("the relay reports its position whenever it moves", "status.update.interval.ms", "xmin.fetch.interval.ms", "lsn.flush.timeout.ms", "lsn.flush.timeout.action"),
			oneOf(superseded("the slot moves behind the broker's confirms; manual: cannot, nobody else may move it", "lsn.flush.mode"), "connector|connector_and_driver", noOthersMove),
			oneOf(superseded("true: as lsn.flush.mode connector; false: cannot, as manual", "flush.lsn.source"), "true", noOthersMove),
			superseded("the slot is the only offset", "offset.mismatch.strategy", "offset.storage", "offset.storage.*", "offset.commit.policy", "offset.flush.timeout.ms", "offsets.storage.topic"),
			superseded("the slot is the only offset; what Debezium sent within this time before it was stopped hard may arrive twice", "offset.flush.interval.ms"),
			superseded("these bound how Debezium connects and reads", "schema.refresh.mode", "streaming.delay.ms", "executor.shutdown.timeout.ms", "read.only"),
		}},
		{"Tables, columns, snapshots", "", "", []rule{
			honoured("source.tables", "names of tables, `public.outbox` or `public\\.outbox`, spelled as in the catalogue: upper and lower case are the same to Debezium alone. Patterns: cannot, name the tables", "table.include.list"),
			when(superseded("without effect next to table.include.list; alone: cannot, it does not name the outbox. Debezium 1 took its tables from table.whitelist", "table.exclude.list", "schema.include.list", "schema.exclude.list", "table.whitelist", "table.blacklist", "schema.whitelist", "schema.blacklist"), otherList),
			superseded("the tables are named", "table.ignore.builtin", "database.include.list", "database.exclude.list"),
			impossible("columns are sent as they are; leave it out if it touches none that the Event Router uses", "column.include.list", "column.exclude.list", "column.mask.*", "column.truncate.*"),
			superseded("the Event Router makes the key", "message.key.columns"),
			impossible(noSchemas, "column.propagate.source.type", "datatype.propagate.source.type"),
			oneOf(superseded("comments of columns do not show; true: cannot, it "+noSchemas, "include.schema.comments"), "false", "it "+noSchemas),
			superseded("the outbox has no UPDATE to compare", "skip.messages.without.change"),
			when(superseded("the relay sends only INSERTs; with c among them: cannot, Debezium sends nothing then", "skipped.operations"), skipped),
			oneOf(superseded("no_data, never and initial (the default): the slot exists, and the relay streams from it; others: cannot, rows from before the slot are not read",
				"snapshot.mode"), "no_data|never|initial", "the relay reads no rows that were there before the slot; set it to no_data there first"),
			superseded("there is no snapshot", "snapshot.*", "legacy.snapshot.max.threads", "incremental.snapshot.*"),
		}},
		{"Rates, retries, errors", "", "", []rule{
			superseded("the relay waits for nothing: an event is sent when its commit arrives", "poll.interval.ms", "poll.dispatch.interval.ms", "max.batch.size", "query.fetch.size"),
			when(honoured("delivery.max_in_flight", "events in flight, 1 to 10,000,000", "max.queue.size"), amount("delivery.max_in_flight", 1, 10_000_000, "")),
			when(honoured("delivery.max_in_flight_bytes", "64 KiB to 64 GiB; 0, no bound: superseded, the relay is always bounded", "max.queue.size.in.bytes"), amount("delivery.max_in_flight_bytes", 64<<10, 64<<30, "")),
			superseded("PostgreSQL and the broker are waited for as long as it takes", "errors.max.retries", "errors.retry.delay.initial.ms", "errors.retry.delay.max.ms", "errors.retry.timeout", "retriable.restart.connector.wait.ms"),
			oneOf(honoured("dead_letters", "a record that cannot be made or sent becomes a dead letter; in Debezium none stops the connector, all drops the record", "errors.tolerance"), "none|all", ""),
			superseded("each refused event is in the log and in `cdc-relay dead-letters`", "errors.log.enable", "errors.log.include.messages"),
			superseded("Connect has it for sink connectors only: it did nothing; refused events are in `cdc-relay dead-letters`", "errors.deadletterqueue.*"),
			oneOf(honoured("dead_letters", "fail, warn, skip: a row that cannot be read waits or becomes a dead letter, and is never dropped",
				"event.processing.failure.handling.mode", "event.converting.failure.handling.mode"), "fail|warn|skip", ""),
		}},
		{"What shows in records", "", "", []rule{
			honoured(compatOptions, "names the schemas of records that carry one", "topic.prefix"),
			when(superseded("without effect next to topic.prefix; alone, as in Debezium 1, it is taken for it: a warning", "database.server.name"), serverName),
			honoured(compatOptions, "", "binary.handling.mode", "time.precision.mode", "decimal.handling.mode", "schema.name.adjustment.mode"),
			superseded("the connector's renames columns, which have their own names here; members of expanded payloads are renamed by the Event Router's option of this name", "field.name.adjustment.mode"),
			when(superseded("false: neither sends headers `__debezium.context.*`; true or absent: a warning, Debezium 3.2 and later adds four of them to each record, and the relay none", "extended.headers.enabled"), extendedHeaders),
			superseded("no column of such a type is an event's", "hstore.handling.mode", "interval.handling.mode", "money.fraction.digits", "include.unknown.datatypes"),
			superseded("a row that is inserted has all its values", "unavailable.value.placeholder"),
			superseded("the Event Router sends neither deletions nor tombstones for them", "tombstones.on.delete"),
			oneOf(superseded("the Event Router makes the topic; others than the default: cannot, they show in the name of the value's schema", "topic.naming.strategy"), "io.debezium.schema.SchemaTopicNamingStrategy", "another "+noSchemas),
			oneOf(superseded("as topic.naming.strategy", "topic.delimiter"), ".", "another "+noSchemas),
			superseded("the source block and the schema of change events do not reach the Event Router's records", "sourceinfo.struct.maker", "sanitize.field.names"),
		}},
		{"Other parts of the connector", "", "", []rule{
			oneOf(superseded("there are no transaction records; true: cannot, they are not sent", "provide.transaction.metadata"), "false", "the records about transactions are not sent"),
			superseded("there are no transaction records", "transaction.metadata.factory", "topic.transaction"),
			superseded("logical messages are not sent", "message.prefix.exclude.list"),
			impossible("logical messages, which Debezium sends to a topic of their own, are not sent", "message.prefix.include.list"),
			warned(superseded("signals ask for snapshots, of which there are none; the table of signals is left out of source.tables", "signal.*")),
			oneOf(superseded("channels log and jmx; sink: cannot, notifications are not sent", "notification.enabled.channels"), "log|jmx|log,jmx|jmx,log|", "notifications are not sent"),
			superseded("the relay's state is in its log, its metrics and `cdc-relay status`", "notification.*"),
			superseded("PostgreSQL's connector has no history of schemas", "schema.history.*", "schema.history", "include.schema.changes"),
			oneOf(superseded("there is no lineage; true: cannot", "openlineage.integration.enabled"), "false", "lineage is not sent"),
			superseded("there is no lineage", "openlineage.*"),
			superseded("the relay has its own metrics", "statistics.metrics.enabled", "custom.metric.tags"),
			impossible(noClasses, "converters", "post.processors", "queue.provider.type"),
			superseded("the events in flight are bounded by delivery.max_in_flight", "topic.cache.size", "guardrail.collections.*"),
			oneOf(superseded("Kafka's own; another class: cannot", "config.providers.file.class"), kafkaProvider+"FileConfigProvider", otherProvider),
			oneOf(superseded("Kafka's own; another class: cannot", "config.providers.env.class"), kafkaProvider+"EnvVarConfigProvider", otherProvider),
			oneOf(superseded("Kafka's own; another class: cannot", "config.providers.dir.class", "config.providers.directory.class"), kafkaProvider+"DirectoryConfigProvider", otherProvider),
			superseded("references to files and variables are followed; others: cannot, where they are used", "config.providers", "config.providers.*"),
			superseded("the relay's threads are its own; order is kept", "record.processing.*", "task.management.timeout.ms"),
		}},
		{"Outbox Event Router", "", "router.", []rule{
			honoured("sink.compat.profile", "", "type"),
			honoured(compatOptions, "verbatim, as the option of the same name. A Java regular expression that needs what RE2 lacks (look-around, back-references, possessive quantifiers, atomic groups): cannot, by name",
				"table.field.event.id", "table.field.event.key", "table.field.event.payload", "table.field.event.timestamp",
				"table.field.event.schema.version", "table.fields.additional.placement", "table.field.additional.missing", "table.expand.json.payload", "table.json.payload.null.behavior",
				"table.json.payload.empty.array.behavior", "field.name.adjustment.mode", "route.by.field", "route.topic.regex", "route.topic.replacement", "route.tombstone.on.empty.payload"),
			impossible("a name of Debezium before 3.6: write table.field.additional.missing in its place, error for true and ignore for false", "table.fields.additional.error.on.missing"),
			warned(superseded("these do something only with OpenTelemetry's agent beside Debezium, which puts a header `traceparent` on records; the relay adds no header with a profile",
				"tracing.span.context.field", "tracing.operation.name", "tracing.with.context.field.only")),
			superseded("Debezium reads it nowhere; the type is sent by table.fields.additional.placement", "table.field.event.type"),
			warned(superseded("an UPDATE of the outbox is ignored, and stops nothing", "table.op.invalid.behavior", "debezium.op.invalid.behavior")),
			oldName("table.expand.json.payload", "debezium.expand.json.payload"),
			when(oldName("table.field.event.key", "table.field.event.payload.id"), payloadID),
			when(impossible(noPredicates+". One that fits all tables of table.include.list is superseded", "predicate", "negate"), predicate),
		}},
		{"Transforms and predicates", "", "", []rule{
			when(honoured("sink.compat", "only the Outbox Event Router; any other transform: cannot", "transforms"), withRouter),
			when(impossible("only the Outbox Event Router exists here: the relay sends what it makes of the row. If consumers do without this transform, leave it out of `transforms`", "transforms.*"), otherTransform),
			superseded("what they are for is decided where they are used", "predicates", "predicates.*"),
		}},
		{"Converters", debezium.Connect, "", []rule{
			when(honoured(compatOptions, "StringConverter, JsonConverter, ByteArrayConverter and BinaryDataConverter (its delegate: String or Json); header.converter: SimpleHeaderConverter, JsonConverter, StringConverter. Avro, Protobuf, CloudEvents and others: cannot. Without them the worker's count: `--worker-config`",
				"key.converter", "value.converter", "header.converter"), converterClass),
			superseded("a matter of Java's memory", "key.converter.schemas.cache.size", "value.converter.schemas.cache.size", "header.converter.schemas.cache.size"),
			superseded("of a registry of schemas: decided with the converter's class", "*.converter.*schema.registry.*", "*.converter.*apicurio.*", "*.converter.*basic.auth.*", "*.converter.*auto.register.schemas", "*.converter.*use.latest.version"),
			honoured(compatOptions, "the options of these converters, verbatim", "key.converter.*", "value.converter.*", "header.converter.*"),
			superseded("Connect has no such property since Kafka 3.0", "internal.key.converter", "internal.value.converter", "internal.*.converter.*"),
		}},
		{"Formats", debezium.Server, "format.", []rule{
			honoured(compatOptions, "json, jsonbytearray, simplestring, binary and clientprovided as far as the profile has them; avro, protobuf, cloudevents, connect: cannot", "key", "value", "header", "header.class", "key.class", "value.class"),
			honoured(compatOptions, "", "schemas.enable", "key.schemas.enable", "value.schemas.enable", "header.schemas.enable"),
			superseded("of a registry of schemas: decided with the format", "*schema.registry.*", "*apicurio.*"),
			honoured(compatOptions, "the options of these formats, verbatim", "*"),
		}},
		{"Kafka producer", "", "producer.", []rule{
			honoured("sink.kafka.brokers", "a connector's are its worker's: `--worker-config`", "bootstrap.servers"),
			superseded("always `all`", "acks"),
			when(honoured("sink.kafka.compression", "none, gzip, snappy, lz4, zstd", "compression.type"), lower("sink.kafka.compression", "none|gzip|snappy|lz4|zstd", "")),
			superseded("records are gathered while a request is on its way, without waiting", "linger.ms", "batch.size", "buffer.memory", "compression.*"),
			superseded("the broker's limit counts; a larger record becomes a dead letter", "max.request.size"),
			superseded("always idempotent, and repeated until the broker answers", "enable.idempotence", "retries", "max.in.flight.requests.per.connection", "retry.backoff.ms", "retry.backoff.max.ms",
				"delivery.timeout.ms", "request.timeout.ms", "max.block.ms"),
			superseded("the bytes are made by the profile", "key.serializer", "value.serializer"),
			superseded("a matter of Java's client", "client.id", "client.rack", "client.dns.lookup", "metadata.*", "reconnect.*", "connections.*", "socket.*", "send.buffer.bytes", "receive.buffer.bytes",
				"metric.*", "metrics.*", "auto.include.jmx.reporter", "enable.metrics.push", "security.providers", "partitioner.adaptive.*", "partitioner.availability.*"),
			oneOf(superseded("Kafka's own partitioner is what the profile does; another class: cannot", "partitioner.class"), "org.apache.kafka.clients.producer.internals.DefaultPartitioner|", noClasses),
			oneOf(superseded("keys choose the partition; true: cannot, they would not", "partitioner.ignore.keys"), "false", "keys would not choose the partition"),
			impossible(noClasses, "interceptor.classes"),
			impossible("the relay has no transactions: at least once, each event with its id", "transactional.id", "transaction.timeout.ms"),
			oneOf(honoured(kafkaTLS+".enabled, "+kafkaSASL, "PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL", "security.protocol"), "PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL", ""),
			when(honoured(kafkaSASL+".mechanism", "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, AWS_MSK_IAM; GSSAPI (Kafka's default): cannot", "sasl.mechanism"), onlyWith("SASL", allowed("PLAIN|SCRAM-SHA-256|SCRAM-SHA-512|OAUTHBEARER|AWS_MSK_IAM", noLogin))),
			when(honoured(kafkaSASL, "username and password of PlainLoginModule and ScramLoginModule; clientId, clientSecret, scope and extension_ of OAuthBearerLoginModule; awsRoleArn of IAMLoginModule; other options and modules: cannot",
				"sasl.jaas.config"), onlyWith("SASL", jaas)),
			when(superseded("OAuthBearerLoginCallbackHandler, IAMClientCallbackHandler and IAMOAuthBearerLoginCallbackHandler are what the relay does; other classes: cannot",
				"sasl.login.callback.handler.class", "sasl.client.callback.handler.class"), onlyWith("SASL", callbackClass)),
			when(honoured(oauthKey+".token_url", "", "sasl.oauthbearer.token.endpoint.url"), onlyTokens(endpoint)),
			when(honoured(oauthKey+".client_id", "", "sasl.oauthbearer.client.credentials.client.id"), onlyTokens(copied(oauthKey+".client_id"))),
			when(honoured(oauthKey+".client_secret", "as database.password", "sasl.oauthbearer.client.credentials.client.secret"), onlyTokens(secret(oauthKey+".client_secret", clientSecret))),
			when(honoured(oauthKey+".scopes", "", "sasl.oauthbearer.scope"), onlyTokens(scopes)),
			superseded("tokens are renewed before they end, and handed on as they are", "sasl.login.refresh.*", "sasl.login.retry.*", "sasl.login.connect.timeout.ms", "sasl.login.read.timeout.ms", "sasl.oauthbearer.*.claim.name"),
			when(impossible("has no counterpart here; "+noLogin, "sasl.*"), onlyWith("SASL", func(*Result, *property) Entry { return Entry{} })),
			when(honoured(kafkaTLS+".ca", "PEM; JKS and PKCS#12: cannot, with the line that converts it", "ssl.truststore.location"), onlyWith("SSL", pemFile(kafkaTLS+".ca"))),
			when(honoured(kafkaTLS+".cert", "PEM, certificate and key in one file; JKS and PKCS#12: cannot, with the line that converts it", "ssl.keystore.location"), onlyWith("SSL", pemFile(kafkaTLS+".cert"))),
			superseded("decided with the file", "ssl.truststore.type", "ssl.keystore.type", "ssl.truststore.password", "ssl.keystore.password"),
			impossible("write the certificates and keys to a file, and name it in sink.kafka.tls", "ssl.truststore.certificates", "ssl.keystore.certificate.chain", "ssl.keystore.key"),
			impossible(keyPassword, "ssl.key.password"),
			warned(superseded("the name in the certificate is always verified: sink.kafka.tls.server_name, if it is another than the brokers'", "ssl.endpoint.identification.algorithm")),
			impossible(noClasses, "ssl.engine.factory.class"),
			superseded("TLS 1.2 and newer, Go's own", "ssl.protocol", "ssl.provider", "ssl.cipher.suites", "ssl.enabled.protocols", "ssl.keymanager.algorithm", "ssl.trustmanager.algorithm", "ssl.secure.random.implementation"),
		}},
		{"RabbitMQ", debezium.Server, "sink.rabbitmq.", []rule{
			when(honoured(rabbitURL, "an amqp:// or amqps:// address, without connection.host and the like", "connection.uri"), rabbitURI),
			honoured(rabbitURL, "", "connection.host", "connection.port", "connection.virtual.host"),
			when(honoured("sink.rabbitmq.username", "", "connection.username"), copied("sink.rabbitmq.username")),
			when(honoured("sink.rabbitmq.password", "as database.password", "connection.password"), secret("sink.rabbitmq.password", "RABBITMQ_PASSWORD")),
			when(honoured(rabbitURL, "amqps://. Debezium verifies no certificate by default; the relay always does: sink.rabbitmq.tls.ca", "connection.ssl.enabled"), rabbitTLS),
			superseded("the certificate and the name in it are always verified", "connection.ssl.validate.server.certificate", "connection.ssl.verify.hostname", "connection.ssl.algorithm"),
			when(impossible("a store of Java's: PEM has to be made of it, with the line that the report has, for sink.rabbitmq.tls", "connection.ssl.key.store", "connection.ssl.trust.store"), pemFile("")),
			superseded("decided with the store", "connection.ssl.*"),
			superseded("the relay's own: 10 s heartbeats, connections that come back, timeouts", "connection.connection.*", "connection.handshake.timeout", "connection.shutdown.timeout", "connection.topology.*",
				"connection.channel.*", "connection.use.nio", "connection.nio.*", "connection.client.properties.*"),
			honoured(compatOptions, "verbatim. Without an exchange it is named by each topic, as in Debezium", "exchange", "routingKey", "routingKey.source", "deliveryMode", "null.value"),
			when(superseded("the queue was declared when Debezium started; with routingKey.source topic or key: cannot, the relay declares no queues", "autoCreateRoutingKey"), queues),
			superseded("of autoCreateRoutingKey", "routingKeyDurable"),
			superseded("Debezium warns and ignores it; routingKey.source is what counts", "routingKeyFromTopicName"),
			when(honoured("delivery.confirm_timeout", "milliseconds", "ackTimeout"), amount("delivery.confirm_timeout", 100, 3_600_000, "ms")),
		}},
		{"Debezium Server", debezium.Server, "", []rule{
			when(honoured("delivery.confirm_timeout", "milliseconds; 0, for ever: superseded", "sink.kafka.wait.message.delivery.timeout.ms"), amount("delivery.confirm_timeout", 100, 3_600_000, "ms")),
			oneOf(honoured("sink", "rabbitmq and kafka; any other: cannot", "sink.type"), "rabbitmq|kafka", "other sinks do not exist here; to publish to a stream of RabbitMQ, bind it to an exchange of sink.rabbitmq"),
			impossible("unknown, or of a sink that does not exist here; leave it out if it has no effect", "sink.*"),
			impossible("a name of Quarkus' extension: write debezium.source. in the place of quarkus.debezium.", "quarkus.debezium.*"),
			impossible("the converters of Debezium Server are chosen by debezium.format.key, .value and .header, and their options follow these names: write it there, or leave it out", "key.converter*", "value.converter*", "header.converter*"),
			superseded("Debezium Server reads converters from debezium.format. alone", "debezium.key.converter*", "debezium.value.converter*"),
			superseded("the relay has its own metrics and health", "debezium.api.*", "quarkus.*"),
			superseded("not Debezium's", "other.*"),
		}},
		{"Kafka Connect", debezium.Connect, "", []rule{
			oneOf(superseded("requested: Debezium goes without where the worker's exactly.once.source.support is not enabled; required: cannot, the relay delivers at least once", "exactly.once.support"), "requested", noExactlyOnce),
			impossible("nothing is exactly once here", "transaction.boundary", "transaction.boundary.interval.ms"),
			warned(superseded("the relay creates no topics, and has no broker create them: make them beforehand; until then their events wait", "topic.creation.default.partitions")),
			superseded("the relay creates no topics", "topic.creation.*"),
			superseded("Connect does not read it in a connector: there it is producer.override.", "other.producer.*"),
			superseded("a matter of Connect's", "config.action.reload"),
			oneOf(superseded("disabled, preparing: nothing is exactly once here, and nothing was; enabled: cannot", "worker.exactly.once.source.support"), "disabled|preparing", noExactlyOnce),
			superseded("of the worker: the relay needs none", "worker.*"),
		}},
	}
	for _, c := range all {
		for i := range c.rules {
			for n := range c.rules[i].names {
				c.rules[i].names[n] = c.prefix + c.rules[i].names[n]
			}
		}
	}
	return all
})

// rule returns the first rule that fits the name, or nil when no rule does.
func (r *Result) rule(name string) *rule {
	for _, c := range chapters() {
		for i := range c.rules {
			if (c.only == "" || c.only == r.profile) && slices.ContainsFunc(c.rules[i].names, func(pattern string) bool { return fits(pattern, name) }) {
				return &c.rules[i]
			}
		}
	}
	return nil
}

// Page calls each for every rule in the order of docs/reference.md, with the title of its chapter
// and the names as a reader knows them.
func Page(each func(title string, names []string, verdict Verdict, target, why string)) {
	for _, c := range chapters() {
		for _, of := range c.rules {
			var names []string
			for _, name := range of.names {
				for _, prefix := range []string{"router.", "worker.", "other."} {
					name = strings.TrimPrefix(name, prefix)
				}
				if c.only == debezium.Server && (strings.HasPrefix(name, "sink.") || strings.HasPrefix(name, "format.")) {
					name = "debezium." + name
				}
				names = append(names, name)
			}
			each(c.title, names, of.verdict, of.target, of.why)
		}
	}
}
