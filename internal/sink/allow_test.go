package sink

import (
	"regexp"
	"strings"
	"testing"
)

// A pattern means what a regular expression says in more words, for names of either kind.
func FuzzAllows(f *testing.F) {
	for _, c := range [][2]string{
		{"", ""},
		{"", "x"},
		{"*", ""},
		{"orders", "orders"},
		{"orders", "order"},
		{"order.*", "order."},
		{"order.*", "order"},
		{"*.eu", "a.b.eu"},
		{"a*b*c", "aXbYbZc"},
		{"a*b*c", "aXcYb"},
		{"**", "x"},
		{"a.c", "abc"},
		{"*a*a*a*b", strings.Repeat("a", 30)},
		{"[x]?", "[x]?"},
		{"ä*", "äö"},
	} {
		f.Add(c[0], c[1])
	}
	f.Fuzz(func(t *testing.T, pattern, name string) {
		means := regexp.MustCompile("(?s)^" + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*") + "$")
		if strings.ContainsRune(pattern+name, 0xFFFD) {
			return // a regular expression does not see invalid UTF-8 byte by byte
		}
		want := means.MatchString(name)
		if got := Allows(Allow{"never", pattern}, name); got != (want || name == "never") {
			t.Errorf("%q of %q: %v, want %v", pattern, name, got, want)
		}
		if Allows(Allow{pattern}, name) != Allows(Allow{pattern}, []byte(name)) {
			t.Errorf("%q of %q: bytes and text differ", pattern, name)
		}
	})
}

func TestAllowsEverythingWithoutPatterns(t *testing.T) {
	if !Allows(nil, "") || !Allows(Allow{}, "anything") {
		t.Error("something is not allowed")
	}
}

// check says how far rows steer.
func TestFindAllowed(t *testing.T) {
	fixed, byRow := MustTemplate("orders"), MustTemplate("outbox.{aggregate}.{column:tenant}")
	for name, c := range map[string]struct {
		Template
		allow Allow
		want  []Finding
	}{
		"fixed":                  {fixed, nil, []Finding{{Name: "allowed topics", OK: true, Detail: `everything is allowed; sink.kafka.topic is "orders" for every event`}}},
		"rows decide":            {byRow, nil, []Finding{{Name: "allowed topics", Warn: true, Detail: `everything is allowed: row data decides where events go (sink.kafka.topic is "outbox.{aggregate}.{column:tenant}")`, Fix: `list what rows may name in sink.kafka.allow.topic`}}},
		"one pattern allows all": {byRow, Allow{"a", "*"}, []Finding{{Name: "allowed topics", Warn: true, Detail: `everything is allowed: row data decides where events go (sink.kafka.topic is "outbox.{aggregate}.{column:tenant}")`, Fix: `list what rows may name in sink.kafka.allow.topic`}}},
		"bounded":                {byRow, Allow{"outbox.*", "*.eu"}, []Finding{{Name: "allowed topics", OK: true, Detail: "sink.kafka.allow.topic: outbox.*, *.eu"}}},
	} {
		got := FindAllowed("sink.kafka.", []NamedTemplate{{Key: "topic", Template: &c.Template, Allow: c.allow}})
		if len(got) != len(c.want) {
			t.Fatalf("%s: %+v", name, got)
		}
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("%s:\n got %+v\nwant %+v", name, got[i], c.want[i])
			}
		}
	}
}
