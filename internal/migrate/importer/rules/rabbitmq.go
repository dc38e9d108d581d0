// Debezium Server's sink for RabbitMQ: its rules, and the section sink.rabbitmq.

package rules

import (
	"net"
	"net/url"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/debezium"
	"github.com/cdc-relay/cdc-relay/internal/migrate/importer/output"
	"github.com/cdc-relay/cdc-relay/internal/migrate/importer/settings"
)

const rabbitPrefix = "sink.rabbitmq."

func rabbit(names ...string) []string {
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = rabbitPrefix + name
	}
	return out
}

func rabbitRules() []rule {
	const urls = "sink.rabbitmq.url"
	return only(debezium.Server,
		when(honoured(urls, "an amqp:// or amqps:// address, without connection.host and the like", rabbit("connection.uri")...), func(b *Builder, p *settings.Property) {
			if text, known := p.Value.Plain(); known && !strings.HasPrefix(text, "amqp://") && !strings.HasPrefix(text, "amqps://") {
				b.Cannot(p, "is no amqp:// or amqps:// address")
				return
			}
			b.takeSecret(p, urls)
		}),
		honoured(urls, "", rabbit("connection.host", "connection.port", "connection.virtual.host")...),
		honoured("sink.rabbitmq.username", "", rabbit("connection.username")...),
		when(honoured("sink.rabbitmq.password", "as database.password", rabbit("connection.password")...), func(b *Builder, p *settings.Property) { b.takeSecret(p, "sink.rabbitmq.password") }),
		when(mapped(urls, "amqps://. Debezium verifies no certificate by default; the relay always does: sink.rabbitmq.tls.ca", rabbit("connection.ssl.enabled")...), (*Builder).takeSSL),
		superseded("the certificate and the name in it are always verified", rabbit("connection.ssl.validate.server.certificate", "connection.ssl.verify.hostname", "connection.ssl.algorithm")...),
		when(rule{verdict: output.Cannot, target: "sink.rabbitmq.tls", why: "a store of Java's: PEM has to be made of it, with the line that the report has", Names: rabbit("connection.ssl.key.store", "connection.ssl.trust.store")}, func(b *Builder, p *settings.Property) {
			store := map[bool]string{true: "truststore", false: "keystore"}[strings.HasSuffix(p.Name, "trust.store")]
			b.Cannot(p, convertStore(firstOf(p.Value.Plain()), store)+"; then sink.rabbitmq.tls")
		}),
		superseded("decided with the store", rabbit("connection.ssl.*")...),
		superseded("the relay's own: 10 s heartbeats, connections that come back, timeouts", rabbit("connection.connection.*", "connection.handshake.timeout", "connection.shutdown.timeout", "connection.topology.*", "connection.channel.*", "connection.use.nio", "connection.nio.*", "connection.client.properties.*")...),
		honoured(compatOptions, "verbatim. Without an exchange it is named by each topic, as in Debezium", rabbit("exchange", "routingKey", "routingKey.source", "deliveryMode", "null.value")...),
		when(superseded("the queue was declared when Debezium started; with routingKey.source topic or key: cannot, the relay declares no queues", rabbit("autoCreateRoutingKey")...), (*Builder).takeQueues),
		superseded("of autoCreateRoutingKey", rabbit("routingKeyDurable")...),
		superseded("Debezium warns and ignores it; routingKey.source is what counts", rabbit("routingKeyFromTopicName")...),
		when(mapped("delivery.confirm_timeout", "milliseconds", rabbit("ackTimeout")...), func(b *Builder, p *settings.Property) {
			b.takeNumber(p, "delivery.confirm_timeout", 100, 3_600_000, "ms")
		}),
	)
}

func (b *Builder) takeSSL(p *settings.Property) {
	switch {
	case b.Is(p.Name, "", "false"):
		b.Say(p, output.Honoured, "sink.rabbitmq.url", "")
	case b.IsOn(rabbitPrefix+"connection.ssl.validate.server.certificate", false):
		b.Say(p, output.Mapped, "sink.rabbitmq.url", "amqps://")
	default:
		b.Warn(p, output.Mapped, "sink.rabbitmq.url", "amqps://, and the broker's certificate, which Debezium did not verify, is verified: sink.rabbitmq.tls.ca, if its authority is not one of the system's")
	}
}

func (b *Builder) takeQueues(p *settings.Property) {
	switch {
	case b.Is(p.Name, "", "false"):
		b.Say(p, output.Superseded, "", "the relay declares no queues")
	case b.Is(rabbitPrefix+"routingKey.source", "static", "static"):
		b.Say(p, output.Superseded, "", "the queue was declared when Debezium started; it is there")
	default:
		b.Cannot(p, "the relay declares no queues: declare those of new routing keys at the broker. Until then their events wait in the retry table")
	}
}

// rabbitmq writes the section sink.rabbitmq.
func (b *Builder) rabbitmq() {
	connection := func(name string) *settings.Property { return b.Get(rabbitPrefix + "connection." + name) }
	if uri := connection("uri"); uri != nil {
		for _, name := range []string{"host", "port", "virtual.host", "username", "password", "ssl.enabled"} {
			if p := connection(name); p != nil {
				b.reverse(p, "is given beside connection.uri; write it into the uri, or all parts without the uri")
			}
		}
		b.Doc.Secret("sink.rabbitmq.url", uri.Value, "RABBITMQ_URL", origins([]*settings.Property{uri}))
		return
	}
	address, from := b.broker(connection)
	b.Set("sink.rabbitmq.url", output.Quote(address), from...)
	if user := connection("username"); user != nil {
		b.Set("sink.rabbitmq.username", output.Quote(user.Value.Resolved()), user)
	}
	if password := connection("password"); password != nil {
		b.Doc.Secret("sink.rabbitmq.password", password.Value, "RABBITMQ_PASSWORD", origins([]*settings.Property{password}))
	}
}

// broker makes the address of its parts.
func (b *Builder) broker(connection func(name string) *settings.Property) (address string, from []*settings.Property) {
	host, port, path, scheme := "localhost", "5672", "", "amqp"
	if p := connection("host"); p != nil {
		host, from = p.Value.Resolved(), append(from, p)
	}
	if p := connection("virtual.host"); p != nil {
		from = append(from, p)
		if text, known := p.Value.Plain(); known {
			path = url.PathEscape(text)
		} else {
			path = p.Value.Written()
		}
	}
	if p := connection("ssl.enabled"); p != nil && b.IsOn(p.Name, false) {
		scheme, port, from = "amqps", "5671", append(from, p)
	}
	if p := connection("port"); p != nil {
		port, from = p.Value.Resolved(), append(from, p)
	}
	if strings.ContainsAny(host, "${}") {
		host += ":" + port
	} else {
		host = net.JoinHostPort(strings.Trim(host, "[]"), port)
	}
	return scheme + "://" + host + "/" + path, from
}
