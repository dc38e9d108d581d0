package sink

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

func TestTemplateValues(t *testing.T) {
	ev := &event.Event{
		ID: []byte("id-1"), Aggregate: []byte("order"), Key: []byte("42"), Type: []byte("created"),
		Columns: [][]byte{[]byte("eu"), nil},
	}
	for _, c := range []struct {
		text, want string
		null       bool
	}{
		{text: "outbox.events", want: "outbox.events"},
		{text: "", want: ""},
		{text: "{aggregate}.{type}", want: "order.created"},
		{text: "a{key}b{id}c", want: "a42bid-1c"},
		{text: "{column:region}-{key}", want: "eu-42"},
		{text: "{column:tenant}-{key}", null: true},
		{text: "{key}{key}", want: "4242"},
	} {
		tpl, err := ParseTemplate(c.text)
		if err != nil {
			t.Fatal(err)
		}
		if tpl, err = tpl.Bind([]string{"region", "tenant"}); err != nil {
			t.Fatal(err)
		}
		got, ok := tpl.Append(nil, ev)
		if ok == c.null || ok && string(got) != c.want {
			t.Errorf("%q: got %q, %v; want %q, NULL %v", c.text, got, ok, c.want, c.null)
		}
	}
}

func TestTemplateNullIsNotTheEmptyString(t *testing.T) {
	tpl, err := ParseTemplate("x.{type}")
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := tpl.Append(nil, &event.Event{Type: []byte{}}); !ok || string(got) != "x." {
		t.Errorf("empty type: got %q, %v", got, ok)
	}
	if _, ok := tpl.Append(nil, &event.Event{}); ok {
		t.Error("a NULL type made a name")
	}
}

func TestTemplateRefusals(t *testing.T) {
	for text, want := range map[string]string{
		"{payload}":     "unknown placeholder {payload}",
		"{Aggregate}":   "unknown placeholder {Aggregate}",
		"{column:}":     "unknown placeholder {column:}",
		"{}":            "unknown placeholder {}",
		"{{key}}":       "a { without its }",
		"key}":          "a } without its {",
		"{key":          "a { without its }",
		"{key}}":        "a } without its {",
		"x{aggregate{a": "a { without its }",
	} {
		_, err := ParseTemplate(text)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "{column:NAME}") {
			t.Errorf("%q: got %v; want %q and the list of what is allowed", text, err, want)
		}
	}
}

func TestTemplateColumns(t *testing.T) {
	tpl, err := ParseTemplate("{column:b}{aggregate}{column:a}{column:b}")
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(tpl.Columns(), ","); got != "b,a" {
		t.Errorf("columns: got %q", got)
	}
	if got := strings.Join(tpl.Uses(), ","); got != "aggregate" {
		t.Errorf("uses: got %q", got)
	}
	if _, err := tpl.Bind([]string{"a"}); err == nil || !strings.Contains(err.Error(), `column "b"`) {
		t.Errorf("bind without b: got %v", err)
	}
	if _, ok := tpl.Append(nil, &event.Event{Aggregate: []byte("x"), Columns: [][]byte{[]byte("v")}}); ok {
		t.Error("an unbound template made a name")
	}
}

func TestConstantTemplateCostsNothing(t *testing.T) {
	tpl, err := ParseTemplate("outbox.events")
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := tpl.Constant(); !ok {
		t.Fatal("not constant")
	}
	dynamic, err := ParseTemplate("{aggregate}.{type}")
	if err != nil {
		t.Fatal(err)
	}
	ev := &event.Event{Aggregate: []byte("order"), Type: []byte("created")}
	buf := make([]byte, 0, 64)
	if n := testing.AllocsPerRun(100, func() { tpl.Append(buf, ev); dynamic.Append(buf, ev) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
