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
		honoured(urls, "", rabbit("connection.uri", "connection.host", "connection.port", "connection.virtual.host")...),
		honoured("sink.rabbitmq.username", "", rabbit("connection.username")...),
		when(honoured("sink.rabbitmq.password", "as database.password", rabbit("connection.password")...), func(b *Builder, p *settings.Property) {
			if p.Value.OnlyReferences() {
				b.Say(p, output.Honoured, "sink.rabbitmq.password", "")
				return
			}
			b.Warn(p, output.Honoured, "sink.rabbitmq.password", passwordWarning)
		}),
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
			b.takeMilliseconds(p, "delivery.confirm_timeout", 100, 3_600_000)
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
	uri := b.Get(rabbitPrefix + "connection.uri")
	whole := uri != nil && uri.Value.IsReference() // with what it stands for, a password perhaps
	address, user, password, from, ok := b.broker(whole)
	switch {
	case !ok:
		return
	case whole:
		b.Doc.Secret("sink.rabbitmq.url", uri.Value, "RABBITMQ_URL", origins([]*settings.Property{uri}))
	default:
		b.Set("sink.rabbitmq.url", output.Quote(address), from...)
	}
	if user != nil {
		b.Set("sink.rabbitmq.username", output.Quote(user.Value.Resolved()), user)
	}
	if password != nil {
		b.Doc.Secret("sink.rabbitmq.password", password.Value, "RABBITMQ_PASSWORD", origins([]*settings.Property{password}))
	}
}

// broker gathers the address of the broker. The uri, which Java's client reads first, is overridden
// by what else is set.
func (b *Builder) broker(whole bool) (address string, user, password *settings.Property, from []*settings.Property, ok bool) {
	connection := func(name string) *settings.Property { return b.Get(rabbitPrefix + "connection." + name) }
	user, password = connection("username"), connection("password")
	host, port, path, scheme := "localhost", "", "", "amqp"
	if uri := connection("uri"); uri != nil && !whole {
		text, known := uri.Value.Plain()
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
			user = &settings.Property{Written: uri.Written, File: uri.File, Value: output.Literal(u.User.Username())}
		}
		if text, set := u.User.Password(); set && password == nil {
			password = &settings.Property{Written: uri.Written, File: uri.File, Value: output.Literal(text)}
			b.warnLater(uri)
		}
	}
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
		scheme, from = "amqps", append(from, p)
	}
	if p := connection("port"); p != nil {
		port, from = p.Value.Resolved(), append(from, p)
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
func (b *Builder) warnLater(p *settings.Property) {
	for i := range b.Entries {
		if e := &b.Entries[i]; e.Property == p.Written && e.File == p.File {
			e.Why, e.Warning = passwordWarning, true
		}
	}
}
