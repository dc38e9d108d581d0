// A rule, and the ways to make one.

package rules

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/migrate/importer/output"
	"github.com/cdc-relay/cdc-relay/internal/migrate/importer/settings"
)

// rule says what becomes of some properties. Names are those of Connect; Debezium Server's without
// debezium.source., and sink., format., transforms. and predicates. without debezium.; producer. is
// Connect's producer.override. and the server's sink.kafka.producer.; router. is transforms.NAME.
// of the Outbox Event Router. A * at the end, or between dots, is any text.
type rule struct {
	Names   []string
	Only    string // the profile that has it; "" for both
	verdict output.Verdict
	target  string                                 // our key
	why     string                                 // for the report and for docs/reference.md
	take    func(b *Builder, p *settings.Property) // nil: the verdict is always this one
}

// Fits compares a name with a pattern in which * is any text.
func Fits(pattern, name string) bool {
	fits, err := path.Match(pattern, name)
	return err == nil && fits
}

// superseded is a rule for properties that need nothing.
func superseded(why string, names ...string) rule {
	return rule{Names: names, verdict: output.Superseded, why: why}
}

// impossible is a rule for properties that are always refused.
func impossible(why string, names ...string) rule {
	return rule{Names: names, verdict: output.Cannot, why: why}
}

// honoured is a rule for properties that are written somewhere by what is made of several.
func honoured(target, why string, names ...string) rule {
	return rule{Names: names, verdict: output.Honoured, target: target, why: why}
}

// mapped is honoured for what has another name or unit here.
func mapped(target, why string, names ...string) rule {
	return rule{Names: names, verdict: output.Mapped, target: target, why: why}
}

// when is a rule that depends on the value.
func when(r rule, take func(b *Builder, p *settings.Property)) rule {
	r.take = take
	return r
}

// warned is a rule whose reason is read as a warning.
func warned(r rule) rule {
	return when(r, func(b *Builder, p *settings.Property) { b.Warn(p, r.verdict, "", r.why) })
}

// unlessOn is superseded while the property is not true, and cannot when it is.
func unlessOn(off, on string, names ...string) rule {
	return oneOf(superseded(off+"; true: cannot, "+on, names...), on, map[string]string{"false": off})
}

// oneOf gives a verdict for each value, and cannot for others, with a word on why there are no
// others.
func oneOf(r rule, noOthers string, values map[string]string) rule {
	known := slices.DeleteFunc(slices.Sorted(maps.Keys(values)), func(v string) bool { return v == "" })
	others := "want " + strings.Join(known, ", ")
	if len(known) > 1 {
		others = "want one of " + strings.Join(known, ", ")
	}
	if noOthers != "" {
		others += ": " + noOthers
	}
	return when(r, func(b *Builder, p *settings.Property) {
		for value, why := range values {
			if b.Is(p.Name, "", value) {
				b.Say(p, r.verdict, r.target, why)
				return
			}
		}
		b.Cannot(p, fmt.Sprintf("is %q, %s", p.Value.Resolved(), others))
	})
}

const (
	noClasses       = "there are no Java classes here"
	unknownProperty = "is not known to this importer; if Debezium ignores it too, use --force"
)

// only is rules that one profile has.
func only(profile string, list ...rule) []rule {
	for i := range list {
		list[i].Only = profile
	}
	return list
}
