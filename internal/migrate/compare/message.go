// Package compare tells whether two streams of messages are the same to a consumer: Debezium's and
// cdc-relay's, of one outbox. It pairs messages by the event's id, in whatever order the two
// arrive, and names every difference.
//
// It is pure: no I/O, no clock, no goroutine. What it holds is bounded by the caller, who asks
// Waiting and calls GiveUp.
package compare

import (
	"bytes"
	"encoding/json"
)

// Side is whose message it is.
type Side int

// The two sides.
const (
	Theirs Side = iota
	Ours
)

func (s Side) String() string {
	if s == Theirs {
		return "theirs"
	}
	return "ours"
}

func (s Side) other() Side { return 1 - s }

// Message is a message as it lay at the broker. The matcher keeps it: its bytes must not change.
type Message struct {
	ExchangeOrTopic int    // which pair of topics or exchanges it belongs to
	Where           string // for people: "shop.order, partition 2, offset 17"
	Partition       int    // -1: it has none
	RoutingKey      string
	Key, Value      []byte // nil: null
	Headers         []Header
	Properties      []Header // those of an AMQP message that are set, in a fixed order
	Time            int64    // of the record, milliseconds since 1970
	// it came so soon that its counterpart may have been sent before anybody looked: alone it is no
	// difference
	Early bool
}

// Header is a header or property.
type Header struct {
	Name string
	// its type, where the protocol has any: "text" and "bytes" are not the same to a consumer
	Kind  string
	Value []byte // nil: null
}

// size is about what the message takes in memory.
func (m *Message) size() int64 {
	const message, header = 256, 64
	n := message + len(m.Where) + len(m.RoutingKey) + len(m.Key) + len(m.Value)
	for _, h := range m.Headers {
		n += header + len(h.Name) + len(h.Value)
	}
	return int64(n)
}

func (m *Message) header(name string) (Header, bool) {
	for _, h := range m.Headers {
		if h.Name == name {
			return h, true
		}
	}
	return Header{}, false
}

// id is the event's id: the header's, else the property message_id, in which cdc-relay has it
// without a profile. A header of Debezium Server is JSON: {"schema":…,"payload":"x"}, "x" and x are
// one id, so that two formats are a difference of the header and not two events.
func (m *Message) id(name string) (string, bool) {
	h, ok := m.header(name)
	if !ok {
		for _, p := range m.Properties {
			if p.Name == "message_id" {
				h, ok = p, true
			}
		}
	}
	if !ok || h.Value == nil {
		return "", false
	}
	return plain(h.Value), true
}

// plain is the text that a JSON value stands for; what is not JSON is itself.
func plain(b []byte) string {
	text := b
	if bytes.HasPrefix(text, []byte(`{"schema":`)) {
		var wrapped struct{ Payload json.RawMessage }
		if json.Unmarshal(text, &wrapped) == nil && wrapped.Payload != nil {
			text = wrapped.Payload
		}
	}
	var s string
	if bytes.HasPrefix(text, []byte(`"`)) && json.Unmarshal(text, &s) == nil {
		return s
	}
	return string(text)
}
