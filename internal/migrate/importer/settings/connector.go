// The properties of a connector of Kafka Connect, and those of its worker that count for it.

package settings

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/migrate/importer/output"
	"github.com/cdc-relay/cdc-relay/internal/migrate/importer/read"
)

// connector takes the properties of one connector of Connect, and below them those of its worker
// that count for it.
func (set *Settings) connector(l read.File, worker *read.Input) error {
	own := set.once(l)
	var below []setting
	if worker != nil {
		l, err := read.Worker(*worker)
		if err == nil && !l.Has("bootstrap.servers") && !l.Has("key.converter") {
			err = errors.New("has neither bootstrap.servers nor key.converter: it configures no worker. " +
				"A container makes a .properties file of its environment: give that, such as config/connect-distributed.properties of Debezium's image")
		}
		if err != nil {
			return fmt.Errorf("%s: %w", worker.Name, err)
		}
		below, set.Worker = set.once(l), true
	}
	set.aliases(own)
	for _, s := range own {
		name := s.name
		if rest, ok := strings.CutPrefix(name, "producer.override."); ok {
			name = "producer." + rest
		}
		set.addReference(&Property{Name: set.canonical(name), Written: s.written, File: s.file, Value: output.Literal(s.text)})
	}
	set.withoutClass()
	for _, s := range below {
		set.addShared(&Property{Name: workerName(s.name), Written: s.written, File: s.file, Value: output.Literal(s.text)})
	}
	return nil
}

// addShared takes a property of the worker. The options of a converter count only together with its
// class.
func (set *Settings) addShared(p *Property) {
	if class, option := cutConverter(p.Name); option {
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
		class, option := cutConverter(p.Name)
		if !option || set.ByName[class] != nil {
			return false
		}
		set.Say(p, output.Superseded, "", "counts only beside "+class+" in the same file")
		delete(set.ByName, p.Name)
		return true
	})
}

// cutConverter is key.converter for key.converter.schemas.enable.
func cutConverter(name string) (class string, option bool) {
	part, _, option := strings.Cut(name, ".converter.")
	return part + ".converter", option && (part == "key" || part == "value" || part == "header")
}

// addReference follows the references to providers.
func (set *Settings) addReference(p *Property) {
	v, err := expandProviders(p.Value)
	if err != nil {
		p.Fault = err.Error()
	} else {
		p.Value = v
	}
	set.add(p)
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
