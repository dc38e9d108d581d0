// The rules about Kafka's producer: producer.override. of a connector, producer. of its worker, and
// debezium.sink.kafka.producer. of Debezium Server.

package rules

import (
	"path"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/debezium"
	"github.com/cdc-relay/cdc-relay/internal/migrate/importer/output"
	"github.com/cdc-relay/cdc-relay/internal/migrate/importer/settings"
)

func producerRules() []rule {
	const (
		tls     = "sink.kafka.tls"
		noLogin = "that way to log in does not exist here"
	)
	return slices.Concat([]rule{
		honoured("sink.kafka.brokers", "a connector's are its worker's: `--worker-config`", "producer.bootstrap.servers"),
		superseded("always `all`", "producer.acks"),
		oneOf(honoured("sink.kafka.compression", "none, gzip, snappy, lz4, zstd", "producer.compression.type"), "", map[string]string{"none": "", "gzip": "", "snappy": "", "lz4": "", "zstd": ""}),
		superseded("records are gathered while a request is on its way, without waiting", "producer.linger.ms", "producer.batch.size", "producer.buffer.memory", "producer.compression.*"),
		superseded("the broker's limit counts; a larger record becomes a dead letter", "producer.max.request.size"),
		superseded("always idempotent, and repeated until the broker answers", "producer.enable.idempotence", "producer.retries", "producer.max.in.flight.requests.per.connection", "producer.retry.backoff.ms", "producer.retry.backoff.max.ms", "producer.delivery.timeout.ms", "producer.request.timeout.ms", "producer.max.block.ms"),
		superseded("the bytes are made by the profile", "producer.key.serializer", "producer.value.serializer"),
		superseded("a matter of Java's client", "producer.client.id", "producer.client.rack", "producer.client.dns.lookup", "producer.metadata.*", "producer.reconnect.*", "producer.connections.*", "producer.socket.*", "producer.send.buffer.bytes", "producer.receive.buffer.bytes", "producer.metric.*", "producer.metrics.*", "producer.auto.include.jmx.reporter", "producer.enable.metrics.push", "producer.security.providers", "producer.partitioner.adaptive.*", "producer.partitioner.availability.*"),
		oneOf(superseded("Kafka's own partitioner is what the profile does; another class: cannot", "producer.partitioner.class"), noClasses, map[string]string{"": "", "org.apache.kafka.clients.producer.internals.DefaultPartitioner": "the profile does the same"}),
		unlessOn("keys choose the partition", "keys would not choose the partition", "producer.partitioner.ignore.keys"),
		impossible(noClasses, "producer.interceptor.classes"),
		impossible("the relay has no transactions: at least once, each event with its id", "producer.transactional.id", "producer.transaction.timeout.ms"),
		oneOf(mapped(tls+".enabled, sink.kafka.sasl", "PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL", "producer.security.protocol"), "", map[string]string{"PLAINTEXT": "", "SSL": "", "SASL_PLAINTEXT": "", "SASL_SSL": ""}),
		oneOf(honoured("sink.kafka.sasl.mechanism", "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512; GSSAPI (Kafka's default), OAUTHBEARER, AWS_MSK_IAM: cannot", "producer.sasl.mechanism"), noLogin, map[string]string{"PLAIN": "", "SCRAM-SHA-256": "", "SCRAM-SHA-512": ""}),
		when(mapped("sink.kafka.sasl", "username and password of PlainLoginModule and ScramLoginModule; other modules: cannot", "producer.sasl.jaas.config"), (*Builder).takeJAAS),
		impossible(noLogin, "producer.sasl.*"),
		when(mapped(tls+".ca", "PEM; JKS and PKCS#12: cannot, with the line that converts it", "producer.ssl.truststore.location"), func(b *Builder, p *settings.Property) { b.takeStore(p, "truststore", tls+".ca") }),
		when(mapped(tls+".cert", "PEM, certificate and key in one file; JKS and PKCS#12: cannot, with the line that converts it", "producer.ssl.keystore.location"), func(b *Builder, p *settings.Property) { b.takeStore(p, "keystore", tls+".cert") }),
		superseded("decided with the file", "producer.ssl.truststore.type", "producer.ssl.keystore.type", "producer.ssl.truststore.password", "producer.ssl.keystore.password"),
		impossible("write the certificates and keys to a file, and name it in sink.kafka.tls", "producer.ssl.truststore.certificates", "producer.ssl.keystore.certificate.chain", "producer.ssl.keystore.key"),
		impossible("is the password of a key, and the relay reads keys without one: openssl pkey -in KEY -out KEY.pem", "producer.ssl.key.password"),
		when(superseded("the name in the certificate is always verified", "producer.ssl.endpoint.identification.algorithm"), func(b *Builder, p *settings.Property) {
			if b.Is(p.Name, "", "https") {
				b.Say(p, output.Superseded, "", "the name in the certificate is always verified")
				return
			}
			b.Warn(p, output.Superseded, "", "the name in the certificate was not verified and is now: sink.kafka.tls.server_name, if it is another than the brokers'")
		}),
		impossible(noClasses, "producer.ssl.engine.factory.class"),
		superseded("TLS 1.2 and newer, Go's own", "producer.ssl.protocol", "producer.ssl.provider", "producer.ssl.cipher.suites", "producer.ssl.enabled.protocols", "producer.ssl.keymanager.algorithm", "producer.ssl.trustmanager.algorithm", "producer.ssl.secure.random.implementation"),
	}, only(debezium.Server, when(mapped("delivery.confirm_timeout", "milliseconds; 0, for ever: superseded", "sink.kafka.wait.message.delivery.timeout.ms"), func(b *Builder, p *settings.Property) {
		if b.Is(p.Name, "", "0") {
			b.Say(p, output.Superseded, "", "a broker that does not answer within delivery.confirm_timeout is asked again, for ever")
			return
		}
		b.takeNumber(p, "delivery.confirm_timeout", 100, 3_600_000, "ms")
	})))
}

// takeStore takes a PEM file, and says how to make one of what only Java reads.
func (b *Builder) takeStore(p *settings.Property, store, target string) {
	if b.Is("producer.ssl."+store+".type", "JKS", "PEM") {
		b.Say(p, output.Mapped, target, "")
		return
	}
	b.Cannot(p, convertStore(firstOf(p.Value.Plain()), store))
}

// convertStore is the line that makes PEM of a store of Java's.
func convertStore(file, store string) string {
	if file == "" {
		file = "STORE"
	}
	ext := path.Ext(file)
	pem := strings.TrimSuffix(file, ext) + ".pem"
	if store == "truststore" {
		return "is a store of Java's, and here it is PEM: keytool -list -rfc -keystore " + file + " > " + pem
	}
	if ext == ".p12" || ext == ".pfx" {
		return "is PKCS#12, and here it is PEM: openssl pkcs12 -nodes -in " + file + " -out " + pem
	}
	return "is a store of Java's, and here it is PEM: keytool -importkeystore -srckeystore " + file + " -destkeystore " + file + ".p12 -deststoretype PKCS12 && openssl pkcs12 -nodes -in " + file + ".p12 -out " + pem
}
