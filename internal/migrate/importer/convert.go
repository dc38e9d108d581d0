// How each property becomes keys of the relay's configuration. The rules in table.go name the
// conversions here for single properties. The methods of Result here write the keys that need
// several properties, or that are needed though a property is missing.

package importer

import (
	"fmt"
	"net"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/config/setting"
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
			r.setVerdict(p, Cannot, "", r.unknown(p.name))
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

// unknown returns why a property without a rule is refused, with the name that is probably meant.
func (r *Result) unknown(name string) string {
	var known []string
	for _, c := range chapters() {
		for _, of := range c.rules {
			if c.only == "" || c.only == r.profile {
				known = append(known, of.names...)
			}
		}
	}
	near := setting.Nearest(name, known)
	if near != "" {
		near = ", the nearest known one is " + strings.TrimPrefix(near, "router.")
	}
	return "is not known to this importer" + near + ": leave it out, if Debezium ignores it too"
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
	} {
		if r.byName[e.name] == nil && (e.only == "" || e.only == r.profile) {
			r.absent(e.verdict, e.name, e.target, e.why).Warning = e.why == leftOutHeaders
		}
	}
	warn := func(what, why string) {
		r.Entries = append(r.Entries, &Entry{Verdict: Superseded, Property: what, Warning: true, Why: why})
	}
	if !r.connect() {
		warn("DEBEZIUM_… (environment)", "variables of Debezium Server's environment win over its file, and are not read: write those that it has into the file first")
	}
	if slices.Sort(r.filled); len(r.filled) > 0 {
		warn("${"+strings.Join(slices.Compact(r.filled), "}, ${")+"}", "text to Connect, so somebody fills it in first: the relay reads these variables of its environment")
	}
	r.reportWorker()
}

// reportWorker adds an entry for what neither the file nor the worker's has, which Connect wants
// from one of them.
func (r *Result) reportWorker() {
	var missing []string
	for _, name := range []string{"producer.bootstrap.servers", "key.converter", "value.converter"} {
		if r.byName[name] == nil && r.kind() == "kafka" && (r.connect() || name == "producer.bootstrap.servers") {
			missing = append(missing, name)
		}
	}
	switch {
	case len(missing) == 0:
	case r.connect() && !r.worker:
		r.absent(Cannot, strings.TrimPrefix(strings.Join(missing, ", "), "producer."), "", "the worker's count: give its file with --worker-config")
	default:
		r.absent(Cannot, strings.Join(missing, ", "), "", "no file has it, and Debezium does not start without")
	}
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
	return func(r *Result, p *property) Entry { return r.password(key, variable, p.value, p) }
}

// password writes a password to a key, if it is only references. One that stands in the file is
// never copied: the key refers to the variable instead, and a warning is returned.
func (r *Result) password(key, variable string, v value, p *property) Entry {
	if v.onlyReferences() {
		r.set(key, quote(string(v)), p)
		return Entry{}
	}
	r.doc.set(key, quote("${"+variable+"}"), origins(p)+", not shown here: set the variable")
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
