// Making source.url of the database's properties.

package rules

import (
	"path"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/migrate/importer/output"
	"github.com/cdc-relay/cdc-relay/internal/migrate/importer/settings"
)

const sourceURL = "source.url"

// connectionParameters are libpq's, and the properties that they are.
var connectionParameters = []struct{ libpq, property string }{
	{"host", "database.hostname"},
	{"port", "database.port"},
	{"user", "database.user"},
	{"dbname", "database.dbname"},
	{"sslmode", "database.sslmode"},
	{"sslcert", "database.sslcert"},
	{"sslkey", "database.sslkey"},
	{"sslrootcert", "database.sslrootcert"},
	{"sslpassword", "database.sslpassword"},
}

// address writes source.url in libpq's form key=value: in a URL a reference, which is known when
// the relay starts, would have to be escaped.
func (b *Builder) address() {
	if b.ByName["database.hostname"] == nil {
		b.Absent(output.Cannot, "database.hostname", sourceURL, "the relay has to know its database")
	}
	if b.Get("database.hostname") == nil {
		return
	}
	var from []*settings.Property
	var parts []string
	for _, c := range connectionParameters {
		p := b.Get(c.property)
		if p == nil && c.libpq == "port" {
			parts = append(parts, "port='5432'") // PGPORT of the relay is another matter
		}
		if p == nil {
			continue
		}
		escaped := slices.Clone(p.Value)
		for i := range escaped {
			if escaped[i].Ref == "" || escaped[i].Known {
				escaped[i].Text = strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(escaped[i].Text)
			}
		}
		parts, from = append(parts, c.libpq+"='"+escaped.Resolved()+"'"), append(from, p)
	}
	b.Set(sourceURL, output.Quote(strings.Join(parts, " ")), from...)
	if p := b.Get("database.password"); p != nil {
		b.Doc.Secret("source.password", p.Value, "POSTGRES_PASSWORD", origins([]*settings.Property{p}))
	}
}

// takeSecret warns of a value that stands in the file.
func (b *Builder) takeSecret(p *settings.Property, target string) {
	if p.Value.OnlyReferences() {
		b.Say(p, output.Honoured, target, "")
		return
	}
	b.Warn(p, output.Honoured, target, passwordWarning)
}

const passwordWarning = "a password stands in the file: better write it to a file of its own, and ${file:/path} here"

// takeKey refuses the forms of keys that only Java reads.
func (b *Builder) takeKey(p *settings.Property) {
	file, _ := p.Value.Plain()
	pem := strings.TrimSuffix(file, path.Ext(file)) + ".pem"
	switch strings.ToLower(path.Ext(file)) {
	case ".pk8", ".der":
		b.Cannot(p, "is PKCS#8 in DER, and libpq's form is PEM: openssl pkcs8 -inform DER -nocrypt -in "+file+" -out "+pem)
	case ".p12", ".pfx":
		b.Cannot(p, "is PKCS#12, and libpq's form is PEM: openssl pkcs12 -nodes -in "+file+" -nocerts -out "+pem)
	default:
		b.Say(p, output.Honoured, sourceURL, "has to be a PEM file")
	}
}
