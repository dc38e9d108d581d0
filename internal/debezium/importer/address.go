package importer

import (
	"net"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
)

// This file makes source.url of the database's properties.

const sourceURL = "source.url"

// parameters of the connection: those that libpq knows by the same name, in this order.
var connectionParameters = []string{"sslmode", "sslcert", "sslkey", "sslrootcert", "sslpassword"}

// address writes source.url: as a URL, or as key=value where a part is only known when the relay starts, because what is put
// into a URL would have to be escaped.
func (b *builder) address() {
	host := b.get("database.hostname")
	if b.byName["database.hostname"] == nil {
		b.absent(Cannot, "database.hostname", sourceURL, "the relay has to know its database")
	}
	if host == nil {
		return
	}
	var from []*property
	parts := map[string]value{"host": host.value}
	for _, p := range []struct{ ours, theirs string }{{"host", "database.hostname"}, {"port", "database.port"}, {"user", "database.user"}, {"dbname", "database.dbname"}} {
		if prop := b.get(p.theirs); prop != nil {
			parts[p.ours] = prop.value
			from = append(from, prop)
		}
	}
	var extra []string
	for _, name := range connectionParameters {
		if prop := b.get("database." + name); prop != nil {
			parts[name] = prop.value
			from, extra = append(from, prop), append(extra, name)
		}
	}
	if prop := b.get("database.initial.statements"); prop != nil {
		if settings, ok := parseStatements(prop); ok {
			for _, s := range settings {
				parts[s[0]] = literal(s[1])
				extra = append(extra, s[0])
			}
			from = append(from, prop)
		}
	}
	b.set(sourceURL, quote(connectionString(parts, extra)), from...)
	if p := b.get("database.password"); p != nil {
		b.doc.secret("source.password", p.value, "POSTGRES_PASSWORD", origins([]*property{p}))
	}
}

func connectionString(parts map[string]value, extra []string) string {
	known := map[string]string{}
	for name, v := range parts {
		text, ok := v.plain()
		if !ok {
			return keyValue(parts, extra)
		}
		known[name] = text
	}
	port := known["port"]
	if port == "" {
		port = "5432"
	}
	u := url.URL{Scheme: "postgres", Host: hosts(known["host"], port), Path: "/" + known["dbname"]}
	if user, ok := known["user"]; ok {
		u.User = url.User(user)
	}
	var query []string
	for _, name := range extra {
		query = append(query, name+"="+queryText.Replace(url.QueryEscape(known[name])))
	}
	u.RawQuery = strings.Join(query, "&")
	return strings.ReplaceAll(u.String(), "$", "$$")
}

// queryText makes of a form's escaping that of libpq, to which a + is no blank; slashes may stay, and are easier to read.
var queryText = strings.NewReplacer("+", "%20", "%2F", "/")

// hosts are the hosts with their port; the Java driver takes several, separated by commas.
func hosts(host, port string) string {
	all := splitList(host)
	for i, h := range all {
		if strings.Contains(h, ":") && net.ParseIP(h) == nil {
			continue // with a port of its own
		}
		all[i] = net.JoinHostPort(h, port)
	}
	return strings.Join(all, ",")
}

// keyValue is libpq's other form.
func keyValue(parts map[string]value, extra []string) string {
	var out []string
	for _, name := range slices.Concat([]string{"host", "port", "user", "dbname"}, extra) {
		if v, ok := parts[name]; ok {
			escaped := slices.Clone(v)
			for i := range escaped {
				if escaped[i].ref == "" || escaped[i].known {
					escaped[i].text = strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(escaped[i].text)
				}
			}
			out = append(out, name+"='"+escaped.resolved()+"'")
		}
	}
	return strings.Join(out, " ")
}

func (b *builder) takePassword(p *property) {
	if p.value.onlyReferences() {
		b.say(p, Honoured, "source.password", "")
		return
	}
	b.warn(p, Honoured, "source.password", passwordWarning)
}

const passwordWarning = "a password stands in the file: better write it to a file of its own, and ${file:/path} here"

// takeKey refuses the forms of keys that only Java reads.
func (b *builder) takeKey(p *property) {
	if how := keyForm(p); how != "" {
		b.cannot(p, how)
		return
	}
	b.say(p, Honoured, sourceURL, "has to be a PEM file")
}

// keyForm is how to convert the key; "" when it need not be.
func keyForm(p *property) string {
	file, _ := p.value.plain()
	base := strings.TrimSuffix(file, path.Ext(file))
	switch strings.ToLower(path.Ext(file)) {
	case ".pk8", ".der":
		return "is PKCS#8 in DER, and libpq's form is PEM: openssl pkcs8 -inform DER -nocrypt -in " + file + " -out " + base + ".pem"
	case ".p12", ".pfx":
		return "is PKCS#12, and libpq's form is PEM: openssl pkcs12 -nodes -in " + file + " -nocerts -out " + base + ".pem"
	}
	return ""
}

var setStatement = regexp.MustCompile(`(?i)^SET\s+(?:SESSION\s+)?([a-z_][a-z0-9_.]*)\s*(?:=|\s+TO\s+)\s*(?:'([^']*)'|([A-Za-z0-9_.+-]+))$`)

// parseStatements reads SET statements; false when there is another one. Debezium separates them by ; and writes one that is
// meant as ;;.
func parseStatements(p *property) ([][2]string, bool) {
	text, ok := p.value.plain()
	if !ok || strings.Contains(text, ";;") {
		return nil, false
	}
	var settings [][2]string
	for statement := range strings.SplitSeq(text, ";") {
		if statement = strings.TrimSpace(statement); statement == "" {
			continue
		}
		m := setStatement.FindStringSubmatch(statement)
		if m == nil {
			return nil, false
		}
		settings = append(settings, [2]string{strings.ToLower(m[1]), m[2] + m[3]})
	}
	return settings, true
}

func (b *builder) takeStatements(p *property) {
	if _, ok := parseStatements(p); !ok {
		b.cannot(p, "only SET name = value can become a parameter of the connection; ALTER ROLE … SET does the same for the role")
		return
	}
	b.say(p, Mapped, sourceURL, "parameters of all connections")
}
