// Making one list of properties of the layers: which file wins, and what a name of the environment
// stands for.

package settings

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/migrate/importer/output"
	"github.com/cdc-relay/cdc-relay/internal/migrate/importer/read"
)

// server lays the files over each other as Quarkus does: .properties below YAML below the
// environment; of one kind the later file wins.
func (set *Settings) server(layers []read.File) error {
	layers = slices.Clone(layers)
	slices.SortStableFunc(layers, func(x, y read.File) int { return cmp.Compare(x.Form, y.Form) })
	var all []setting
	variables := map[string]string{}
	for _, l := range layers {
		if l.Form == read.Environment {
			all = slices.Concat(all, set.environment(l, all, variables))
			continue
		}
		all = slices.Concat(all, set.active(l))
	}
	top := map[string]setting{}
	for _, s := range all {
		if below, ok := top[s.name]; ok {
			set.note(output.Superseded, below.written, below.file, "", "overridden by "+s.written+inFile(s.file, below.file))
		}
		top[s.name] = s
	}
	kept := slices.DeleteFunc(all, func(s setting) bool { return top[s.name] != s })
	if !slices.ContainsFunc(kept, func(s setting) bool { return strings.HasPrefix(s.name, "debezium.") }) {
		return errors.New("no file has a name that begins with debezium. or DEBEZIUM_: they configure no Debezium Server")
	}
	set.aliases(kept)
	for _, s := range kept {
		if alias, ok := strings.CutPrefix(s.name, "debezium.source.config.providers."); ok {
			if alias, ok = strings.CutSuffix(alias, ".class"); ok {
				set.providers[alias] = strings.TrimSpace(s.text)
			}
		}
	}
	for _, s := range kept {
		left := maxReferences
		v, err := expandQuarkus(s.text, lookup{settings: top, variables: variables, left: &left})
		if err == nil && len(set.providers) > 0 && strings.HasPrefix(s.name, "debezium.source.") {
			v, err = expandProviders(v, set.providers)
		}
		p := &Property{Name: set.canonical(serverless(s.name)), Written: s.written, File: s.file, Value: v}
		if err != nil {
			p.Fault = err.Error()
		}
		set.add(p)
	}
	return nil
}

// active are the settings of a file that count: those without a profile, and over them those of the
// profile prod, which is the one that a packaged Debezium Server runs with.
func (set *Settings) active(l read.File) []setting {
	var plain, prod []setting
	pairs, dropped := l.Unique()
	for _, name := range dropped {
		set.note(output.Superseded, name, l.File, "", "given again further down")
	}
	for _, p := range pairs {
		s := setting{name: p.Name, written: p.Name, file: l.File, text: p.Text}
		switch profile, rest, of := read.CutProfile(p.Name); {
		case !of:
			plain = append(plain, s)
		case slices.Contains(strings.Split(profile, ","), "prod"):
			s.name = rest
			prod = append(prod, s)
		default:
			set.note(output.Superseded, p.Name, l.File, "", "of the profile "+profile+", which a packaged Debezium Server does not run with")
		}
	}
	for i := range plain {
		plain[i].name = afterQuarkus(plain[i].name)
	}
	for i := range prod {
		prod[i].name = afterQuarkus(prod[i].name)
	}
	return append(plain, prod...)
}
