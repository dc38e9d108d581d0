// How each property becomes keys of the relay's configuration. The rules in table.go name the
// conversions here for single properties. The methods of Result here write the keys that need
// several properties, or that are needed though a property is missing.

package importer

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/debezium"
	"github.com/cdc-relay/cdc-relay/internal/lazy"
)

// apply gives every property its verdict, in the order of the file, and then writes the keys that
// are made of several properties or of the absence of one. Import calls it once all properties are
// read.
func (r *Result) apply() {
	for _, p := range r.props {
		of := r.rule(p.name)
		switch {
		case r.unchosen(p.name):
			r.setVerdict(p, Superseded, "", "sink.type is "+r.kind())
		case p.fault != "" && (of == nil || of.verdict != Superseded || of.convert != nil):
			r.setVerdict(p, Cannot, "", p.fault)
		case of == nil:
			r.setVerdict(p, Cannot, "", unknownProperty)
		default:
			r.decide(p, of)
		}
	}
	r.reportMissing()
	r.writeSource()
	r.writeTables()
	switch r.kind() {
	case "kafka":
		r.writeKafka()
	case "rabbitmq":
		r.writeRabbitMQ()
	}
	r.writeOptions()
}

// decide gives a property the verdict of its conversion, or that of its rule when there is no
// conversion or the conversion has no verdict of its own.
func (r *Result) decide(p *property, of *rule) {
	var e Entry
	if of.convert != nil {
		e = of.convert(r, p)
	}
	if e.Verdict == "" {
		e.Verdict, e.Target, e.Warning = of.verdict, of.target, e.Warning || of.warning
	}
	if e.Why == "" && (e.Verdict == Superseded || e.Verdict == Cannot) {
		e.Why = of.why
	}
	if e.Target == compatOptions {
		e.Target += "." + strings.TrimPrefix(p.name, "router.")
	}
	r.setVerdict(p, e.Verdict, e.Target, e.Why)
	p.entry.Warning = e.Warning
}

// kind returns the sink that the file chooses, in lower case: sink.type, or always kafka for Kafka
// Connect.
func (r *Result) kind() string {
	if r.connect() {
		return "kafka"
	}
	text, _ := r.textOf("sink.type", "")
	return strings.ToLower(strings.TrimSpace(text))
}

// unchosen reports whether a property belongs to the sink that sink.type does not choose.
func (r *Result) unchosen(name string) bool {
	return !r.connect() && (r.kind() == "kafka" && strings.HasPrefix(name, "sink.rabbitmq.") ||
		r.kind() == "rabbitmq" && (strings.HasPrefix(name, "producer.") || strings.HasPrefix(name, "sink.kafka.")))
}

// reportMissing adds entries for properties that the file should have and has not, and for what
// Debezium does when they are not set.
func (r *Result) reportMissing() {
	converter := r.ofWorker("neither the connector nor the worker has it")
	for _, e := range []struct {
		name, target, why string
		verdict           Verdict
		only              string // the profile that wants it; "" for both
	}{
		{"connector.class", "", "it says which connector this is", Cannot, ""},
		{"transforms", "", "without the Outbox Event Router this connector sends change events, which is not what the relay is for", Cannot, ""},
		{"extended.headers.enabled", "", leftOutHeaders, Superseded, ""},
		{"snapshot.mode", "", "initial, which is moot: the slot exists", Superseded, ""},
		{"sink.type", "sink", "it says where events go", Cannot, debezium.Server},
		{"key.converter", compatOptions, converter, Cannot, debezium.Connect},
		{"value.converter", compatOptions, converter, Cannot, debezium.Connect},
	} {
		if r.byName[e.name] == nil && (e.only == "" || e.only == r.profile) {
			r.absent(e.verdict, e.name, e.target, e.why).Warning = e.why == leftOutHeaders
		}
	}
	if !r.connect() {
		r.Entries = append(r.Entries, &Entry{
			Verdict: Superseded, Property: "DEBEZIUM_… (environment)", Warning: true,
			Why: "variables of Debezium Server's environment win over its file, and are not read: write those that it has into the file first",
		})
	}
}

// ofWorker returns why a property of the connector is missing. When no worker's file was given, the
// reason is that the worker may have it.
func (r *Result) ofWorker(otherwise string) string {
	if r.connect() && !r.worker {
		return "the worker's counts: give its file with --worker-config"
	}
	return otherwise
}

