// The headers of messages: of a headers column, their bounds, and those that steer the broker.

package rabbit

import (
	"bytes"
	"encoding/json"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/config/setting"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/sinktest"
)

// ofColumn is a message with the headers of a headers column.
func ofColumn(doc []byte, dropped func(name string)) (*message, *sink.Fault) {
	m := newMessage(&layout{}, new(limits))
	m.limits.setFrameMax(131072)
	headers, err := sink.NewPlainHeaders(sink.PlainConfig{HeaderDropped: dropped}, OwnHeaders)
	if err != nil {
		panic(err)
	}
	ev := &event.Event{Headers: doc}
	m.record.Reset(ev)
	if fault := headers.Append(ev, &m.record); fault != nil {
		return &m, fault
	}
	m.record.Headers = m.record.Headers[1:] // without the position
	return &m, m.fillPublishing()
}

// reserved reports whether a header is the relay's own.
func reserved(name string) bool {
	return slices.Contains(OwnHeaders, name) || slices.Contains(sink.ReservedHeaders, name)
}

// FuzzHeadersColumn compares the scanner with encoding/json: the same names, the same values by
// type, never a panic, and never more than the budget.
func FuzzHeadersColumn(f *testing.F) {
	for _, doc := range []string{
		`{}`, ` { } `, `null`, `[]`, `{"a":1}`, `{"a" : "b\\"c" , "d":[1,{"e":"}"}],"f":{"g":"]"}}`, `{"a":-0.5e3,"b":true,"c":null}`,
		`{"\\u00e4":"\\ud83d\\ude00"}`, `{"a":1}x`, `{"a":{}} `, `{"":""}`, `{"a":1,"a":2}`, `"x"`, `{"a":12345678901234567890}`,
	} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		if !utf8.Valid(doc) || len(doc) == 0 {
			// PostgreSQL sends none; encoding/json would replace the bytes, which are kept here
			return
		}
		before := bytes.Clone(doc)
		m, fault := ofColumn(doc, nil)
		if !bytes.Equal(doc, before) {
			t.Fatal("the document was written to")
		}
		if most := event.NewBudget(len(doc)); len(m.record.Buf)+48*len(m.record.Headers) > most.Left() || len(m.pub.Headers) > 131072/2 {
			t.Fatalf("%d headers of %d bytes", len(m.record.Headers), len(doc))
		}
		if fault != nil && fault.Reason == sink.TooLarge {
			return
		}
		var want map[string]json.RawMessage
		err := json.Unmarshal(doc, &want)
		if (err != nil) != (fault != nil) {
			for name := range want {
				if len(name) > maxShortString && fault != nil {
					return
				}
			}
			t.Fatalf("fault %v, encoding/json %v", fault, err)
		}
		if fault != nil {
			return
		}
		for name, raw := range want {
			got, ok := m.pub.Headers[name]
			if ok == reserved(name) {
				t.Errorf("%q: present %v", name, ok)
			}
			if !ok {
				continue
			}
			var value any
			if err := json.Unmarshal(raw, &value); err != nil {
				continue // a number that no double can represent
			}
			switch v := value.(type) {
			case string, bool, nil:
				if !reflect.DeepEqual(got, v) {
					t.Errorf("%q: got %v, want %v", name, got, v)
				}
			case float64:
				switch n := got.(type) {
				case int64:
					if float64(n) != v {
						t.Errorf("%q: got %d, want %v", name, n, v)
					}
				case float64:
					if n != v {
						t.Errorf("%q: got %v, want %v", name, n, v)
					}
				case string:
					if n != string(raw) {
						t.Errorf("%q: got %q, want %s", name, n, raw)
					}
				}
			default:
				if got != string(raw) {
					t.Errorf("%q: got %v, want %s", name, got, raw)
				}
			}
		}
		if len(m.pub.Headers) > len(want) {
			t.Errorf("got %v, want %v", m.pub.Headers, want)
		}
	})
}

