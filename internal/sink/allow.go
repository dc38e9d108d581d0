// Where row data may send events: patterns of exchanges, routing keys and topics.

package sink

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/config/setting"
	"github.com/cdc-relay/cdc-relay/internal/event"
)

// Allow are the patterns of a part of the route: a * stands for any characters, also none, and
// everything else for itself; the empty pattern is that of the empty name, as the default exchange
// has it. Without patterns every name is allowed. The templates take names from
// rows, so whoever may write to the outbox would else choose among all exchanges and topics to
// which the relay's user may publish.
type Allow []string

// Everything is the default.
func Everything() Allow { return Allow{everything} }

const everything = "*" // the pattern of every name

// Bounds are the patterns as a sink wants them: nil, if one of them allows everything.
func (a Allow) Bounds() Allow {
	if slices.Contains(a, everything) {
		return nil
	}
	return a
}

// Allows reports whether a name matches a pattern. It allocates nothing.
func Allows[T string | []byte](a Allow, name T) bool {
	for _, pattern := range a {
		if matches(pattern, name) {
			return true
		}
	}
	return len(a) == 0
}

// matches goes through the name once. When it is stuck, the last * takes one character more: an
// earlier one need never take more, because what is between the two has been found already.
func matches[T string | []byte](pattern string, name T) bool {
	p, star, from := 0, -1, 0
	for i := 0; i < len(name); {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, from = p, i
			p++
		case p < len(pattern) && pattern[p] == name[i]:
			p++
			i++
		case star >= 0:
			from++
			p, i = star+1, from
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// String lists the patterns.
func (a Allow) String() string {
	shown := slices.Clone(a)
	for i, pattern := range a {
		if pattern == "" {
			shown[i] = `""`
		}
	}
	return strings.Join(shown, ", ")
}

// NotAllowedFault is that of a name which no pattern of the key allows; whole: of an exchange or
// topic. Nothing was sent. It is the destination's: its events wait, in order, until a relay starts
// with other patterns.
func NotAllowedFault(destination, name, key string, whole bool) *Fault {
	return &Fault{
		Class: Destination, Reason: NotAllowed, Whole: whole, Destination: destination,
		Text: fmt.Sprintf("%s is not allowed by %s", name, key),
	}
}

// AllowKey is the key of the patterns of a part of the route.
func AllowKey(part string, at *Allow) setting.Key {
	form := setting.Form{"type": setting.PlainTypes}
	k := setting.Texts(allowKey(part), (*[]string)(at), form, `has no pattern; write "*" to allow everything`, func(string) error { return nil })
	k.SectionFault = "is empty; leave it out to allow everything"
	return k
}

func allowKey(part string) string { return "allow." + part }

// AllowKey is the key of the template's patterns.
func (t *NamedTemplate) AllowKey() string { return allowKey(t.Key) }

// CheckAllowed refuses a name that the template's own patterns exclude: where every event goes, or
// the copies of dead letters. They would wait for ever.
func (t *NamedTemplate) CheckAllowed(name, sent string) error {
	if Allows(t.Allow, name) {
		return nil
	}
	return fmt.Errorf("does not allow %q, where %s; add it to the patterns", name, sent)
}

// FindAllowed says how far row data may choose, and which patterns look like mistakes. mirror is
// where copies of dead letters go, nil: nowhere; existing are names that the broker has, where they
// are known.
func FindAllowed(section string, templates []NamedTemplate, mirror *event.Route, existing []string) (found []Finding) {
	for i, p := range templates {
		name, fixed := p.Constant()
		f, key := Finding{Name: "allowed " + strings.ReplaceAll(p.Key, "_", " ") + "s", OK: true}, section+p.AllowKey()
		switch {
		case len(p.Allow.Bounds()) > 0:
			f.Detail = fmt.Sprintf("%s: %s", key, p.Allow)
		case fixed:
			f.Detail = fmt.Sprintf("everything is allowed; %s is %q for every event", section+p.Key, name)
		default:
			f.OK, f.Warn = false, true
			f.Detail = fmt.Sprintf("everything is allowed: row data decides where events go (%s is %q)", section+p.Key, p.Template)
			f.Fix = fmt.Sprintf("list what rows may name in %s", key)
		}
		found = append(found, f)
		for _, pattern := range p.Allow.Bounds() {
			switch {
			case mirror != nil && matches(pattern, [][]byte{mirror.Name, mirror.RoutingKey}[i]):
			case !meet(pattern, p.glob()):
				found = append(found, Finding{
					Name: f.Name, Warn: true, Detail: fmt.Sprintf("pattern %q matches nothing that %s %q can make", pattern, section+p.Key, p.Template),
					Fix: fmt.Sprintf("correct the pattern in %s, or remove it", key),
				})
			case unused(pattern, existing):
				found = append(found, Finding{
					Name: f.Name, Warn: true, Detail: fmt.Sprintf("nothing at the broker matches %q", pattern),
					Fix: fmt.Sprintf("correct the pattern in %s, or create what it is for", key),
				})
			}
		}
	}
	return found
}

// unused reports whether a pattern matches none of the names that exist, if they are known.
func unused(pattern string, existing []string) bool {
	for _, name := range existing {
		if matches(pattern, name) {
			return false
		}
	}
	return len(existing) > 0
}

// meet reports whether some name matches both patterns.
func meet(a, b string) bool {
	var next []bool // of a[i+1:], by j: whether a name matches that and b[j:]
	for i := len(a); i >= 0; i-- {
		row := make([]bool, len(b)+1)
		for j := len(b); j >= 0; j-- {
			inA, inB := i < len(a), j < len(b)
			switch {
			case !inA && !inB:
				row[j] = true
			case inA && a[i] == '*': // it ends here, or takes what b has next
				row[j] = next[j] || inB && row[j+1]
			case inB && b[j] == '*':
				row[j] = row[j+1] || inA && next[j]
			default:
				row[j] = inA && inB && a[i] == b[j] && next[j+1]
			}
		}
		next = row
	}
	return next[0]
}