// set writes a key of the relay's configuration, with the properties that it comes from in its
// comment.
func (r *Result) set(path, scalar string, from ...*property) {
	r.doc.set(path, scalar, origins(from...))
}

// origins joins the names of properties as their files have them, for the comment of a key.
func origins(from ...*property) string {
	var all []string
	for _, p := range from {
		if p != nil {
			all = append(all, p.written)
		}
	}
	return strings.Join(all, ", ")
}

// refused is the entry for a value that the relay cannot honour.
func refused(why string) Entry { return Entry{Verdict: Cannot, Why: why} }

// allowed makes a conversion that accepts the listed values, separated by |, and refuses any other.
// An empty item accepts a value that is empty.
func allowed(values, noOthers string) conversion {
	return func(r *Result, p *property) Entry {
		all := strings.Split(values, "|")
		if slices.ContainsFunc(all, func(v string) bool { return r.valueIs(p.name, "", v) }) {
			return Entry{}
		}
		all = slices.DeleteFunc(all, func(v string) bool { return v == "" })
		why := fmt.Sprintf("is %q, want %s", p.value, strings.Join(all, " or "))
		if noOthers != "" {
			why += ": " + noOthers
		}
		return refused(why)
	}
}

// copied makes a conversion that writes the value to a key as it is.
func copied(key string) conversion {
	return func(r *Result, p *property) Entry {
		r.set(key, quote(string(p.value)), p)
		return Entry{}
	}
}

// lower makes a conversion that accepts the listed values and writes the value to a key in lower
// case.
func lower(key, values, noOthers string) conversion {
	return func(r *Result, p *property) Entry {
		e := allowed(values, noOthers)(r, p)
		if e.Verdict == "" {
			r.set(key, quote(strings.ToLower(string(p.value))), p)
		}
		return e
	}
}

// amount makes a conversion that writes a whole number with its unit to a key. It writes nothing
// for 0, which in Debezium means that there is no bound: the key keeps the relay's default.
func amount(key string, low, high int, unit string) conversion {
	return func(r *Result, p *property) Entry {
		text, known := p.value.plain()
		n, err := strconv.Atoi(strings.TrimSpace(text))
		switch {
		case !known:
			r.set(key, quote(string(p.value)+unit), p)
		case err == nil && n == 0:
			return Entry{Verdict: Superseded, Why: "the relay always has a bound: the default of " + key}
		case err != nil || n < low || n > high:
			return refused(fmt.Sprintf("is no number from %d to %d", low, high))
		default:
			r.set(key, strconv.Itoa(n)+unit, p)
		}
		return Entry{}
	}
}

// secret makes a conversion that writes a reference to a password to a key. It warns when the
// password itself stands in the file.
func secret(key, variable string) conversion {
	return func(r *Result, p *property) Entry {
		r.doc.secret(key, p.value, variable, origins(p))
		return warnOfPassword(p.value)
	}
}

// warnOfPassword returns a warning for a password that stands in the file, and no warning for one
// that is only referred to.
func warnOfPassword(v value) Entry {
	if v.onlyReferences() {
		return Entry{}
	}
	return Entry{Warning: true, Why: "a password stands in the file, and is not copied: set the variable, or better write it to a file of its own, and ${file:/path} here"}
}

// notPEM is why a file of keys is refused. It ends in the commands that make PEM of the forms that
// only Java reads.
const notPEM = "is not PEM, which the relay reads. Of DER: openssl pkcs8 -inform DER -nocrypt -in FILE -out FILE.pem; of PKCS#12: openssl pkcs12 -nodes -in FILE -out FILE.pem; " +
	"of a store of Java's make PKCS#12 first: keytool -importkeystore -srckeystore FILE -destkeystore FILE.p12 -deststoretype PKCS12"

// pemFile makes a conversion that writes the name of a PEM file to a key and refuses files in other
// forms. Without a key it only checks: writeSource writes the names of the database's files. A
// property with "store" in its name counts as a store of Java's unless its type is PEM. RabbitMQ's
// stores have no such type, so they are always refused.
func pemFile(key string) conversion {
	return func(r *Result, p *property) Entry {
		file, _ := p.value.plain()
		store := strings.Contains(p.name, "store") && !r.valueIs(strings.TrimSuffix(p.name, "location")+"type", "JKS", "PEM")
		if store || slices.Contains([]string{".p12", ".pfx", ".pk8", ".der"}, strings.ToLower(path.Ext(file))) {
			return refused(notPEM)
		}
		if key != "" {
			r.set(key, quote(string(p.value)), p)
		}
		return Entry{}
	}
}