// The hook's argument outlives the event, whose bytes are used again.
func TestDroppedHeaderIsNoAlias(t *testing.T) {
	var dropped []string
	doc := []byte(`{"traceparent": "x", "cdc_\u0070osition": 1, "tenant": 2}`)
	if _, fault := ofColumn(doc, func(name string) { dropped = append(dropped, name) }); fault != nil {
		t.Fatal(fault)
	}
	clear(doc)
	if want := []string{"traceparent", "cdc_position"}; !slices.Equal(dropped, want) {
		t.Errorf("dropped %q, want %q", dropped, want)
	}
}

func TestHeaderSizeIsExact(t *testing.T) {
	m, fault := ofColumn([]byte(`{"s":"text","i":1,"f":1.5,"t":true,"n":null,"o":{"a":1},"big":99999999999999999999}`), nil)
	if fault != nil {
		t.Fatal(fault)
	}
	// Type octet and value, with a short string in front, as AMQP 0-9-1 4.2.5.5 and RabbitMQ's
	// errata have them.
	want := (2 + 1 + 4 + 4) + (2 + 1 + 8) + (2 + 1 + 8) + (2 + 1 + 1) + (2 + 1) + (2 + 1 + 4 + 7) + (4 + 1 + 4 + 20)
	if m.tableSize != want {
		t.Errorf("table of %d bytes, want %d", m.tableSize, want)
	}
	if _, fault := ofColumn([]byte("[]"), nil); fault == nil || fault.Class != sink.Permanent {
		t.Errorf("got %v", fault)
	}
}

// A decimal is a double when that prints as the same number, else its text: none is rounded.
func TestDecimals(t *testing.T) {
	for raw, double := range map[string]bool{
		"0.1": true, "12.50": true, "-0.5": true, "0.0": true, "1e3": true, "1.0E+2": true, "-1.5e-7": true, "100.0": true, "1000000.0": true,
		"0.30000000000000004": true, "9007199254740993.5": false, "0.30000000000000001": false, "12345678901234567.89": false,
		"3.141592653589793": true, "3.14159265358979323846": false, "1e400": false, "1e-400": false, "-1e-400": false, "5e-324": true, "4e-324": false,
		"1.7976931348623157e308": true, "10000000000000000000000.0": true, "10000000000000000000001.0": false, "0.000000100": true,
		"1.00000000000000000000": true, "100200300400500600.0": true, "1000000000000000020000.0": false, "0e99999999999999999999": false, "0.1e1": true,
		"123456789012345678901234567890.5": false, "0.00000000000000000000000000000000000012": true,
	} {
		m, fault := ofColumn([]byte(`{"n": `+raw+`}`), nil)
		if fault != nil {
			t.Fatal(fault)
		}
		want := any(raw)
		if double {
			f, err := strconv.ParseFloat(raw, 64)
			if err != nil {
				t.Fatal(err)
			}
			want = f
		}
		if got := m.pub.Headers["n"]; got != want {
			t.Errorf("%s is %T %[2]v, want %T", raw, got, want)
		}
	}
}

// AMQP's timestamp has no sign: a time before 1970 is in the relay's header alone.
func TestTimesBefore1970(t *testing.T) {
	layout, err := newLayout(&Config{})
	if err != nil {
		t.Fatal(err)
	}
	limits := new(limits)
	limits.setFrameMax(131072)
	for ms, stamped := range map[int64]bool{-1: false, -1000: false, -62135596800000: false, 0: true, 1000: true} {
		m := newMessage(&layout, limits)
		at := time.UnixMilli(ms).UTC()
		if fault := m.makeChecked(&event.Event{ID: []byte("1"), Time: at}); fault != nil {
			t.Fatal(fault)
		}
		if m.pub.Headers["timestamp_in_ms"] != ms || m.pub.Timestamp.IsZero() == stamped {
			t.Errorf("%s: timestamp %s, header %v", at, m.pub.Timestamp, m.pub.Headers["timestamp_in_ms"])
		}
	}
}

