// Making one list of properties of the layers: which file wins, and what a name of the environment
// stands for.

package settings

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/migrate/importer/output"
	"github.com/cdc-relay/cdc-relay/internal/migrate/importer/read"
)

// server lays the files over each other as Quarkus does: .properties below the environment; of one
// kind the later file wins.
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
		for _, s := range set.once(l) {
			if strings.HasPrefix(s.name, "%") {
				return fmt.Errorf("%s has %s, of a profile of Quarkus; give a file with the settings that count, without the profile", l.File, s.name)
			}
			s.name = afterQuarkus(s.name)
			all = append(all, s)
		}
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
	_, providers := top["debezium.source.config.providers"]
	for _, s := range kept {
		v, err := expandQuarkus(s.text, lookup{settings: top, variables: variables})
		if err == nil && providers && strings.HasPrefix(s.name, "debezium.source.") {
			v, err = expandProviders(v)
		}
		p := &Property{Name: set.canonical(serverless(s.name)), Written: s.written, File: s.file, Value: v}
		if err != nil {
			p.Fault = err.Error()
		}
		set.add(p)
	}
	return nil
}
