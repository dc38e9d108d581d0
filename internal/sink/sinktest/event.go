// Events for the suite.

package sinktest

import (
	"fmt"
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