// The column of the content type wins over the key, and the key over the payload's kind.
func TestContentType(t *testing.T) {
	for _, c := range []struct {
		key    string
		column []byte
		want   string
	}{
		{"", nil, "application/json"},
		{"", []byte("application/x-protobuf"), "application/x-protobuf"},
		{"application/cloudevents+json", nil, "application/cloudevents+json"},
		{"application/cloudevents+json", []byte("text/csv"), "text/csv"},
	} {
		plain, err := newPlain(&Config{ContentType: c.key, ContentTypeColumn: "mime", PlainConfig: sink.PlainConfig{Columns: []string{"mime"}}})
		if err != nil {
			t.Fatal(err)
		}
		var rec sink.Record
		ev := &event.Event{ID: []byte("1"), PayloadKind: event.JSON, Columns: [][]byte{c.column}}
		if fault := plain.Encode(ev, &rec); fault != nil || rec.Properties.ContentType != c.want {
			t.Errorf("key %q, column %q: %q, %v", c.key, c.column, rec.Properties.ContentType, fault)
		}
	}
}

// Rows that are made to hurt are refused for the frame that they do not fit, or for their budget.
// The table has no more than a frame, and nothing that has grown is kept: the next message costs
// what it always did.
func TestHeadersAreBounded(t *testing.T) {
	layout, err := newLayout(&Config{AllowHeaders: []string{"CC"}})
	if err != nil {
		t.Fatal(err)
	}
	limits := new(limits)
	limits.setFrameMax(131072)
	digits := strings.Repeat("1", 900_000)
	for name, doc := range map[string][]byte{
		"many members":              sinktest.ManyHeaders(90_000),
		"more members than budget":  []byte("{" + strings.Repeat(`"":0,`, 200_000) + `"":0}`),
		"a long number":             []byte(`{"n": ` + digits + `, "f": ` + digits + `.5}`),
		"a long escaped text":       []byte(`{"t": "` + strings.Repeat(`\u0001`, 150_000) + `"}`),
		"further routing keys":      []byte(`{"CC": [` + strings.Repeat(`"",`, 300_000) + `""]}`),
		"as many as a frame, twice": sinktest.ManyHeaders(20_000),
	} {
		t.Run(name, func(t *testing.T) {
			m := newMessage(&layout, limits)
			ev := &event.Event{ID: []byte("1"), Headers: doc}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			fault := m.makeChecked(ev)
			runtime.ReadMemStats(&after)
			if fault == nil || fault.Reason != sink.TooLarge {
				t.Fatalf("%d bytes of headers: %+v", len(doc), fault)
			}
			if made, most := after.TotalAlloc-before.TotalAlloc, uint64(2<<20+48*len(doc)); made > most {
				t.Errorf("%d bytes of headers: %d KiB were allocated, want %d at most", len(doc), made>>10, most>>10)
			}
			if n := len(m.pub.Headers); n > 131072/6 {
				t.Errorf("the table has %d headers", n)
			}
			table := reflect.ValueOf(m.pub.Headers).Pointer()
			grown := len(m.pub.Headers) > keptHeaders
			m.forgetEvent()
			if same := table == reflect.ValueOf(m.pub.Headers).Pointer(); grown && same {
				t.Error("a table that has grown is used again")
			}
			if kept := cap(m.record.Headers) + cap(m.record.Buf); kept > 64<<10 {
				t.Errorf("%d are kept", kept)
			}
			if fault := m.makeChecked(&event.Event{ID: []byte("2"), Headers: []byte(`{"a": 1}`)}); fault != nil || m.pub.Headers["a"] != int64(1) {
				t.Errorf("the next event: %+v, %v", fault, m.pub.Headers)
			}
		})
	}
}

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
			layout, err := newLayout(&c.cfg)
			if err != nil {
				t.Fatal(err)
			}
			limits := new(limits)
			limits.setFrameMax(131072)
			m := newMessage(&layout, limits)
			fault := m.makeChecked(&event.Event{Type: []byte("order.placed"), Headers: []byte(c.headers), Columns: [][]byte{c.column}})
			if c.fault != "" {
				if fault == nil || fault.Class != sink.Permanent || fault.Reason != c.fault {
					t.Errorf("got %+v, want %s", fault, c.fault)
				}
				return
			}
			if fault != nil {
				t.Fatal(fault)
			}
			size := m.tableSize
			for _, own := range []string{sink.HeaderPosition, headerTime} {
				delete(m.pub.Headers, own)
			}
			if !reflect.DeepEqual(m.pub.Headers, c.want) {
				t.Errorf("headers %v, want %v", m.pub.Headers, c.want)
			}
			if err := m.pub.Headers.Validate(); err != nil {
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
