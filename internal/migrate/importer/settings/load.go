// Package settings makes one list of properties of the files that were read: which file wins, and
// what a name of the environment stands for.
package settings

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cdc-relay/cdc-relay/internal/debezium"
	"github.com/cdc-relay/cdc-relay/internal/migrate/importer/read"
)

// Load decides what the layers are of, and gives their properties to the builder.
func (set *Settings) Load(layers []read.File, worker *read.Input) error {
	connect := slices.DeleteFunc(slices.Clone(layers), func(l read.File) bool { return l.Form != read.Connect })
	switch {
	case len(connect) > 1:
		return fmt.Errorf("%s and %s are two connectors, and two connectors are not one: import each into a file of its own, for a relay each",
			connect[0].File, connect[1].File)
	case len(connect) == 1 && len(layers) > 1:
		return fmt.Errorf("%s is of Kafka Connect and another file of Debezium Server: they are not layers of one configuration", connect[0].File)
	case len(connect) == 1:
		set.Profile = debezium.Connect
		return set.connector(connect[0], worker)
	case worker != nil:
		return errors.New("--worker-config is for a connector of Kafka Connect; Debezium Server has no worker")
	}
	set.Profile = debezium.Server
	return set.server(layers)
}
