// What the checker compares: rows that were written, messages that arrived.

package checker

import (
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
	"github.com/cdc-relay/cdc-relay/internal/event"
)

// Row is an outbox row that was written: its id ("" for NULL, of one row at the most), its
// aggregateid, and its number among the committed rows of that key.
type Row struct {
	ID              string
	Aggregate       string
	Key             string
	Seq             int64  // 1, 2, 3, … in commit order of the key
	ExchangeOrTopic string // the exchange or topic that the row itself names; "": none
}

// Delivery is a message as it arrived. Absent properties and headers are zero.
type Delivery struct {
	ID          string
	Aggregate   string
	Key         string
	Exchange    string // RabbitMQ
	Position    event.Position
	Seq         int64  // "seq" of the payload; 0 when there is none
	At          int64  // arrival, Unix nanoseconds
	Redelivered bool   // RabbitMQ: the broker says it may have sent it before
	Traceparent string // header traceparent; "" when there is none
	// it says that it is a dead letter published again (header cdc_replay)
	Replay bool
	// where it lay: on RabbitMQ a queue that was added, zero for the usual one; the order of
	// arrival says nothing about different ones
	From   kafkaserver.TopicPartition
	Offset int64 // Kafka: and at which offset
	// RabbitMQ: it came from a queue that was added, which has no marks
	Aside bool
}

// Interned keeps one copy of each of few strings.
type Interned map[string]string

// Of returns the kept copy of s, and keeps s when there is none yet.
func (in Interned) Of(s string) string {
	if kept, ok := in[s]; ok {
		return kept
	}
	in[s] = s
	return s
}
