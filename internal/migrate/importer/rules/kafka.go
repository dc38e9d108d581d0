// Writing the section sink.kafka.

package rules

import (
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/lazy"
	"github.com/cdc-relay/cdc-relay/internal/migrate/importer/output"
	"github.com/cdc-relay/cdc-relay/internal/migrate/importer/settings"
)

// kafka writes the section sink.kafka.
func (b *Builder) kafka() {
	const section = "sink.kafka."
	servers := b.Get("producer.bootstrap.servers")
	if servers == nil && b.ByName["producer.bootstrap.servers"] != nil {
		return // it has its verdict
	}
	if servers == nil {
		why := "the relay has to know a broker"
		if b.Connect() && !b.Worker {
			why = "the worker's counts: give its file with --worker-config"
		}
		name := "bootstrap.servers"
		if !b.Connect() {
			name = "producer." + name
		}
		b.Absent(output.Cannot, name, section+"brokers", why)
		b.Doc.Set(section+"brokers", "[localhost:9092]", "write yours: no file has bootstrap.servers")
	} else {
		b.Set(section+"brokers", brokerList(servers.Value), servers)
	}
	if p := b.Get("producer.compression.type"); p != nil {
		b.Set(section+"compression", output.Quote(strings.ToLower(p.Value.Resolved())), p)
	}
	protocol := strings.ToUpper(strings.TrimSpace(firstOf(b.Plain("producer.security.protocol", "PLAINTEXT"))))
	if strings.HasSuffix(protocol, "SSL") {
		b.Set(section+"tls.enabled", "true", b.Get("producer.security.protocol"))
		for _, store := range []struct{ name, key string }{{"truststore", "tls.ca"}, {"keystore", "tls.cert"}} {
			if p := b.Get("producer.ssl." + store.name + ".location"); p != nil {
				b.Set(section+store.key, output.Quote(p.Value.Resolved()), p)
			}
		}
	}
	if strings.HasPrefix(protocol, "SASL") {
		b.sasl(section + "sasl.")
	}
}

// brokerList is one text with commas when a reference is in it, and else a list.
func brokerList(v output.Value) string {
	text, ok := v.Plain()
	if !ok {
		return output.Quote(v.Written())
	}
	brokers := settings.SplitList(text)
	for i, address := range brokers {
		if _, rest, protocol := strings.Cut(address, "://"); protocol {
			address = rest
		}
		brokers[i] = output.Quote(strings.ReplaceAll(address, "$", "$$"))
	}
	return "[" + strings.Join(brokers, ", ") + "]"
}

func (b *Builder) sasl(section string) {
	name := func(option string) string {
		if b.Connect() {
			return option
		}
		return "producer." + option
	}
	mechanism := b.Get("producer.sasl.mechanism")
	if mechanism == nil {
		if b.ByName["producer.sasl.mechanism"] == nil {
			b.Absent(output.Cannot, name("sasl.mechanism"), section+"mechanism", "Kafka's default is GSSAPI, which does not exist here")
		}
		return
	}
	b.Set(section+"mechanism", output.Quote(strings.ToLower(mechanism.Value.Resolved())), mechanism)
	jaas := b.Get("producer.sasl.jaas.config")
	if b.ByName["producer.sasl.jaas.config"] == nil {
		b.Absent(output.Cannot, name("sasl.jaas.config"), section+"username", "the login stands elsewhere, in a file of the JVM (java.security.auth.login.config); write it to sink.kafka.sasl")
	}
	if jaas == nil {
		return
	}
	if login, ok := parseJAAS(jaas.Value); ok {
		b.Set(section+"username", output.Quote(login.username.Resolved()), jaas)
		b.Doc.Secret(section+"password", login.password, "KAFKA_PASSWORD", origins([]*settings.Property{jaas}))
	}
}

type login struct{ username, password output.Value }

var (
	jaasModule = lazy.Regexp(`^\s*[\w.]*\.(PlainLoginModule|ScramLoginModule)\s+required\s`)
	jaasOption = lazy.Regexp(`\b(username|password)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))`)
	jaasEscape = lazy.Regexp(`\\(.)`)
)

// parseJAAS reads the login of a JAAS string. References in it stay references: each is one
// character while the string is taken apart.
func parseJAAS(v output.Value) (login, bool) {
	var text strings.Builder
	refs := map[rune]output.Part{}
	for i, p := range v {
		if p.Ref != "" {
			stand := rune(0xF0000 + i) // of a plane that nobody writes with
			refs[stand] = p
			text.WriteRune(stand)
			continue
		}
		text.WriteString(p.Text)
	}
	if !jaasModule().MatchString(text.String()) {
		return login{}, false
	}
	found := map[string]output.Value{}
	for _, m := range jaasOption().FindAllStringSubmatch(text.String(), -1) {
		found[m[1]] = restore(jaasEscape().ReplaceAllString(m[2]+m[3], "$1")+m[4], refs).Joined()
	}
	l := login{username: found["username"], password: found["password"]}
	return l, l.username != nil && l.password != nil
}

func restore(s string, refs map[rune]output.Part) output.Value {
	v := output.Value{}
	for _, r := range s {
		if p, ok := refs[r]; ok {
			v = append(v, p)
			continue
		}
		v = append(v, output.Part{Text: string(r)})
	}
	return v
}

func (b *Builder) takeJAAS(p *settings.Property) {
	l, ok := parseJAAS(p.Value)
	switch {
	case p.Value.IsReference():
		b.Cannot(p, "is a reference as a whole; write username and password apart, to sink.kafka.sasl")
	case !ok:
		b.Cannot(p, "is no PlainLoginModule and no ScramLoginModule with username and password")
	case l.password.OnlyReferences():
		b.Say(p, output.Mapped, "sink.kafka.sasl", "")
	default:
		b.Warn(p, output.Mapped, "sink.kafka.sasl", passwordWarning)
	}
}
