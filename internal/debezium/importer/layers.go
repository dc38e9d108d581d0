package importer

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/debezium"
)

// This file makes one list of properties of the layers: which file wins, and what a name of the environment stands for.

// setting is a property under its full name, before its value is read.
type setting struct {
	name, written, file, text string
}

// together decides what the layers are of, and gives their properties to the builder.
func (set *settings) together(layers []layer, worker *Input) error {
	connect := slices.DeleteFunc(slices.Clone(layers), func(l layer) bool { return l.form != formConnect })
	switch {
	case len(connect) > 1:
		return fmt.Errorf("%s and %s are two connectors, and two connectors are not one: import each into a file of its own, for a relay each",
			connect[0].file, connect[1].file)
	case len(connect) == 1 && len(layers) > 1:
		return fmt.Errorf("%s is of Kafka Connect and another file of Debezium Server: they are not layers of one configuration", connect[0].file)
	case len(connect) == 1:
		set.profile = debezium.Connect
		return set.connector(connect[0], worker)
	case worker != nil:
		return errors.New("--worker-config is for a connector of Kafka Connect; Debezium Server has no worker")
	}
	set.profile = debezium.Server
	return set.server(layers)
}

// server lays the files over each other as Quarkus does: .properties below YAML below the environment; of one kind the later
// file wins.
func (set *settings) server(layers []layer) error {
	layers = slices.Clone(layers)
	slices.SortStableFunc(layers, func(x, y layer) int { return cmp.Compare(x.form, y.form) })
	var all []setting
	variables := map[string]string{}
	for _, l := range layers {
		if l.form == formEnvironment {
			all = slices.Concat(all, set.environment(l, all, variables))
			continue
		}
		all = slices.Concat(all, set.active(l))
	}
	top := map[string]setting{}
	for _, s := range all {
		if below, ok := top[s.name]; ok {
			set.note(Superseded, below.written, below.file, "", "overridden by "+s.written+inFile(s.file, below.file))
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
		p := &property{name: set.canonical(serverless(s.name)), written: s.written, file: s.file, value: v}
		if err != nil {
			p.fault = err.Error()
		}
		set.add(p)
	}
	return nil
}

func inFile(file, same string) string {
	if file == same {
		return ""
	}
	return " in " + file
}

// active are the settings of a file that count: those without a profile, and over them those of the profile prod, which is
// the one that a packaged Debezium Server runs with.
func (set *settings) active(l layer) []setting {
	var plain, prod []setting
	pairs, dropped := l.unique()
	for _, name := range dropped {
		set.note(Superseded, name, l.file, "", "given again further down")
	}
	for _, p := range pairs {
		s := setting{name: p.name, written: p.name, file: l.file, text: p.text}
		switch profile, rest, of := cutProfile(p.name); {
		case !of:
			plain = append(plain, s)
		case slices.Contains(strings.Split(profile, ","), "prod"):
			s.name = rest
			prod = append(prod, s)
		default:
			set.note(Superseded, p.name, l.file, "", "of the profile "+profile+", which a packaged Debezium Server does not run with")
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

// afterQuarkus gives names of the engine's own extension, which 3.7 knows beside the old ones, their old name.
func afterQuarkus(name string) string {
	if rest, ok := strings.CutPrefix(name, "quarkus.debezium."); ok {
		return "debezium.source." + rest
	}
	return name
}

// serverPrefixes are the names of Debezium Server and what the rules call them; the first that fits counts.
var serverPrefixes = []struct{ server, rule string }{
	{"debezium.sink.kafka.producer.", "producer."},
	{"debezium.source.", ""},
	{"debezium.sink.", "sink."},
	{"debezium.format.", "format."},
	{"debezium.transforms", "transforms"},
	{"debezium.predicates", "predicates"},
}

// serverless is the name that the rules have for one of Debezium Server's.
func serverless(name string) string {
	for _, p := range serverPrefixes {
		if rest, ok := strings.CutPrefix(name, p.server); ok {
			return p.rule + rest
		}
	}
	if strings.HasPrefix(name, "debezium.") || strings.HasPrefix(name, "quarkus.") {
		return name
	}
	return "other." + name
}

// serverName is the way back.
func serverName(name string) string {
	for _, p := range serverPrefixes {
		if rest, ok := strings.CutPrefix(name, p.rule); ok && p.rule != "" {
			return p.server + rest
		}
	}
	if strings.HasPrefix(name, "debezium.") || strings.HasPrefix(name, "quarkus.") {
		return name
	}
	return "debezium.source." + name
}
