// Extra columns and shape of a row.

package postgres

import (
	"errors"
	"sync"

	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/event"
)

var errColumns = errors.New("column \"columns\" is damaged: it is not as a relay writes it")

// readColumns returns the values of the columns with these names, nil for a column that b lacks,
// and the shape, nil when b has none. They alias b.
func readColumns(b []byte, names []string) (values [][]byte, shape []byte, err error) {
	if len(names) > 0 {
		values = make([][]byte, len(names))
	}
	shape, ok := dlq.EachColumn(b, func(name, value []byte) {
		for i := range names {
			if names[i] == string(name) {
				values[i] = value
			}
		}
	})
	if !ok {
		return nil, nil, errColumns
	}
	return values, shape, nil
}

// shapes gives the rows of a table one shape, as the stream does, and each shape one text. Both are
// kept because rows are read and written by the thousand.
type shapes struct {
	mu    sync.Mutex
	read  map[string]*event.Shape // nil: it is no shape
	texts map[*event.Shape][]byte
}

// maxShapes bounds each map: tables are altered, and described again.
const maxShapes = 256

// of is the shape that a row has stored. It is nil also for a text that this version cannot read,
// as one that a later version wrote: the row keeps it, and its event is refused by an encoder that
// needs it, as one that was deferred without a shape.
func (s *shapes) of(text []byte) *event.Shape {
	if text == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	shape, known := s.read[string(text)]
	if known {
		return shape
	}
	if shape, err := event.ParseShape(text); err == nil {
		return keep(&s.read, string(text), shape)
	}
	return keep(&s.read, string(text), nil)
}

// text is what is stored of a shape; nil for none. It is not to be changed.
func (s *shapes) text(shape *event.Shape) []byte {
	if shape == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if text := s.texts[shape]; text != nil {
		return text
	}
	return keep(&s.texts, shape, event.AppendShape(nil, shape))
}

// keep adds a value to a map of at most maxShapes and returns it.
func keep[K comparable, V any](m *map[K]V, key K, value V) V {
	if *m == nil || len(*m) >= maxShapes {
		*m = map[K]V{}
	}
	(*m)[key] = value
	return value
}
