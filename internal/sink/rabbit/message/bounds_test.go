package message

import (
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/sinktest"
)

// Rows that are made to hurt are refused for the frame that they do not fit, or for their budget.
// The table has no more than a frame, and nothing that has grown is kept: the next message costs
// what it always did.
func TestHeadersAreBounded(t *testing.T) {
	layout, err := NewLayout(&Config{AllowHeaders: []string{"CC"}})
	if err != nil {
		t.Fatal(err)
	}
	limits := new(Limits)
	limits.Negotiated(131072)
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
			m := New(&layout, limits)
			ev := &event.Event{ID: []byte("1"), Headers: doc}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			fault := m.Build(ev)
			runtime.ReadMemStats(&after)
			if fault == nil || fault.Reason != sink.TooLarge {
				t.Fatalf("%d bytes of headers: %+v", len(doc), fault)
			}
			if made, most := after.TotalAlloc-before.TotalAlloc, uint64(2<<20+48*len(doc)); made > most {
				t.Errorf("%d bytes of headers: %d KiB were allocated, want %d at most", len(doc), made>>10, most>>10)
			}
			if n := len(m.Pub.Headers); n > 131072/6 {
				t.Errorf("the table has %d headers", n)
			}
			table := reflect.ValueOf(m.Pub.Headers).Pointer()
			grown := len(m.Pub.Headers) > keptHeaders
			m.Forget()
			if same := table == reflect.ValueOf(m.Pub.Headers).Pointer(); grown && same {
				t.Error("a table that has grown is used again")
			}
			if kept := cap(m.record.Headers) + cap(m.record.Buf); kept > 64<<10 {
				t.Errorf("%d are kept", kept)
			}
			if fault := m.Build(&event.Event{ID: []byte("2"), Headers: []byte(`{"a": 1}`)}); fault != nil || m.Pub.Headers["a"] != int64(1) {
				t.Errorf("the next event: %+v, %v", fault, m.Pub.Headers)
			}
		})
	}
}
