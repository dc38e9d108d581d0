// Package drivers registers the sinks: the one place outside their folders that names them.
package drivers

import (
	"slices"

	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit"
	"github.com/cdc-relay/cdc-relay/internal/sink/stdout"
)

// All are the sinks that there are, in the order in which people see them. Only a test adds one,
// before it reads a configuration.
var All = []*sink.Driver{
	rabbit.Driver(),
	kafka.Driver(),
	stdout.Driver(),
}

// ByName is the driver of a name; nil: there is none.
func ByName(name string) *sink.Driver {
	for _, d := range All {
		if d.Name == name {
			return d
		}
	}
	return nil
}

// ByRoutePart is the first driver whose routes have a part of this key; nil: there is none.
func ByRoutePart(key string) *sink.Driver {
	for _, d := range All {
		if d.HasPart(key) {
			return d
		}
	}
	return nil
}

// PartKeys are the keys of the parts of all routes, each once.
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

// OwnerOfForeignPart finds the sink that somebody had in mind who gave d these parts of a route, by
// their keys: a driver whose routes have one that d's routes lack; nil: d's routes have all.
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
