// How the properties of Kafka's producer become the section sink.kafka: the brokers, TLS, and the
// login with a password, with an issuer's tokens or with IAM of Amazon MSK.

package importer

import (
	"maps"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/lazy"
)

const (
	oauthBearer = "oauthbearer"
	mskIAM      = "aws-msk-iam"

	noLogin   = "write the login to sink.kafka.sasl"
	noProfile = ": no key here; the relay reads no file of AWS's tools: docs/kafka.md has the sources of credentials"

	oauthKey     = kafkaSASL + ".oauth"
	clientSecret = "KAFKA_CLIENT_SECRET"
	mskClasses   = "software.amazon.msk.auth.iam." // of Amazon's library, which some shade
	endpointName = "producer.sasl.oauthbearer.token.endpoint.url"
	clientNames  = "producer.sasl.oauthbearer.client.credentials."
)

// protocol returns Kafka's security.protocol in upper case.
func (r *Result) protocol() string {
	text, _ := r.textOf("producer.security.protocol", "PLAINTEXT")
	return strings.ToUpper(strings.TrimSpace(text))
}

// mechanism returns the login as sink.kafka.sasl.mechanism has it. MSK takes its signed requests
// also as the tokens of OAUTHBEARER.
func (r *Result) mechanism() string {
	class, _ := r.textOf("producer.sasl.login.callback.handler.class", "")
	if strings.Contains(class, mskClasses) {
		return mskIAM
	}
	text, _ := r.textOf("producer.sasl.mechanism", "")
	return strings.ReplaceAll(strings.ToLower(strings.TrimSpace(text)), "_", "-")
}

// onlyWith wraps a conversion: a property counts only when security.protocol contains part, which
// is SSL or SASL.
func onlyWith(part string, convert conversion) conversion {
	return func(r *Result, p *property) Entry {
		if !strings.Contains(r.protocol(), part) {
			return Entry{Verdict: Superseded, Why: "security.protocol is " + r.protocol() + ", which does not use it"}
		}
		return convert(r, p)
	}
}

// onlyTokens wraps a conversion: a property counts only for a login with tokens of an issuer.
func onlyTokens(convert conversion) conversion {
	return onlyWith("SASL", func(r *Result, p *property) Entry {
		if mechanism := r.mechanism(); mechanism != oauthBearer {
			return Entry{Verdict: Superseded, Why: "the login is " + mechanism + ", which does not use it"}
		}
		return convert(r, p)
	})
}

// writeKafka writes the keys of sink.kafka that need several properties: the brokers, and whether
// TLS and a login are used.
func (r *Result) writeKafka() {
	const section = "sink.kafka."
	servers := r.byName["producer.bootstrap.servers"]
	region := ""
	switch {
	case servers == nil:
		r.doc.set(section+"brokers", "[localhost:9092]", "write yours: no file has bootstrap.servers")
	case servers.fault == "":
		r.set(section+"brokers", quote(protocols().ReplaceAllString(string(servers.value), "")), servers)
		if m := mskRegion().FindStringSubmatch(string(servers.value)); m != nil {
			region = m[1]
		}
	}
	protocol := r.usable("producer.security.protocol")
	if protocol != nil && strings.HasSuffix(r.protocol(), "SSL") {
		r.set(kafkaTLS+".enabled", "true", protocol)
	}
	if protocol == nil || !strings.HasPrefix(r.protocol(), "SASL") {
		return
	}
	mechanism := r.mechanism()
	if r.byName["producer.sasl.mechanism"] == nil {
		r.absent(Cannot, "producer.sasl.mechanism", kafkaSASL, "Kafka's default is GSSAPI, which does not exist here")
	} else if p := r.usable("producer.sasl.mechanism"); p != nil {
		r.set(kafkaSASL+".mechanism", mechanism, p)
	}
	switch {
	case mechanism == mskIAM && region != "":
		r.set(kafkaSASL+".region", region, servers)
	case mechanism == mskIAM:
		if p := r.usable("producer.sasl.mechanism"); p != nil {
			p.entry.Warning, p.entry.Why = true, "no name of a broker has the region: set "+kafkaSASL+".region, or AWS_REGION"
		}
	case mechanism == oauthBearer && r.byName[endpointName] == nil:
		r.absent(Cannot, endpointName, oauthKey, "the relay has to know the issuer's token endpoint; a login without an issuer does not exist here")
	case r.byName["producer.sasl.jaas.config"] == nil && (mechanism != oauthBearer || r.byName[kafkaNames["clientId"]] == nil):
		r.absent(Cannot, "producer.sasl.jaas.config", kafkaSASL,
			"the login stands elsewhere, in a file of the JVM (java.security.auth.login.config); write it to sink.kafka.sasl")
	}
}

