package event

import (
	"bytes"
	"encoding/json"
	"testing"
	"unicode/utf8"
)

// FuzzMembers compares the scanner with encoding/json: the same documents refused, the same names
// with the same values, in the same order, and never a panic or a byte changed.
func FuzzMembers(f *testing.F) {
	for _, doc := range []string{
		`{}`, ` { } `, `null`, ` null `, ``, `[]`, `"x"`, `{"a":1}`, `{"a":1}x`, `{"a" : "b\\"c" , "d":[1,{"e":"}"}],"f":{"g":"]"}}`,
		`{"a":-0.5e3,"b":true,"c":null}`, `{"\u00e4":"\ud83d\ude00"}`, "\v{}", "\u0085{}", `{"a":{}} `, `{"":""}`, `{"a":1,"a":2}`,
		"{\n\t\"a\"\r:\n1\n,\n\"b\":[ ]\n}", `{"a":"\\","b":"\""}`, `{"a":12345678901234567890}`,
	} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		if !utf8.Valid(doc) {
			// PostgreSQL sends none; encoding/json would replace the bytes, which are kept here
			return
		}
		before := bytes.Clone(doc)
		names, values, valid := decoded(doc)
		m, ok := MembersOf(doc)
		if ok != valid {
			t.Fatalf("%q: accepted %v, by encoding/json %v", doc, ok, valid)
		}
		n := 0
		for name, value, more := m.Next(); more; name, value, more = m.Next() {
			if n == len(names) {
				t.Fatalf("%q: has more than %d members: %q", doc, n, name)
			}
			if string(name) != names[n] || !bytes.Equal(value, values[n]) {
				t.Errorf("%q: member %d is %q: %s, want %q: %s", doc, n, name, value, names[n], values[n])
			}
			n++
		}
		if n != len(names) {
			t.Errorf("%q: %d members, want %d", doc, n, len(names))
		}
		if !bytes.Equal(doc, before) {
			t.Errorf("%q was written to", before)
		}
	})
}

// decoded are the members of a document as encoding/json reads them one after the other.
func decoded(doc []byte) (names []string, values []json.RawMessage, valid bool) {
	if !json.Valid(doc) {
		return nil, nil, false
	}
	d := json.NewDecoder(bytes.NewReader(doc))
	switch open, err := d.Token(); {
	case err != nil:
		return nil, nil, false
	case open == nil:
		return nil, nil, true
	case open != json.Delim('{'):
		return nil, nil, false
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, nil, false
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, nil, false
		}
		names, values = append(names, name.(string)), append(values, value)
	}
	return names, values, true
}

func TestMembersAllocateNothing(t *testing.T) {
	all, _ := MembersOf([]byte(`{"tenant": "a", "retries": 3, "of": {"a": [1, 2]}}`))
	if n := testing.AllocsPerRun(100, func() {
		m := all
		for _, _, more := m.Next(); more; _, _, more = m.Next() {
		}
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}
