// The records that a Debezium profile makes, as JSON lines.

package stdout

import (
	"encoding/base64"
	"time"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/internal/debezium"
	"github.com/cdc-relay/cdc-relay/internal/event"
)

// record is what is written of one. Keys, values and headers are as shown makes them.
type record struct {
	Topic     string    `json:"topic"`
	*address            // of Debezium Server alone
	Partition *int32    `json:"partition,omitempty"` // only one that the row names
	Key       any       `json:"key"`
	Value     any       `json:"value"`
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
	Value any    `json:"value"`
}

// shown is null, text as a string, or anything else as {"base64": ...}.
func shown(b []byte) any {
	switch {
	case b == nil:
		return nil
	case utf8.Valid(b):
		return string(b)
	}
	return map[string]string{"base64": base64.StdEncoding.EncodeToString(b)}
}

// recordOf is the record that a profile makes of an event.
func recordOf(router *debezium.Router, ev *event.Event) (record, error) {
	var rec debezium.Record
	if err := router.Build(ev, &rec); err != nil {
		return record{}, err
	}
	l := record{
		Topic: string(rec.Topic), Key: shown(rec.Key), Value: shown(rec.Value), Headers: []header{},
		Time: time.UnixMilli(rec.Time).UTC(), Position: ev.Position.String(),
	}
	if rec.Exchange != nil {
		l.address = &address{string(rec.Exchange), string(rec.RoutingKey)}
	}
	if rec.Partition >= 0 {
		l.Partition = &rec.Partition
	}
	for _, h := range rec.Headers {
		l.Headers = append(l.Headers, header{h.Name, shown(h.Value)})
	}
	return l, nil
}
