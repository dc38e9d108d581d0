package importer

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/magiconair/properties"
)

// connector takes the properties of one connector of Connect, and below them those of its worker that count for it.
func (set *settings) connector(l layer, worker *Input) error {
	pairs, dropped := l.unique()
	for _, name := range dropped {
		set.note(Superseded, name, l.file, "", "given again further down")
	}
	var settings []setting
	for _, p := range pairs {
		settings = append(settings, setting{name: p.name, written: p.name, file: l.file, text: p.text})
	}
	var below []setting
	if worker != nil {
		var err error
		if below, err = set.readWorker(worker); err != nil {
			return fmt.Errorf("%s: %w", worker.Name, err)
		}
		if !slices.ContainsFunc(below, func(p setting) bool { return p.name == "bootstrap.servers" || p.name == "key.converter" }) {
			return fmt.Errorf("%s: %w", worker.Name, errors.New("has neither bootstrap.servers nor key.converter: it configures no worker"))
		}
		set.worker = true
	}
	for _, p := range below {
		if alias, ok := strings.CutPrefix(p.name, "config.providers."); ok {
			if alias, ok = strings.CutSuffix(alias, ".class"); ok {
				set.providers[alias] = strings.TrimSpace(p.text)
			}
		}
	}
	set.aliases(settings)
	for _, s := range settings {
		name := s.name
		if rest, ok := strings.CutPrefix(name, "producer.override."); ok {
			name = "producer." + rest
		}
		set.addReference(&property{name: set.canonical(name), written: s.written, file: s.file, value: literal(s.text)})
	}
	set.withoutClass()
	for _, p := range below {
		set.addShared(&property{name: workerName(p.name), written: p.written, file: worker.Name, value: literal(p.text)})
	}
	return nil
}

// addShared takes a property of the worker. The options of a converter count only together with its class.
func (set *settings) addShared(p *property) {
	if class, _, option := cutConverter(p.name); option {
		if own := set.byName[class]; own != nil && own.file != p.file {
			set.say(p, Superseded, "", "the connector has its own "+class)
			return
		}
	}
	set.addReference(p)
}

// withoutClass drops the options of converters whose class the connector leaves to its worker: Connect reads them from there.
func (set *settings) withoutClass() {
	set.props = slices.DeleteFunc(set.props, func(p *property) bool {
		class, _, option := cutConverter(p.name)
		if !option || set.byName[class] != nil {
			return false
		}
		set.say(p, Superseded, "", "counts only beside "+class+" in the same file")
		delete(set.byName, p.name)
		return true
	})
}

// cutConverter splits key.converter.schemas.enable.
func cutConverter(name string) (class, option string, ok bool) {
	part, option, ok := strings.Cut(name, ".converter.")
	return part + ".converter", option, ok && (part == "key" || part == "value" || part == "header")
}

// addReference follows the references to providers.
func (set *settings) addReference(p *property) {
	v, err := expandProviders(p.value, set.providers)
	if err != nil {
		p.fault = err.Error()
	} else {
		p.value = v
	}
	set.add(p)
}

// readWorker reads the worker's .properties, or the environment of a container that makes them of it.
func (set *settings) readWorker(worker *Input) (settings []setting, err error) {
	if wrapping.Match(worker.Content) {
		return nil, errors.New("is of Compose or Kubernetes; give the worker's .properties, or its environment as an env file (docker compose exec SERVICE env, kubectl exec NAME -- env)")
	}
	if !isEnvironment(worker.Content) || strings.Contains(worker.Name, ".properties") {
		pairs, err := parseProperties(worker.Content, properties.ISO_8859_1)
		for _, p := range pairs {
			settings = append(settings, setting{name: p.name, written: p.name, file: worker.Name, text: p.text})
		}
		return settings, err
	}
	l, err := readEnvironment(worker.Name, worker.Content)
	var dropped []string
	if l.pairs, dropped = l.unique(); len(dropped) > 0 {
		set.note(Superseded, strings.Join(dropped, ", "), worker.Name, "", "given again further down")
	}
	pairs, others := workerVariables(l)
	for _, p := range pairs {
		name := strings.TrimPrefix(strings.TrimSuffix(p.name, imageDefault), "CONNECT_")
		name = strings.ToLower(strings.ReplaceAll(name, "_", "."))
		settings = append(settings, setting{name: name, written: p.name, file: worker.Name, text: p.text})
	}
	if len(others) > 0 {
		set.note(Superseded, strings.Join(others, ", "), worker.Name, "", "not Connect's")
	}
	return settings, err
}

// workerName is the rules' name of a worker's property: those that a connector has too count for it when it lacks them.
func workerName(name string) string {
	switch {
	case name == "bootstrap.servers":
		return "producer.bootstrap.servers"
	case strings.HasPrefix(name, "producer."), strings.HasPrefix(name, "config.providers"),
		strings.HasPrefix(name, "key.converter"), strings.HasPrefix(name, "value.converter"), strings.HasPrefix(name, "header.converter"):
		return name
	}
	return "worker." + name
}
