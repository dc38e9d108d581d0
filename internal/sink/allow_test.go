package sink

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/event"
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

// check says how far rows steer, and which patterns look like mistakes.
func TestFindAllowed(t *testing.T) {
	fixed, byRow := MustTemplate("orders"), MustTemplate("outbox.{aggregate}.{column:tenant}")
	for name, c := range map[string]struct {
		Template
		allow    Allow
		mirror   *event.Route
		existing []string
		want     []Finding
	}{
		"fixed":                  {fixed, nil, nil, nil, []Finding{{Name: "allowed topics", OK: true, Detail: `everything is allowed; sink.kafka.topic is "orders" for every event`}}},
		"rows decide":            {byRow, nil, nil, []string{"x"}, []Finding{{Name: "allowed topics", Warn: true, Detail: `everything is allowed: row data decides where events go (sink.kafka.topic is "outbox.{aggregate}.{column:tenant}")`, Fix: `list what rows may name in sink.kafka.allow.topic`}}},
		"one pattern allows all": {byRow, Allow{"a", "*"}, nil, []string{"x"}, []Finding{{Name: "allowed topics", Warn: true, Detail: `everything is allowed: row data decides where events go (sink.kafka.topic is "outbox.{aggregate}.{column:tenant}")`, Fix: `list what rows may name in sink.kafka.allow.topic`}}},
		"bounded":                {byRow, Allow{"outbox.*", "*.eu"}, nil, nil, []Finding{{Name: "allowed topics", OK: true, Detail: "sink.kafka.allow.topic: outbox.*, *.eu"}}},
		"the template makes no such name": {byRow, Allow{"outbox.*", "oubtox.*", ""}, nil, []string{"outbox.a.b"}, []Finding{
			{Name: "allowed topics", OK: true, Detail: `sink.kafka.allow.topic: outbox.*, oubtox.*, ""`},
			{Name: "allowed topics", Warn: true, Detail: `pattern "oubtox.*" matches nothing that sink.kafka.topic "outbox.{aggregate}.{column:tenant}" can make`, Fix: "correct the pattern in sink.kafka.allow.topic, or remove it"},
			{Name: "allowed topics", Warn: true, Detail: `pattern "" matches nothing that sink.kafka.topic "outbox.{aggregate}.{column:tenant}" can make`, Fix: "correct the pattern in sink.kafka.allow.topic, or remove it"},
		}},
		"the mirror's": {fixed, Allow{"orders", "dead.*"}, &event.Route{Name: []byte("dead.orders")}, nil, []Finding{
			{Name: "allowed topics", OK: true, Detail: "sink.kafka.allow.topic: orders, dead.*"},
		}},
		"a mistake": {byRow, Allow{"outbox.a*", "outbox.b.c"}, nil, []string{"outbox.abc"}, []Finding{
			{Name: "allowed topics", OK: true, Detail: "sink.kafka.allow.topic: outbox.a*, outbox.b.c"},
			{Name: "allowed topics", Warn: true, Detail: `nothing at the broker matches "outbox.b.c"`, Fix: "correct the pattern in sink.kafka.allow.topic, or create what it is for"},
		}},
	} {
		got := FindAllowed("sink.kafka.", []NamedTemplate{{Key: "topic", Template: &c.Template, Allow: c.allow}}, c.mirror, c.existing)
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

// Two patterns meet when a name matches both: all short patterns are compared with all short names.
func TestMeet(t *testing.T) {
	texts := func(bytes string, most int) (all []string) {
		all = []string{""}
		for from := 0; most > 0; most-- {
			to := len(all)
			for ; from < to; from++ {
				for _, b := range bytes {
					all = append(all, all[from]+string(b))
				}
			}
		}
		return all
	}
	patterns, names := texts("ab*", 4), texts("ab", 6)
	for _, a := range patterns {
		for _, b := range patterns {
			want := slices.ContainsFunc(names, func(name string) bool { return matchesPattern(a, name) && matchesPattern(b, name) })
			if got := haveCommonName(a, b); got != want {
				t.Fatalf("%q and %q: %v, want %v", a, b, got, want)
			}
		}
	}
}