// writeSource writes the section source, except source.tables. source.url gets libpq's form
// key=value. In a URL a reference, whose value is known only when the relay starts, would have to
// be escaped.
func (r *Result) writeSource() {
	theirs := r.theirSlot()
	ours := "cdc_relay"
	if theirs == ours { // takeover copies one to the other
		ours = "cdc_relay_own"
	}
	r.doc.set("source.slot", ours, "the relay's own, which takeover makes as a copy of "+theirs+"; each relay of a database needs another name")
	r.doc.set("source.create", "false", "takeover makes the slot: a missing one is a mistake, not a start from now")
	if r.pgoutput() && r.byName["publication.name"] == nil {
		r.doc.set("source.publication", "dbz_publication", "Debezium's default")
		r.absent(Honoured, "publication.name", "source.publication", "Debezium's default, dbz_publication")
	}
	if r.byName["database.hostname"] == nil {
		r.absent(Cannot, "database.hostname", sourceURL, "the relay has to know its database")
	}
	if r.usable("database.hostname") == nil {
		return
	}
	var from []*property
	var parts []string
	for _, name := range []string{"host=hostname", "port", "user", "dbname", "sslmode", "sslcert", "sslkey", "sslrootcert"} {
		libpq, theirs, other := strings.Cut(name, "=")
		if !other {
			theirs = libpq
		}
		p := r.usable("database." + theirs)
		if p == nil && libpq == "port" {
			parts = append(parts, "port='5432'") // PGPORT of the relay is another matter
		}
		if p != nil {
			escaped := strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(string(p.value))
			parts, from = append(parts, libpq+"='"+escaped+"'"), append(from, p)
		}
	}
	r.set(sourceURL, quote(strings.Join(parts, " ")), from...)
}

// publication converts publication.name, which counts only when Debezium uses pgoutput.
func publication(r *Result, p *property) Entry {
	if !r.pgoutput() {
		return Entry{Verdict: Superseded, Why: "only pgoutput has publications; takeover makes one of the relay's own, cdc_relay"}
	}
	return copied("source.publication")(r, p)
}

// pgoutput reports whether Debezium uses the plugin pgoutput, and so has a publication.
func (r *Result) pgoutput() bool { return r.valueIs("plugin.name", "decoderbufs", "pgoutput") }

// writeTables writes source.tables, the outbox tables by name.
func (r *Result) writeTables() {
	p := r.byName["table.include.list"]
	switch {
	case p == nil:
		r.absent(Cannot, "table.include.list", "source.tables", "all tables are captured, and the outbox has to be named")
		return
	case p.fault != "":
		return
	}
	names, err := r.tableNames(p)
	if err != nil {
		p.refuse(err.Error())
		return
	}
	joined := strings.Join(names, ", ")
	r.set("source.tables", "["+joined+"]", p, r.byName["signal.data.collection"])
	if joined != strings.ToLower(joined) {
		p.entry.Warning = true
		p.entry.Why = "to Debezium upper and lower case are the same, to the relay they are not: these have to be the catalogue's names: " + joined
	}
}

// tableNames returns the outbox tables that a property names, quoted: all its tables except the
// table of signals. It fails when a name is a pattern or a reference, because the relay needs real
// names.
func (r *Result) tableNames(p *property) (names []string, err error) {
	text, known := p.value.plain()
	if !known {
		return nil, errors.New("names tables by a reference; write them")
	}
	signals, _ := r.textOf("signal.data.collection", "")
	for _, pattern := range splitList(text) {
		name := strings.ReplaceAll(pattern, `\.`, ".")
		switch {
		case regexp.QuoteMeta(name) != strings.ReplaceAll(name, ".", `\.`):
			return nil, fmt.Errorf("%q is a pattern; write the names of the tables", pattern)
		case strings.Count(name, ".") != 1:
			return nil, fmt.Errorf("%q is no schema.table", name)
		case name != signals && !slices.Contains(names, quote(name)):
			names = append(names, quote(name))
		}
	}
	if len(names) == 0 {
		return nil, errors.New("leaves no table")
	}
	return names, nil
}

// otherList converts the lists that choose tables in another way. They do nothing beside
// table.include.list; without it they do not say which table is the outbox.
func otherList(r *Result, _ *property) Entry {
	if r.byName["table.include.list"] != nil {
		return Entry{Why: "source.tables names the tables"}
	}
	return refused("does not say which table is the outbox; set table.include.list")
}

