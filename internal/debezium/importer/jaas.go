package importer

import (
	"regexp"
	"strings"
)

// This file reads the login of a JAAS string.

type login struct{ username, password value }

var (
	jaasModule = regexp.MustCompile(`^\s*[\w.]*\.(PlainLoginModule|ScramLoginModule)\s+required\s`)
	jaasOption = regexp.MustCompile(`\b(username|password)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))`)
	jaasEscape = regexp.MustCompile(`\\(.)`)
)

// parseJAAS reads the login of a JAAS string. References in it stay references: each stands for its letter while the string is
// taken apart.
func parseJAAS(v value) (login, bool) {
	var text strings.Builder
	refs := map[rune]part{}
	for i, p := range v {
		if p.ref != "" {
			stand := rune(0xF0000 + i) // of a plane that nobody writes with
			refs[stand] = p
			text.WriteRune(stand)
			continue
		}
		text.WriteString(p.text)
	}
	if !jaasModule.MatchString(text.String()) {
		return login{}, false
	}
	found := map[string]value{}
	for _, m := range jaasOption.FindAllStringSubmatch(text.String(), -1) {
		found[m[1]] = restore(jaasEscape.ReplaceAllString(m[2]+m[3], "$1")+m[4], refs).joined()
	}
	l := login{username: found["username"], password: found["password"]}
	return l, l.username != nil && l.password != nil
}

func restore(s string, refs map[rune]part) value {
	v := value{}
	for _, r := range s {
		if p, ok := refs[r]; ok {
			v = append(v, p)
			continue
		}
		v = append(v, part{text: string(r)})
	}
	return v
}

func (b *builder) takeJAAS(p *property) {
	l, ok := parseJAAS(p.value)
	switch {
	case p.value.isReference():
		b.cannot(p, "is a reference as a whole; write username and password apart, to sink.kafka.sasl")
	case !ok:
		b.cannot(p, "is no PlainLoginModule and no ScramLoginModule with username and password")
	case l.password.onlyReferences():
		b.say(p, Mapped, "sink.kafka.sasl", "")
	default:
		b.warn(p, Mapped, "sink.kafka.sasl", passwordWarning)
	}
}
