// Reading the login of a JAAS string.

package rules

import (
	"regexp"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/migrate/importer/output"
	"github.com/cdc-relay/cdc-relay/internal/migrate/importer/settings"
)

type login struct{ username, password output.Value }

var (
	jaasModule = regexp.MustCompile(`^\s*[\w.]*\.(PlainLoginModule|ScramLoginModule)\s+required\s`)
	jaasOption = regexp.MustCompile(`\b(username|password)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))`)
	jaasEscape = regexp.MustCompile(`\\(.)`)
)

// parseJAAS reads the login of a JAAS string. References in it stay references: each stands for its letter while the string is
// taken apart.
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
	if !jaasModule.MatchString(text.String()) {
		return login{}, false
	}
	found := map[string]output.Value{}
	for _, m := range jaasOption.FindAllStringSubmatch(text.String(), -1) {
		found[m[1]] = restore(jaasEscape.ReplaceAllString(m[2]+m[3], "$1")+m[4], refs).Joined()
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