// skipped converts skipped.operations: it refuses a list with c in it, because Debezium skips
// INSERTs then.
func skipped(_ *Result, p *property) Entry {
	text, known := p.value.plain()
	if known && !slices.Contains(splitList(strings.ToLower(text)), "c") {
		return Entry{Why: "only INSERTs are sent"}
	}
	return refused("skips INSERTs, which are what an outbox consists of")
}

// extendedHeaders converts extended.headers.enabled: it warns that the relay does not send the
// headers __debezium.context.*.
func extendedHeaders(r *Result, p *property) Entry {
	if r.valueIs(p.name, "", "false") {
		return Entry{Why: "the headers __debezium.context.* are not sent, here as there"}
	}
	return Entry{Warning: true, Why: leftOutHeaders}
}

// withRouter converts transforms: it refuses a connector without the Outbox Event Router.
func withRouter(r *Result, _ *property) Entry {
	if r.router == "" {
		return refused("has no " + eventRouter + ": this connector sends change events, which is not what the relay is for")
	}
	return Entry{}
}

// writeOptions writes sink.compat, and lets the profile check the options. An option that the
// profile does not know is left out, because it may be a password. An option that it knows and does
// not take stays, so that the relay refuses to start until somebody has decided.
func (r *Result) writeOptions() {
	r.doc.set("sink.compat.profile", r.profile, "what Debezium makes of a row, byte for byte")
	plain, from := map[string]string{}, map[string]*property{}
	var names []string
	for _, p := range r.props {
		name, option := strings.CutPrefix(p.entry.Target, compatOptions+".")
		if !option {
			continue
		}
		names, from[name] = append(names, name), p
		if text, known := p.value.plain(); known {
			plain[name] = text
		} else if name == "topic.prefix" {
			// other options are checked against whether there is a prefix
			plain[name] = "known-at-the-start"
		}
	}
	_, faults := debezium.Parse(r.profile, plain)
	for _, fault := range faults {
		if p := from[fault.Option]; p != nil {
			p.refuse(fault.Words)
		} else if r.byName[fault.Option] == nil { // otherwise that property has its verdict already
			r.absent(Cannot, fault.Option, compatOptions, fault.Words)
		}
		if fault.Unknown {
			delete(from, fault.Option)
		}
	}
	for _, name := range names {
		if p := from[name]; p != nil {
			r.doc.lines = append(r.doc.lines, line{[]string{"sink", "compat", "options", name}, quote(string(p.value)), origins(p)})
		}
	}
}

