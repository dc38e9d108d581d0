package message

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/config/setting"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// What a row's headers column makes of the headers that steer the broker: nothing, and each is
// counted; with allow_headers what the broker takes; and a configured header is written anyhow.
func TestSteeringHeaders(t *testing.T) {
	const forged = `{"CC": ["q", "r"], "BCC": "s", "cc": "t", "x-delay": 86400000, "x-death": "u", "x-mqtt-publish-qos": "0", "x-mqtt-dup": "1", "x-stream-filter-value": "v", "tenant": 1}`
	all := []string{"CC", "BCC", "x-delay", "x-death", "x-mqtt-publish-qos", "x-mqtt-dup", "x-stream-filter-value"}
	for name, c := range map[string]struct {
		cfg     Config
		headers string
		column  []byte
		want    amqp.Table
		dropped []string
		fault   sink.Reason
	}{
		"by default":  {Config{}, forged, nil, amqp.Table{"cc": "t", "tenant": int64(1)}, all, ""},
		"allowed":     {Config{AllowHeaders: all}, forged, nil, amqp.Table{"CC": []any{"q", "r"}, "BCC": []any{"s"}, "cc": "t", "x-delay": int64(86400000), "x-death": "u", "x-mqtt-publish-qos": "0", "x-mqtt-dup": "1", "x-stream-filter-value": "v", "tenant": int64(1)}, nil, ""},
		"mapped":      {Config{PlainConfig: mapped("CC")}, `{"CC": ["q"]}`, []byte("audit"), amqp.Table{"CC": []any{"audit"}}, []string{"CC"}, ""},
		"mapped NULL": {Config{PlainConfig: mapped("CC")}, `{"CC": ["q"]}`, nil, amqp.Table{}, []string{"CC"}, ""},
		"null":        {Config{AllowHeaders: all}, `{"CC": null}`, nil, amqp.Table{}, nil, ""},
		"no keys":     {Config{AllowHeaders: all}, `{"CC": [{"a": 1}]}`, nil, nil, nil, sink.Invalid},
		"a number":    {Config{AllowHeaders: all}, `{"BCC": 7}`, nil, nil, nil, sink.Invalid},
		"a long key":  {Config{AllowHeaders: all}, `{"CC": ["` + strings.Repeat("x", 256) + `"]}`, nil, nil, nil, sink.Invalid},
		"a key that is not allowed": {
			Config{AllowHeaders: all, Allow: Allow{RoutingKey: sink.Allow{"order.*"}}}, `{"CC": ["order.copied", "q"]}`, nil, nil, nil, sink.NotAllowed,
		},
		"keys that are allowed": {
			Config{AllowHeaders: all, Allow: Allow{RoutingKey: sink.Allow{"order.*"}}}, `{"CC": ["order.copied"]}`, nil, amqp.Table{"CC": []any{"order.copied"}}, nil, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var dropped []string
			c.cfg.Exchange, c.cfg.RoutingKey = sink.MustTemplate("events"), sink.MustTemplate("{type}")
			c.cfg.HeaderDropped = func(name string) { dropped = append(dropped, name) }
			layout, err := NewLayout(&c.cfg)
			if err != nil {
				t.Fatal(err)
			}
			limits := new(Limits)
			limits.Negotiated(131072)
			m := New(&layout, limits)
			fault := m.Build(&event.Event{Type: []byte("order.placed"), Headers: []byte(c.headers), Columns: [][]byte{c.column}})
			if c.fault != "" {
				if fault == nil || fault.Class != sink.Permanent || fault.Reason != c.fault {
					t.Errorf("got %+v, want %s", fault, c.fault)
				}
				return
			}
			if fault != nil {
				t.Fatal(fault)
			}
			size := m.TableSize
			for _, own := range []string{sink.HeaderPosition, headerTime} {
				delete(m.Pub.Headers, own)
			}
			if !reflect.DeepEqual(m.Pub.Headers, c.want) {
				t.Errorf("headers %v, want %v", m.Pub.Headers, c.want)
			}
			if err := m.Pub.Headers.Validate(); err != nil {
				t.Error(err)
			}
			if !slices.Equal(dropped, c.dropped) {
				t.Errorf("dropped %q, want %q", dropped, c.dropped)
			}
			if name == "allowed" {
				// name and type; an array's length, then type, length and text of each key
				cc, bcc := 1+2+1+4+2*(1+4+1), 1+3+1+4+(1+4+1)
				rest := (1 + 2 + 1 + 4 + 1) + (1 + 7 + 1 + 8) + (1 + 7 + 1 + 4 + 1) + (1 + 6 + 1 + 8) + (1 + 18 + 1 + 4 + 1) + (1 + 10 + 1 + 4 + 1) + (1 + 21 + 1 + 4 + 1)
				own := (1 + len(sink.HeaderPosition) + 1 + 4 + len(event.Position{}.String())) + (1 + len(headerTime) + 1 + 8)
				if want := cc + bcc + rest + own; size != want {
					t.Errorf("table of %d bytes, want %d", size, want)
				}
			}
		})
	}
}

// mapped is a configuration whose only extra column is the header of this name.
func mapped(header string) sink.PlainConfig {
	return sink.PlainConfig{Columns: []string{"c"}, Headers: []setting.NamedColumn{{Name: header, Column: "c"}}}
}
