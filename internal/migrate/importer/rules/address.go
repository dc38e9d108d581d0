// Making source.url of the database's properties.

package rules

import (
	"net"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/migrate/importer/output"
	"github.com/cdc-relay/cdc-relay/internal/migrate/importer/settings"
)

const SourceURL = "source.url"

// connectionParameters are those that libpq knows by the same name, in this order.
var connectionParameters = []string{"sslmode", "sslcert", "sslkey", "sslrootcert", "sslpassword"}

// address writes source.url: as a URL, or as key=value where a part is only known when the relay
// starts, because what is put into a URL would have to be escaped.
func (b *Builder) address() {
	host := b.Get("database.hostname")
	if b.ByName["database.hostname"] == nil {
		b.Absent(output.Cannot, "database.hostname", SourceURL, "the relay has to know its database")
	}
	if host == nil {
		return
	}
	var from []*settings.Property
	parts := map[string]output.Value{"host": host.Value}
	for _, p := range []struct{ ours, theirs string }{{"host", "database.hostname"}, {"port", "database.port"}, {"user", "database.user"}, {"dbname", "database.dbname"}} {
		if prop := b.Get(p.theirs); prop != nil {
			parts[p.ours] = prop.Value
			from = append(from, prop)
		}
	}
	var extra []string
	for _, name := range connectionParameters {
		if prop := b.Get("database." + name); prop != nil {
			parts[name] = prop.Value
			from, extra = append(from, prop), append(extra, name)
		}
	}
	if prop := b.Get("database.initial.statements"); prop != nil {
		if statements, ok := parseStatements(prop); ok {
			for _, s := range statements {
				parts[s[0]] = output.Literal(s[1])
				extra = append(extra, s[0])
			}
			from = append(from, prop)
		}
	}
	b.Set(SourceURL, output.Quote(connectionString(parts, extra)), from...)
	if p := b.Get("database.password"); p != nil {
		b.Doc.Secret("source.password", p.Value, "POSTGRES_PASSWORD", origins([]*settings.Property{p}))
	}
}

func connectionString(parts map[string]output.Value, extra []string) string {
	known := map[string]string{}
	for name, v := range parts {
		text, ok := v.Plain()
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

// queryText makes of a form's escaping that of libpq, to which a + is no blank; slashes may stay,
// and are easier to read.
var queryText = strings.NewReplacer("+", "%20", "%2F", "/")

// hosts are the hosts with their port; the Java driver takes several, separated by commas.
func hosts(host, port string) string {
	all := settings.SplitList(host)
	for i, h := range all {
		if strings.Contains(h, ":") && net.ParseIP(h) == nil {
			continue // with a port of its own
		}
		all[i] = net.JoinHostPort(h, port)
	}
	return strings.Join(all, ",")
}

// keyValue is libpq's other form.
func keyValue(parts map[string]output.Value, extra []string) string {
	var out []string
	for _, name := range slices.Concat([]string{"host", "port", "user", "dbname"}, extra) {
		if v, ok := parts[name]; ok {
			escaped := slices.Clone(v)
			for i := range escaped {
				if escaped[i].Ref == "" || escaped[i].Known {
					escaped[i].Text = strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(escaped[i].Text)
				}
			}
			out = append(out, name+"='"+escaped.Resolved()+"'")
		}
	}
	return strings.Join(out, " ")
}

func (b *Builder) takePassword(p *settings.Property) {
	if p.Value.OnlyReferences() {
		b.Say(p, output.Honoured, "source.password", "")
		return
	}
	b.Warn(p, output.Honoured, "source.password", passwordWarning)
}

const passwordWarning = "a password stands in the file: better write it to a file of its own, and ${file:/path} here"

// takeKey refuses the forms of keys that only Java reads.
func (b *Builder) takeKey(p *settings.Property) {
	if how := keyForm(p); how != "" {
		b.Cannot(p, how)
		return
	}
	b.Say(p, output.Honoured, SourceURL, "has to be a PEM file")
}

// keyForm is how to convert the key; "" when it need not be.
func keyForm(p *settings.Property) string {
	file, _ := p.Value.Plain()
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

// parseStatements reads SET statements; false when there is another one. Debezium separates them by
// ; and writes one that is meant as ;;.
func parseStatements(p *settings.Property) ([][2]string, bool) {
	text, ok := p.Value.Plain()
	if !ok || strings.Contains(text, ";;") {
		return nil, false
	}
	var parsed [][2]string
	for statement := range strings.SplitSeq(text, ";") {
		if statement = strings.TrimSpace(statement); statement == "" {
			continue
		}
		m := setStatement.FindStringSubmatch(statement)
		if m == nil {
			return nil, false
		}
		parsed = append(parsed, [2]string{strings.ToLower(m[1]), m[2] + m[3]})
	}
	return parsed, true
}

func (b *Builder) takeStatements(p *settings.Property) {
	if _, ok := parseStatements(p); !ok {
		b.Cannot(p, "only SET name = value can become a parameter of the connection; ALTER ROLE … SET does the same for the role")
		return
	}
	b.Say(p, output.Mapped, SourceURL, "parameters of all connections")
}
