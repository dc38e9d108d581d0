package message

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// ofColumn is a message with the headers of a headers column.
func ofColumn(doc []byte, dropped func(name string)) (*Message, *sink.Fault) {
	m := New(&Layout{}, new(Limits))
	m.Limits.Negotiated(131072)
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
	return &m, m.fill()
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
		if most := event.NewBudget(len(doc)); len(m.record.Buf)+48*len(m.record.Headers) > most.Left() || len(m.Pub.Headers) > 131072/2 {
			t.Fatalf("%d headers of %d bytes", len(m.record.Headers), len(doc))
		}
		if fault != nil && fault.Reason == sink.TooLarge {
			return
		}
		var want map[string]json.RawMessage
		err := json.Unmarshal(doc, &want)
		if (err != nil) != (fault != nil) {
			for name := range want {
				if len(name) > MaxShortString && fault != nil {
					return
				}
			}
			t.Fatalf("fault %v, encoding/json %v", fault, err)
		}
		if fault != nil {
			return
		}
		for name, raw := range want {
			got, ok := m.Pub.Headers[name]
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
		if len(m.Pub.Headers) > len(want) {
			t.Errorf("got %v, want %v", m.Pub.Headers, want)
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
	if m.TableSize != want {
		t.Errorf("table of %d bytes, want %d", m.TableSize, want)
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
		if got := m.Pub.Headers["n"]; got != want {
			t.Errorf("%s is %T %[2]v, want %T", raw, got, want)
		}
	}
}

// AMQP's timestamp has no sign: a time before 1970 is in the relay's header alone.
func TestTimesBefore1970(t *testing.T) {
	layout, err := NewLayout(&Config{})
	if err != nil {
		t.Fatal(err)
	}
	limits := new(Limits)
	limits.Negotiated(131072)
	for ms, stamped := range map[int64]bool{-1: false, -1000: false, -62135596800000: false, 0: true, 1000: true} {
		m := New(&layout, limits)
		at := time.UnixMilli(ms).UTC()
		if fault := m.Build(&event.Event{ID: []byte("1"), Time: at}); fault != nil {
			t.Fatal(fault)
		}
		if m.Pub.Headers["timestamp_in_ms"] != ms || m.Pub.Timestamp.IsZero() == stamped {
			t.Errorf("%s: timestamp %s, header %v", at, m.Pub.Timestamp, m.Pub.Headers["timestamp_in_ms"])
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
		plain, err := NewPlain(&Config{ContentType: c.key, ContentTypeColumn: "mime", PlainConfig: sink.PlainConfig{Columns: []string{"mime"}}})
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
