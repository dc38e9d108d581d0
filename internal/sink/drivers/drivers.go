// Package drivers registers the sinks: the one place outside their folders that names them.
package drivers

import (
	"slices"

	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit"
	"github.com/cdc-relay/cdc-relay/internal/sink/stdout"
)

// All are the sinks, in the order in which people see them. Only tests change it, before they read
// a configuration.
var All = []*sink.Driver{
	rabbit.Driver(),
	kafka.Driver(),
	stdout.Driver(),
}

// ByName returns the driver of a name, or nil.
func ByName(name string) *sink.Driver {
	for _, d := range All {
		if d.Name == name {
			return d
		}
	}
	return nil
}

// ByRoutePart returns the first driver whose routes have a part with this key, or nil.
func ByRoutePart(key string) *sink.Driver {
	for _, d := range All {
		if d.HasPart(key) {
			return d
		}
	}
	return nil
}

// PartKeys returns the keys of the parts of all routes, each once.
func PartKeys() (keys []string) {
	for _, d := range All {
		for _, p := range d.Route {
			if !slices.Contains(keys, p.Key) {
				keys = append(keys, p.Key)
			}
		}
	}
	return keys
}

// OwnerOfForeignPart explains parts of a route that d does not have. given are the parts, by their
// keys. It returns the first driver with such a part, which somebody had in mind, or nil when d has
// all of them.
func OwnerOfForeignPart(d *sink.Driver, given map[string]string) *sink.Driver {
	for _, other := range All {
		for _, p := range other.Route {
			if _, is := given[p.Key]; is && (d == nil || !d.HasPart(p.Key)) {
				return other
			}
		}
	}
	return nil
}