var (
	jaasModule = lazy.Regexp(`^\s*[\w.]*\.(Plain|Scram|OAuthBearer|IAM)LoginModule\s+required\b`)
	jaasOption = lazy.Regexp(`([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))`)
	protocols  = lazy.Regexp(`\b\w+://|\s`) // before an address of a broker
	jaasEscape = lazy.Regexp(`\\(.)`)
	// both names that Kafka has had for it
	kafkaCallback = lazy.Regexp(`^org\.apache\.kafka\.common\.security\.oauthbearer\.(secured\.)?OAuthBearerLoginCallbackHandler$`)
	mskRegion     = lazy.Regexp(`\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com`)
)

// jaas converts the login in a JAAS string. References in it stay references. An option without a
// key of the relay's is named, and its value, which may be a secret, is not shown.
func jaas(r *Result, p *property) Entry {
	text := string(p.value)
	if references().MatchString(text) {
		return refused("is a reference as a whole; write its parts to sink.kafka.sasl")
	}
	module, options := "", map[string]value{}
	if m := jaasModule().FindStringSubmatch(text); m != nil {
		module = m[1]
		for _, o := range jaasOption().FindAllStringSubmatch(text[len(m[0]):], -1) {
			options[o[1]] = value(jaasEscape().ReplaceAllString(o[2]+o[3], "$1") + o[4])
		}
	}
	names := slices.Sorted(maps.Keys(options))
	keys := map[string]string{"username": kafkaSASL + ".username", "password": kafkaSASL + ".password"}
	switch mechanism := r.mechanism(); {
	case mechanism == mskIAM && (module == "IAM" || module == "OAuthBearer"):
		if role := options["awsRoleArn"]; role != "" {
			r.set(kafkaSASL+".role_arn", quote(string(role)), p)
		}
		var why []string
		if options["awsRoleSessionName"] != "" {
			why = []string{"awsRoleSessionName: no key here; set AWS_ROLE_SESSION_NAME"}
		}
		// the region is that of the brokers
		names = slices.DeleteFunc(names, func(name string) bool {
			return name == "awsRoleArn" || name == "awsStsRegion" || name == "awsRoleSessionName" || name == "awsDebugCreds"
		})
		if len(names) > 0 {
			why = append(why, strings.Join(names, ", ")+noProfile)
		}
		return Entry{Warning: len(why) > 0, Why: strings.Join(why, "; ")}
	case mechanism == oauthBearer && module == "OAuthBearer":
		keys = map[string]string{"clientId": oauthKey + ".client_id", "clientSecret": oauthKey + ".client_secret", "scope": oauthKey + ".scopes"}
	case mechanism == mskIAM || mechanism == oauthBearer || module != "Plain" && module != "Scram":
		return refused("has no Plain-, Scram-, OAuthBearer- or IAMLoginModule that fits sasl.mechanism; " + noLogin)
	}
	for _, name := range slices.Sorted(maps.Keys(keys)) {
		if options[name] == "" && name != "scope" && r.byName[kafkaNames[name]] == nil {
			return refused("has no " + name + "; " + noLogin)
		}
	}
	var e Entry
	for _, name := range names {
		key, v := keys[name], options[name]
		extension, extends := strings.CutPrefix(name, "extension_")
		switch {
		case r.byName[kafkaNames[name]] != nil: // which counts before it
		case key == kafkaSASL+".password":
			e = r.password(key, "KAFKA_PASSWORD", v, p)
		case name == "clientSecret":
			e = r.password(key, clientSecret, v, p)
		case name == "scope" && key != "":
			r.set(key, scopeList(v), p)
		case key != "":
			r.set(key, quote(string(v)), p)
		case extends && module == "OAuthBearer":
			r.set(kafkaSASL+".extensions."+extension, quote(string(v)), p)
		default:
			return refused("has " + name + ", which has no key here; " + noLogin)
		}
	}
	return e
}

// kafkaNames are the properties that Kafka has since 4.1 for options of JAAS strings.
var kafkaNames = map[string]string{
	"clientId": clientNames + "client.id", "clientSecret": clientNames + "client.secret", "scope": "producer.sasl.oauthbearer.scope",
}

// scopeList writes scopes, which OAuth separates by spaces, as a list.
func scopeList(scopes value) string {
	var list []string
	for scope := range strings.FieldsSeq(string(scopes)) {
		list = append(list, quote(scope))
	}
	return "[" + strings.Join(list, ", ") + "]"
}

// scopes converts the scopes that are asked for.
func scopes(r *Result, p *property) Entry {
	r.set(oauthKey+".scopes", scopeList(p.value), p)
	return Entry{}
}

// endpoint converts the address of an issuer's token endpoint.
func endpoint(r *Result, p *property) Entry {
	if text, known := p.value.plain(); known && !strings.HasPrefix(text, "http") {
		return refused("is no http:// or https:// address; " + noLogin)
	}
	return copied(oauthKey+".token_url")(r, p)
}

// callbackClass converts the class that gets a token: what Kafka's own and Amazon's do, the relay
// does.
func callbackClass(_ *Result, p *property) Entry {
	if kafkaCallback().MatchString(string(p.value)) || strings.Contains(string(p.value), mskClasses) {
		return Entry{}
	}
	return refused(noClasses + "; " + noLogin)
}
