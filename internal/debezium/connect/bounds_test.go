package connect

import (
	"errors"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// budgetOf is the budget of a row that has nothing but the payload.
func budgetOf(text []byte) *event.Budget {
	b := (&event.Event{Payload: text}).Budget()
	return &b
}

// An expansion that would cost too much is an error that names the budget, before the bytes are
// there, and not a dead relay. What costs as much as it is long has room.
func TestExpansionsAreBounded(t *testing.T) {
	e := Expander{Name: "payload"}
	member := func(i int) string { return `"f` + strconv.Itoa(i) + `":1` }
	list := func(n int, of func(i int) string) string {
		var parts []string
		for i := range n {
			parts = append(parts, of(i))
		}
		return strings.Join(parts, ",")
	}
	nested := func(depth int, name string) string {
		return strings.Repeat(`{"`+name+`":`, depth) + "1" + strings.Repeat("}", depth)
	}
	long := func(n int) string { return strings.Repeat("-", n) }
	for _, c := range []struct {
		name, text string
		names      NameMode
		want       error
	}{
		{"names within names", nested(490, long(1000)), "", event.ErrBytes},
		{"arrays between them", `{"a":` + strings.Repeat(`[{"`+long(1000)+`":`, 240) + "1" + strings.Repeat("}]", 240) + "}", "", event.ErrBytes},
		{"escaped names", nested(10, long(40_000)), "avro_unicode", event.ErrBytes},
		{"objects that swell", `{"a":[` + list(3000, func(i int) string { return "{" + member(i) + "}" }) + `]}`, "", event.ErrWork},
		{"two objects of distinct names", `{"a":[{` + list(60_000, member) + `},{` + list(60_000, func(i int) string { return member(60_000 + i) }) + `}]}`, "", nil},
		{"the same names the other way round", `{"a":[{` + list(60_000, member) + `},{` + list(60_000, func(i int) string { return member(59_999 - i) }) + `}]}`, "", nil},
		{"many names under another mode", "{" + list(60_000, member) + "}", "avro", nil},
		{"many numbers", `{"a":[` + list(400_000, func(int) string { return "1" }) + `]}`, "", nil},
		{"many small objects", `{"a":[` + list(100_000, func(int) string { return `{"a":1}` }) + `]}`, "", nil},
		{"sparse objects", `{"a":[` + list(3000, func(i int) string { return "{" + member(i%30) + `,"name":"somebody"}` }) + `]}`, "", nil},
		{"names within names, as somebody may have them", nested(20, long(30)), "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			e.Names = c.names
			budget := budgetOf([]byte(c.text))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			x, err := e.Expand([]byte(c.text), budget)
			runtime.ReadMemStats(&after)
			if !errors.Is(err, c.want) || c.want == nil && x.Unchanged {
				t.Errorf("%d bytes: %v, want %v", len(c.text), err, c.want)
			}
			if made, most := after.TotalAlloc-before.TotalAlloc, uint64(64<<20+400*len(c.text)); made > most {
				t.Errorf("%d bytes of text: %d MiB were allocated, want %d at most", len(c.text), made>>20, most>>20)
			}
		})
	}
	e.Names = ""
	// Jackson's own limits, seen on 2.21.2: names of 50,000 characters are read, longer ones are
	// not.
	for n, unchanged := range map[int]bool{maxName: false, maxName + 1: true} {
		if x, err := e.Expand([]byte(`{"`+strings.Repeat("n", n)+`":1}`), budgetOf(nil)); err != nil || x.Unchanged != unchanged {
			t.Errorf("a name of %d: %v, %v", n, x.Unchanged, err)
		}
	}
}

// Half a surrogate pair has no UTF-8: it is an error, and no other character.
func TestHalfASurrogatePair(t *testing.T) {
	for text, half := range map[string]bool{
		`{"a":"\ud83d"}`: true, `{"a":"\uDE00x"}`: true, `{"\ud83d":1}`: true, `{"a":"\ud83d\u0041"}`: true, `{"a":["\ude00\ud83d"]}`: true,
		`{"a":"\ud83d\uDE00\n\u0041"}`: false, `{"a":"\\ud83d"}`: false, `{"a":"\ufffd"}`: false, `{"a":"\u0000\ud7ff"} \ud83d`: false,
	} {
		if x, err := (&Expander{Name: "payload"}).Expand([]byte(text), budgetOf(nil)); errors.Is(err, errSurrogate) != half || !half && x.Unchanged {
			t.Errorf("%s: %+v, %v", text, x, err)
		}
	}
}
