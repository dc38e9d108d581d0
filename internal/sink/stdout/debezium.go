// This file prints records as Debezium makes them, for inspection before a broker gets them.

package stdout

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"time"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/internal/debezium"
	"github.com/cdc-relay/cdc-relay/internal/event"
)

// record is what is written of one. What is null is null; what is not UTF-8 is in base64, and the
// member says so.
type record struct {
	Topic     string    `json:"topic"`
	*address            // of Debezium Server alone
	Partition *int32    `json:"partition,omitempty"` // only one that the row names
	Key       *part     `json:"key"`
	Value     *part     `json:"value"`
	Headers   []header  `json:"headers"`
	Time      time.Time `json:"timestamp"`
	Position  string    `json:"position"`
}

// address is where its sink for RabbitMQ sends the record.
type address struct {
	Exchange   string `json:"exchange"`
	RoutingKey string `json:"routing_key"`
}

type header struct {
	Name  string `json:"name"`
	Value *part  `json:"value"`
}

// part is a key, a value, or a header's value.
type part []byte

// MarshalJSON writes text as a string, and anything else as {"base64": ...}.
func (p *part) MarshalJSON() ([]byte, error) {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if utf8.Valid(*p) {
		err := enc.Encode(string(*p))
		return text.Bytes(), err
	}
	err := enc.Encode(map[string]string{"base64": base64.StdEncoding.EncodeToString(*p)})
	return text.Bytes(), err
}

func partOf(b []byte) *part {
	if b == nil {
		return nil
	}
	return (*part)(&b)
}

// render makes the line of a record.
func (s *Sink) render(ev *event.Event) ([]byte, error) {
	var rec debezium.Record
	if err := s.router.Build(ev, &rec); err != nil {
		return nil, err
	}
	l := record{
		Topic: string(rec.Topic), Key: partOf(rec.Key), Value: partOf(rec.Value), Headers: []header{},
		Time: time.UnixMilli(rec.Time).UTC(), Position: ev.Position.String(),
	}
	if rec.Exchange != nil {
		l.address = &address{string(rec.Exchange), string(rec.RoutingKey)}
	}
	if rec.Partition >= 0 {
		l.Partition = &rec.Partition
	}
	for _, h := range rec.Headers {
		l.Headers = append(l.Headers, header{h.Name, partOf(h.Value)})
	}
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	err := enc.Encode(l)
	return text.Bytes(), err
}
