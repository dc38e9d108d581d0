// The properties of a connector of Kafka Connect, and those of its worker that count for it.

package settings

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/magiconair/properties"

	"github.com/cdc-relay/cdc-relay/internal/migrate/importer/output"
	"github.com/cdc-relay/cdc-relay/internal/migrate/importer/read"
)

// connector takes the properties of one connector of Connect, and below them those of its worker
// that count for it.
func (set *Settings) connector(l read.File, worker *read.Input) error {
	pairs, dropped := l.Unique()
	for _, name := range dropped {
		set.note(output.Superseded, name, l.File, "", "given again further down")
	}
	var settings []setting
	for _, p := range pairs {
		settings = append(settings, setting{name: p.Name, written: p.Name, file: l.File, text: p.Text})
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
		set.Worker = true
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
		set.addReference(&Property{Name: set.canonical(name), Written: s.written, File: s.file, Value: output.Literal(s.text)})
	}
	set.withoutClass()
	for _, p := range below {
		set.addShared(&Property{Name: workerName(p.name), Written: p.written, File: worker.Name, Value: output.Literal(p.text)})
	}
	return nil
}

// addShared takes a property of the worker. The options of a converter count only together with its
// class.
func (set *Settings) addShared(p *Property) {
	if class, _, option := cutConverter(p.Name); option {
		if own := set.ByName[class]; own != nil && own.File != p.File {
			set.Say(p, output.Superseded, "", "the connector has its own "+class)
			return
		}
	}
	set.addReference(p)
}

// withoutClass drops the options of converters whose class the connector leaves to its worker:
// Connect reads them from there.
func (set *Settings) withoutClass() {
	set.Props = slices.DeleteFunc(set.Props, func(p *Property) bool {
		class, _, option := cutConverter(p.Name)
		if !option || set.ByName[class] != nil {
			return false
		}
		set.Say(p, output.Superseded, "", "counts only beside "+class+" in the same file")
		delete(set.ByName, p.Name)
		return true
	})
}

// cutConverter splits key.converter.schemas.enable.
func cutConverter(name string) (class, option string, ok bool) {
	part, option, ok := strings.Cut(name, ".converter.")
	return part + ".converter", option, ok && (part == "key" || part == "value" || part == "header")
}

// addReference follows the references to providers.
func (set *Settings) addReference(p *Property) {
	v, err := expandProviders(p.Value, set.providers)
	if err != nil {
		p.Fault = err.Error()
	} else {
		p.Value = v
	}
	set.add(p)
}

// readWorker reads the worker's .properties, or the environment of a container that makes them of
// it.
func (set *Settings) readWorker(worker *read.Input) (settings []setting, err error) {
	if read.Wrapping.Match(worker.Content) {
		return nil, errors.New("is of Compose or Kubernetes; give the worker's .properties, or its environment as an env file (docker compose exec SERVICE env, kubectl exec NAME -- env)")
	}
	if !read.IsEnvironment(worker.Content) || strings.Contains(worker.Name, ".properties") {
		pairs, err := read.ParseProperties(worker.Content, properties.ISO_8859_1)
		for _, p := range pairs {
			settings = append(settings, setting{name: p.Name, written: p.Name, file: worker.Name, text: p.Text})
		}
		return settings, err
	}
	l, err := read.ReadEnvironment(worker.Name, worker.Content)
	var dropped []string
	if l.Pairs, dropped = l.Unique(); len(dropped) > 0 {
		set.note(output.Superseded, strings.Join(dropped, ", "), worker.Name, "", "given again further down")
	}
	pairs, others := workerVariables(l)
	for _, p := range pairs {
		name := strings.TrimPrefix(strings.TrimSuffix(p.Name, imageDefault), "CONNECT_")
		name = strings.ToLower(strings.ReplaceAll(name, "_", "."))
		settings = append(settings, setting{name: name, written: p.Name, file: worker.Name, text: p.Text})
	}
	if len(others) > 0 {
		set.note(output.Superseded, strings.Join(others, ", "), worker.Name, "", "not Connect's")
	}
	return settings, err
}

// workerName is the rules' name of a worker's property: those that a connector has too count for it
// when it lacks them.
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
