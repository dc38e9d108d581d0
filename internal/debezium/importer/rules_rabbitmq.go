package importer

import (
	"net"
	"net/url"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/debezium"
)

// This file has the rules about Debezium Server's sink for RabbitMQ, and writes sink.rabbitmq.

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
		honoured(urls, "", rabbit("connection.uri", "connection.host", "connection.port", "connection.virtual.host")...),
		honoured("sink.rabbitmq.username", "", rabbit("connection.username")...),
		when(honoured("sink.rabbitmq.password", "as database.password", rabbit("connection.password")...), func(b *builder, p *property) {
			if p.value.onlyReferences() {
				b.say(p, Honoured, "sink.rabbitmq.password", "")
				return
			}
			b.warn(p, Honoured, "sink.rabbitmq.password", passwordWarning)
		}),
		when(mapped(urls, "amqps://. Debezium verifies no certificate unless it is told to; the relay always does: sink.rabbitmq.tls.ca", rabbit("connection.ssl.enabled")...), (*builder).takeSSL),
		superseded("the certificate and the name in it are always verified", rabbit("connection.ssl.validate.server.certificate", "connection.ssl.verify.hostname", "connection.ssl.algorithm")...),
		when(rule{verdict: Cannot, target: "sink.rabbitmq.tls", why: "a store of Java's: PEM has to be made of it, with the line that the report has", names: rabbit("connection.ssl.key.store", "connection.ssl.trust.store")}, func(b *builder, p *property) {
			store := map[bool]string{true: "truststore", false: "keystore"}[strings.HasSuffix(p.name, "trust.store")]
			b.cannot(p, convertStore(firstOf(p.value.plain()), store)+"; then sink.rabbitmq.tls")
		}),
		superseded("decided with the store", rabbit("connection.ssl.*")...),
		superseded("the relay's own: 10 s heartbeats, connections that come back, timeouts", rabbit("connection.connection.*", "connection.handshake.timeout", "connection.shutdown.timeout", "connection.topology.*", "connection.channel.*", "connection.use.nio", "connection.nio.*", "connection.client.properties.*")...),
		honoured(compatOptions, "verbatim. Without an exchange it is named by each topic, as in Debezium", rabbit("exchange", "routingKey", "routingKey.source", "deliveryMode", "null.value")...),
		when(superseded("the queue was declared when Debezium started; with routingKey.source topic or key: cannot, the relay declares no queues", rabbit("autoCreateRoutingKey")...), (*builder).takeQueues),
		superseded("of autoCreateRoutingKey", rabbit("routingKeyDurable")...),
		superseded("Debezium warns and ignores it; routingKey.source is what counts", rabbit("routingKeyFromTopicName")...),
		when(mapped("delivery.confirm_timeout", "milliseconds", rabbit("ackTimeout")...), func(b *builder, p *property) {
			b.takeMilliseconds(p, "delivery.confirm_timeout", 100, 3_600_000)
		}),
	)
}

func (b *builder) takeSSL(p *property) {
	switch {
	case b.is(p.name, "", "false"):
		b.say(p, Honoured, "sink.rabbitmq.url", "")
	case b.isOn(rabbitPrefix+"connection.ssl.validate.server.certificate", false):
		b.say(p, Mapped, "sink.rabbitmq.url", "amqps://")
	default:
		b.warn(p, Mapped, "sink.rabbitmq.url", "amqps://, and the broker's certificate, which Debezium did not verify, is verified: sink.rabbitmq.tls.ca, if its authority is not one of the system's")
	}
}

func (b *builder) takeQueues(p *property) {
	switch {
	case b.is(p.name, "", "false"):
		b.say(p, Superseded, "", "the relay declares no queues")
	case b.is(rabbitPrefix+"routingKey.source", "static", "static"):
		b.say(p, Superseded, "", "the queue was declared when Debezium started; it is there")
	default:
		b.cannot(p, "the relay declares no queues: declare those of new routing keys at the broker. Until then their events wait in the retry table")
	}
}

// rabbitmq writes the section sink.rabbitmq.
func (b *builder) rabbitmq() {
	uri := b.get(rabbitPrefix + "connection.uri")
	whole := uri != nil && uri.value.isReference() // with what it stands for, a password perhaps
	address, user, password, from, ok := b.broker(whole)
	switch {
	case !ok:
		return
	case whole:
		b.doc.secret("sink.rabbitmq.url", uri.value, "RABBITMQ_URL", origins([]*property{uri}))
	default:
		b.set("sink.rabbitmq.url", quote(address), from...)
	}
	if user != nil {
		b.set("sink.rabbitmq.username", quote(user.value.resolved()), user)
	}
	if password != nil {
		b.doc.secret("sink.rabbitmq.password", password.value, "RABBITMQ_PASSWORD", origins([]*property{password}))
	}
}

// broker gathers the address of the broker. The uri, which Java's client reads first, is overridden by what is set beside it.
func (b *builder) broker(whole bool) (address string, user, password *property, from []*property, ok bool) {
	connection := func(name string) *property { return b.get(rabbitPrefix + "connection." + name) }
	user, password = connection("username"), connection("password")
	host, port, path, scheme := "localhost", "", "", "amqp"
	if uri := connection("uri"); uri != nil && !whole {
		text, known := uri.value.plain()
		u, err := url.Parse(text)
		switch {
		case !known:
			b.reverse(uri, "has references inside: set connection.host, connection.port, connection.virtual.host, connection.username and connection.password in its place")
			return "", nil, nil, nil, false
		case err != nil || u.Scheme != "amqp" && u.Scheme != "amqps":
			b.reverse(uri, "is no amqp:// or amqps:// address that can be read")
			return "", nil, nil, nil, false
		}
		scheme, host, port, path = u.Scheme, u.Hostname(), u.Port(), strings.TrimPrefix(u.EscapedPath(), "/")
		from = append(from, uri)
		if u.User != nil && user == nil {
			user = &property{written: uri.written, file: uri.file, value: literal(u.User.Username())}
		}
		if text, set := u.User.Password(); set && password == nil {
			password = &property{written: uri.written, file: uri.file, value: literal(text)}
			b.warnLater(uri)
		}
	}
	if p := connection("host"); p != nil {
		host, from = p.value.resolved(), append(from, p)
	}
	if p := connection("virtual.host"); p != nil {
		from = append(from, p)
		if text, known := p.value.plain(); known {
			path = url.PathEscape(text)
		} else {
			path = p.value.written()
		}
	}
	if p := connection("ssl.enabled"); p != nil && b.isOn(p.name, false) {
		scheme, from = "amqps", append(from, p)
	}
	if p := connection("port"); p != nil {
		port, from = p.value.resolved(), append(from, p)
	}
	if port == "" {
		port = map[string]string{"amqp": "5672", "amqps": "5671"}[scheme]
	}
	if strings.ContainsAny(host, "${}") {
		host += ":" + port
	} else {
		host = net.JoinHostPort(strings.Trim(host, "[]"), port)
	}
	return scheme + "://" + host + "/" + path, user, password, from, true
}

// warnLater warns of the password in an address.
func (b *builder) warnLater(p *property) {
	for i := range b.entries {
		if e := &b.entries[i]; e.Property == p.written && e.File == p.file {
			e.Why, e.Warning = passwordWarning, true
		}
	}
}
