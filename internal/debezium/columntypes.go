// What is known of a table before it has rows: types with which every row would be an event
// without a record.

package debezium

import (
	"fmt"
	"slices"

	"github.com/cdc-relay/cdc-relay/internal/debezium/connect"
	"github.com/cdc-relay/cdc-relay/internal/debezium/connect/columns"
	"github.com/cdc-relay/cdc-relay/internal/event"
)

// Misfits says what is wrong with the types of the columns that the options name. A column that is
// not there is none of them.
func (o *Options) Misfits(shapes []event.ColumnShape) []string {
	var found []string
	check := func(option, name string, wants ...connect.Type) {
		i := slices.IndexFunc(shapes, func(c event.ColumnShape) bool { return c.Name == name })
		if i < 0 {
			return
		}
		c, err := columns.NewColumn(shapes[i], o.modes)
		switch {
		case err != nil:
			found = append(found, fmt.Sprintf("%s: %s", option, err))
		case len(wants) > 0 && !slices.Contains(wants, c.Schema.Type):
			found = append(found, fmt.Sprintf("%s: column %q is of Connect's type %s, wanted %s", option, name, c.Schema.Type, wants[0]))
		}
	}
	check(optionID, o.id)
	check(optionRoute, o.route, connect.String)
	check(optionKey, o.key)
	check(optionPayload, o.payload)
	if o.version != "" {
		check(optionVersion, o.version, connect.Int32)
	}
	for _, f := range o.placed {
		switch {
		case f.where != asPartition:
			check(optionPlacement, f.column)
		case o.profile == Connect:
			// Server's sinks choose the partition themselves, whatever the column has
			check(optionPlacement, f.column, connect.Int32)
		}
	}
	return found
}
