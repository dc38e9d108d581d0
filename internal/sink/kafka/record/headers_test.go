package record

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/sinktest"
)

// reserved reports whether a header is the relay's own.
func reserved(name string) bool {
	return slices.Contains(OwnHeaders, name) || slices.Contains(sink.ReservedHeaders, name)
}

// FuzzHeadersColumn compares the scanner with encoding/json: the same names, the same values, and
// never a panic, and never more than the budget.
func FuzzHeadersColumn(f *testing.F) {
	for _, doc := range []string{
		`{}`, ` { } `, `null`, `[]`, `{"a":1}`, `{"a" : "b\\"c" , "d":[1,{"e":"}"}],"f":{"g":"]"}}`, `{"a":-0.5e3,"b":true,"c":null}`,
		`{"\u00e4":"\ud83d\ude00"}`, `{"a":1}x`, `{"a":{}} `, `{"":""}`, `{"a":1,"a":2}`, `"x"`, `{"a":12345678901234567890}`,
		`{"id":1,"\u0069d":2}`,
	} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		if !utf8.Valid(doc) || len(bytes.TrimSpace(doc)) == 0 {
			// PostgreSQL sends none; encoding/json would replace the bytes, which are kept here
			return
		}
		e := NewBuilder(layoutOf(t, Config{}))
		before := bytes.Clone(doc)
		ev := &event.Event{ID: []byte("1"), Time: time.UnixMilli(1), Headers: doc}
		fault := e.Build(ev)
		if !bytes.Equal(doc, before) {
			t.Fatal("the document was written to")
		}
		if most := ev.Budget(); len(e.Headers) > most.Left() {
			t.Fatalf("%d bytes of headers of a row of %d", len(e.Headers), ev.Size())
		}
		if fault != nil && fault.Reason == sink.TooLarge {
			return
		}
		var want map[string]json.RawMessage
		if err := json.Unmarshal(doc, &want); (err != nil) != (fault != nil) {
			t.Fatalf("fault %v, encoding/json %v", fault, err)
		}
		if fault != nil {
			return
		}
		got := map[string][]byte{}
		for _, h := range built(t, e, ev).Headers {
			got[h.Key] = h.Value // of several, the last one: so has encoding/json
		}
		for name, raw := range want {
			value, ok := got[name]
			if reserved(name) {
				continue
			}
			if !ok || (value == nil) != (string(raw) == "null") {
				t.Errorf("%q: got %q, %v, want %s", name, value, ok, raw)
			}
			var s string
			switch {
			case raw[0] == '"' && json.Unmarshal(raw, &s) == nil:
				if string(value) != s {
					t.Errorf("%q: got %q, want %q", name, value, s)
				}
			case value != nil && !bytes.Equal(value, raw):
				t.Errorf("%q: got %q, want %s", name, value, raw)
			}
		}
		for name := range got {
			if _, ok := want[name]; !ok && !reserved(name) {
				t.Errorf("%q is from nowhere", name)
			}
		}
	})
}

// Headers that are made to hurt are within the budget of their row, or refused for it, and nothing
// that has grown is kept.
func TestHeadersAreBounded(t *testing.T) {
	e := NewBuilder(layoutOf(t, Config{}))
	for members, reason := range map[int]sink.Reason{90_000: "", 200_000: sink.TooLarge} {
		doc := sinktest.ManyHeaders(members)
		if reason != "" {
			doc = []byte("{" + strings.Repeat(`"":0,`, members) + `"":0}`)
		}
		ev := &event.Event{ID: []byte("1"), Time: time.UnixMilli(1), Headers: doc}
		fault := e.Build(ev)
		if (fault == nil) != (reason == "") || fault != nil && (fault.Reason != reason || fault.Text != event.ErrBytes.Error()) {
			t.Errorf("%d members: %+v", members, fault)
		}
		if most := ev.Budget(); len(e.Headers) > most.Left() {
			t.Errorf("%d members: %d bytes", members, len(e.Headers))
		}
		e.Forget()
		if n := cap(e.Headers) + cap(e.made.Headers) + cap(e.made.Buf); n > 64<<10 {
			t.Errorf("%d members: %d are kept", members, n)
		}
	}
}
