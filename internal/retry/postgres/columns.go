// Extra columns of a row.

package postgres

import (
	"errors"

	"github.com/cdc-relay/cdc-relay/internal/dlq"
)

var errColumns = errors.New("column \"columns\" is damaged: it is not as a relay writes it")

// readColumns returns the values of the columns with these names; nil for a column that b lacks.
// The values alias b.
func readColumns(b []byte, names []string) ([][]byte, error) {
	if len(names) == 0 {
		return nil, nil
	}
	values := make([][]byte, len(names))
	ok := dlq.EachColumn(b, func(name, value []byte) {
		for i := range names {
			if names[i] == string(name) {
				values[i] = value
			}
		}
	})
	if !ok {
		return nil, errColumns
	}
	return values, nil
}
