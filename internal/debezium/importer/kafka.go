package importer

import "strings"

// This file writes the section sink.kafka.

// kafka writes the section sink.kafka.
func (b *builder) kafka() {
	const section = "sink.kafka."
	servers := b.get("producer.bootstrap.servers")
	if servers == nil && b.byName["producer.bootstrap.servers"] != nil {
		return // it has its verdict
	}
	if servers == nil {
		why := "the relay has to know a broker"
		if b.connect() && !b.worker {
			why = "the worker's counts: give its file with --worker-config"
		}
		name := "bootstrap.servers"
		if !b.connect() {
			name = "producer." + name
		}
		b.absent(Cannot, name, section+"brokers", why)
		b.doc.set(section+"brokers", "[localhost:9092]", "write yours: no file has bootstrap.servers")
	} else {
		b.set(section+"brokers", brokerList(servers.value), servers)
	}
	if p := b.get("producer.compression.type"); p != nil {
		b.set(section+"compression", quote(strings.ToLower(p.value.resolved())), p)
	}
	protocol := strings.ToUpper(strings.TrimSpace(firstOf(b.plain("producer.security.protocol", "PLAINTEXT"))))
	if strings.HasSuffix(protocol, "SSL") {
		b.set(section+"tls.enabled", "true", b.get("producer.security.protocol"))
		for _, store := range []struct{ name, key string }{{"truststore", "tls.ca"}, {"keystore", "tls.cert"}} {
			if p := b.get("producer.ssl." + store.name + ".location"); p != nil {
				b.set(section+store.key, quote(p.value.resolved()), p)
			}
		}
	}
	if strings.HasPrefix(protocol, "SASL") {
		b.sasl(section + "sasl.")
	}
}

// brokerList is one text with commas when a reference is in it, and else a list.
func brokerList(v value) string {
	text, ok := v.plain()
	if !ok {
		return quote(v.written())
	}
	brokers := splitList(text)
	for i, address := range brokers {
		if _, rest, protocol := strings.Cut(address, "://"); protocol {
			address = rest
		}
		brokers[i] = quote(strings.ReplaceAll(address, "$", "$$"))
	}
	return "[" + strings.Join(brokers, ", ") + "]"
}

func (b *builder) sasl(section string) {
	name := func(option string) string {
		if b.connect() {
			return option
		}
		return "producer." + option
	}
	mechanism := b.get("producer.sasl.mechanism")
	if mechanism == nil {
		if b.byName["producer.sasl.mechanism"] == nil {
			b.absent(Cannot, name("sasl.mechanism"), section+"mechanism", "Kafka's default is GSSAPI, which does not exist here")
		}
		return
	}
	b.set(section+"mechanism", quote(strings.ToLower(mechanism.value.resolved())), mechanism)
	jaas := b.get("producer.sasl.jaas.config")
	if b.byName["producer.sasl.jaas.config"] == nil {
		b.absent(Cannot, name("sasl.jaas.config"), section+"username", "the login stands elsewhere, in a file of the JVM (java.security.auth.login.config); write it to sink.kafka.sasl")
	}
	if jaas == nil {
		return
	}
	if login, ok := parseJAAS(jaas.value); ok {
		b.set(section+"username", quote(login.username.resolved()), jaas)
		b.doc.secret(section+"password", login.password, "KAFKA_PASSWORD", origins([]*property{jaas}))
	}
}
