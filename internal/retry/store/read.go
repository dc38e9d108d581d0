// What a read of ordering groups asks for, and its answer.

package store

import (
	"github.com/cdc-relay/cdc-relay/internal/event"
)

// After is the position of a row; rows behind it are read. Zero is before all rows.
type After struct {
	Incarnation int64
	Position    event.Position
}

// Want asks for the first rows of an ordering group behind a position.
type Want struct {
	Group uint64
	After After
}

// Run is the answer to a Want. Blocked says that an open dead letter blocks the ordering group
// (on_dead_letter: block): none of its rows may go, and none was looked for. More says that the
// table has rows of the ordering group behind those returned, as far as the statement saw: also
// rows above acked, rows without room, and a large one. So a Run without rows that is neither
// Blocked nor More says that the table has nothing of the ordering group behind After.
type Run struct {
	Group   uint64
	Rows    []*Row
	Blocked bool
	More    bool
	Failed  bool // its first row cannot be read; the caller of Read sets it
}
