// The flags that name another destination.

package operate

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/drivers"
)

// routeFlags are the flags of a destination, one for each part that a sink's routes have.
type routeFlags struct {
	cmd   *cobra.Command
	parts map[string]*string // by key
	route event.Route        // what is nil stays as it was
}

func (f *routeFlags) add(cmd *cobra.Command) {
	f.cmd, f.parts = cmd, map[string]*string{}
	for _, d := range drivers.All {
		for _, p := range d.Route {
			if f.parts[p.Key] == nil { // two sinks may have the same name for a part
				f.parts[p.Key] = cmd.Flags().String(p.Flag(), "", d.Broker+": "+p.Replay)
			}
		}
	}
}

// read checks that the flags name a destination of the configured broker.
func (f *routeFlags) read(c *config.Config) error {
	if f.cmd == nil {
		return nil
	}
	given := f.given()
	d := c.Sink.Driver
	if foreign := drivers.Foreign(d, given); foreign != nil {
		return command.UsageError(fmt.Sprintf("%s %s for %s, and sink.%s is not configured", flagsOf(foreign), isOrAre(foreign), foreign.Broker, foreign.Name))
	}
	f.route = d.RouteOf(given)
	for _, p := range d.Route {
		switch value, is := given[p.Key]; {
		case is && value == "" && !p.MayEmpty:
			return command.UsageError("--" + p.Flag() + " is empty")
		case p.Limit > 0 && len(value) > p.Limit:
			return command.UsageError(fmt.Sprintf("%s %s limited to %d bytes", flagsOf(d), isOrAre(d), p.Limit))
		}
	}
	return nil
}

// given are the parts of a route that flags name, by their keys.
func (f *routeFlags) given() map[string]string {
	given := map[string]string{}
	for key, value := range f.parts {
		if f.cmd.Flags().Changed(strings.ReplaceAll(key, "_", "-")) {
			given[key] = *value
		}
	}
	return given
}

// flagsOf names the flags of a sink's routes.
func flagsOf(d *sink.Driver) string {
	var names []string
	for _, p := range d.Route {
		names = append(names, "--"+p.Flag())
	}
	return strings.Join(names, " and ")
}

func isOrAre(d *sink.Driver) string {
	if len(d.Route) > 1 {
		return "are"
	}
	return "is"
}
