// Events for the tests of sinks, and headers columns that are made to hurt.

package sinktest

import (
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// NewEvent makes the n-th event in commit order, a good one.
func NewEvent(n uint64, key string) *event.Event {
	now, aggregate := time.Now(), []byte("order")
	return &event.Event{
		Position: event.Position{Commit: pglogrepl.LSN(n << 8)}, CommitTime: now, Time: now,
		ID: fmt.Appendf(nil, "event-%d", n), Aggregate: aggregate, Key: []byte(key), Type: []byte("created"),
		Payload: fmt.Appendf(nil, `{"n": %d}`, n), Ordered: true, Hash: event.HashKey(aggregate, []byte(key)),
	}
}

// ManyHeaders is a headers column of so many members, of about eleven bytes each.
func ManyHeaders(members int) []byte {
	var doc strings.Builder
	for i := range members {
		fmt.Fprintf(&doc, `%c"h%d":1`, [...]rune{',', '{'}[max(0, 1-i)], i)
	}
	return []byte(doc.String() + "}")
}