// protocol returns Kafka's security.protocol in upper case.
func (r *Result) protocol() string {
	text, _ := r.textOf("producer.security.protocol", "PLAINTEXT")
	return strings.ToUpper(strings.TrimSpace(text))
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

// writeKafka writes the keys of sink.kafka that need several properties: the brokers, and whether
// TLS and a login are used.
func (r *Result) writeKafka() {
	const section = "sink.kafka."
	switch servers := r.byName["producer.bootstrap.servers"]; {
	case servers == nil:
		r.absent(Cannot, "producer.bootstrap.servers", section+"brokers", r.ofWorker("the relay has to know a broker"))
		r.doc.set(section+"brokers", "[localhost:9092]", "write yours: no file has bootstrap.servers")
	case servers.fault == "":
		r.set(section+"brokers", quote(protocols().ReplaceAllString(string(servers.value), "")), servers)
	}
	protocol := r.usable("producer.security.protocol")
	if protocol != nil && strings.HasSuffix(r.protocol(), "SSL") {
		r.set(kafkaTLS+".enabled", "true", protocol)
	}
	if protocol == nil || !strings.HasPrefix(r.protocol(), "SASL") {
		return
	}
	if r.byName["producer.sasl.mechanism"] == nil {
		r.absent(Cannot, "producer.sasl.mechanism", kafkaSASL, "Kafka's default is GSSAPI, which does not exist here")
	}
	if r.byName["producer.sasl.jaas.config"] == nil {
		r.absent(Cannot, "producer.sasl.jaas.config", kafkaSASL,
			"the login stands elsewhere, in a file of the JVM (java.security.auth.login.config); write it to sink.kafka.sasl")
	}
}

var (
	jaasModule = lazy.Regexp(`^\s*[\w.]*\.(PlainLoginModule|ScramLoginModule)\s+required\s`)
	jaasOption = lazy.Regexp(`\b(username|password)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))`)
	protocols  = lazy.Regexp(`\b\w+://|\s`) // before an address of a broker
	jaasEscape = lazy.Regexp(`\\(.)`)
)

// jaas converts the login of a JAAS string to username and password. References in it stay
// references.
func jaas(r *Result, p *property) Entry {
	if references().MatchString(string(p.value)) {
		return refused("is a reference as a whole; write username and password apart, to sink.kafka.sasl")
	}
	found := map[string]value{}
	if jaasModule().MatchString(string(p.value)) {
		for _, m := range jaasOption().FindAllStringSubmatch(string(p.value), -1) {
			found[m[1]] = value(jaasEscape().ReplaceAllString(m[2]+m[3], "$1") + m[4])
		}
	}
	username, password := found["username"], found["password"]
	if username == "" || password == "" {
		return refused("is no PlainLoginModule and no ScramLoginModule with username and password")
	}
	r.set(kafkaSASL+".username", quote(string(username)), p)
	r.doc.secret(kafkaSASL+".password", password, "KAFKA_PASSWORD", origins(p))
	return warnOfPassword(password)
}

// rabbitPart matches the properties that say the same as a part of connection.uri: a file has one
// or the other.
var rabbitPart = lazy.Regexp(`^sink\.rabbitmq\.connection\.(host|port|virtual\.host|username|password|ssl\.enabled)$`)

// rabbitURI converts connection.uri to sink.rabbitmq.url. It is written as a secret when it may
// have a password in it.
func rabbitURI(r *Result, p *property) Entry {
	switch text, known := p.value.plain(); {
	case known && !strings.HasPrefix(text, "amqp://") && !strings.HasPrefix(text, "amqps://"):
		return refused("is no amqp:// or amqps:// address")
	case slices.ContainsFunc(r.props, func(p *property) bool { return rabbitPart().MatchString(p.name) }):
		return refused("is given beside other properties of the connection; write them into the uri, or all parts without the uri")
	case known && !strings.Contains(text, "@"): // no password is in it
		return copied(rabbitURL)(r, p)
	}
	return secret(rabbitURL, "RABBITMQ_URL")(r, p)
}

// rabbitTLS converts connection.ssl.enabled. writeRabbitMQ chooses amqps:// for it; here is the
// warning that the relay verifies the broker's certificate.
func rabbitTLS(r *Result, p *property) Entry {
	if r.valueIs(p.name, "", "false") {
		return Entry{Verdict: Honoured, Target: rabbitURL}
	}
	return Entry{Warning: true, Why: "amqps://, and the broker's certificate is verified: sink.rabbitmq.tls.ca, if its authority is not one of the system's"}
}

// queues converts autoCreateRoutingKey: the relay declares no queues, so a queue for each new
// routing key is refused.
func queues(r *Result, p *property) Entry {
	switch {
	case r.valueIs(p.name, "", "false"):
		return Entry{Why: "the relay declares no queues"}
	case r.valueIs("sink.rabbitmq.routingKey.source", "static", "static"):
		return Entry{Why: "the queue was declared when Debezium started; it is there"}
	}
	return refused("the relay declares no queues: declare those of new routing keys at the broker. Until then their events wait in the retry table")
}

// writeRabbitMQ makes sink.rabbitmq.url of its parts. It does nothing when connection.uri gives the
// address as a whole.
func (r *Result) writeRabbitMQ() {
	const connection = "sink.rabbitmq.connection."
	if r.byName[connection+"uri"] != nil {
		return
	}
	host, port, vhost, scheme := "localhost", "5672", "", "amqp"
	var from []*property
	given := func(name string) *property {
		p := r.usable(connection + name)
		if p != nil {
			from = append(from, p)
		}
		return p
	}
	if p := given("host"); p != nil {
		host = string(p.value)
	}
	if p := given("virtual.host"); p != nil {
		vhost = string(p.value)
		if text, known := p.value.plain(); known {
			vhost = string(literal(url.PathEscape(text)))
		}
	}
	if p := r.usable(connection + "ssl.enabled"); p != nil && r.valueIs(p.name, "", "true") {
		scheme, port, from = "amqps", "5671", append(from, p)
	}
	if p := given("port"); p != nil {
		port = string(p.value)
	}
	if strings.ContainsAny(host, "${}") {
		host += ":" + port
	} else {
		host = net.JoinHostPort(strings.Trim(host, "[]"), port)
	}
	r.set(rabbitURL, quote(scheme+"://"+host+"/"+vhost), from...)
}
