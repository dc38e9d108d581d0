package cases

import (
	"slices"
	"strings"
	"testing"
)

// twoCases are two cases, of which the second deliberately differs.
func twoCases() *Group {
	return &Group{Name: "g", Cases: []Case{{Name: "same", SQL: []string{"a", "b"}}, {Name: "other", SQL: []string{"c"}, Differs: NumericNaN}}}
}

func sent(n int, value string) Record {
	return Record{Key: Of(nil), Value: Of([]byte(value)), Headers: []Header{{Name: "id", Value: Of([]byte(uuid("g", n)))}}}
}

// What the comparison must not take for the same.
func TestComparisonFails(t *testing.T) {
	g := twoCases()
	want := []Record{sent(1, "a"), sent(2, "b"), sent(3, "null")}
	for name, c := range map[string]struct {
		got  []Record
		says string // "": the same
	}{
		"the same":         {[]Record{sent(1, "a"), sent(2, "b")}, ""},
		"another value":    {[]Record{sent(1, "a"), sent(2, "x")}, `ours {`},
		"one less":         {[]Record{sent(1, "a")}, "ours nothing"},
		"twice at the end": {[]Record{sent(1, "a"), sent(2, "b"), sent(2, "b")}, "Debezium nothing"},
		"twice":            {[]Record{sent(1, "a"), sent(1, "a"), sent(2, "b")}, `"b"`},
		"another order":    {[]Record{sent(2, "b"), sent(1, "a")}, `"b"`},
		"one of nobody":    {[]Record{sent(1, "a"), sent(2, "b"), sent(9, "c")}, "Debezium nothing"},
	} {
		said := strings.Join(g.Differences(want, c.got), "\n")
		if (said == "") != (c.says == "") || !strings.Contains(said, c.says) {
			t.Errorf("%s: %q", name, said)
		}
	}
}

// A case that deliberately differs is a dead letter, and nothing else is one.
func TestRefusalsFail(t *testing.T) {
	g := twoCases()
	want := []Record{sent(1, "a"), sent(2, "b"), sent(3, "null")}
	same := want[:2]
	for name, c := range map[string]struct {
		got  []Record
		dead []string
		says string
	}{
		"as declared":     {same, []string{uuid("g", 3)}, ""},
		"garbage is sent": {append(slices.Clone(same), sent(3, "garbage")), nil, "neither Debezium's"},
		"sent, and dead":  {append(slices.Clone(same), sent(3, "garbage")), []string{uuid("g", 3)}, "neither Debezium's"},
		"gone":            {same, nil, "not sent, and no dead letter"},
		"the same":        {want, nil, "is said to differ"},
		"another is dead": {same, []string{uuid("g", 3), uuid("g", 2)}, "declared nowhere"},
	} {
		said := strings.Join(g.Refusals(want, c.got, c.dead), "\n")
		if (said == "") != (c.says == "") || !strings.Contains(said, c.says) {
			t.Errorf("%s: %q", name, said)
		}
	}
}

// The name of an envelope's schema is without the route for tables of any name.
func TestRouteInNameOfAnyTable(t *testing.T) {
	for _, table := range []string{"outbox", "outbox-events", "Out_Box", "out box"} {
		one, other := sent(1, `{"name":"`+Prefix+".public."+table+`.order.Value"}`), sent(1, `{"name":"`+Prefix+".public."+table+`.g.same.Value"}`)
		if neutral(one) != neutral(other) {
			t.Errorf("%s: %s\n%s", table, neutral(one), neutral(other))
		}
	}
	if one, other := sent(1, `{"name":"`+Prefix+`.public.a.x.Value"}`), sent(1, `{"name":"`+Prefix+`.public.b.x.Value"}`); neutral(one) == neutral(other) {
		t.Error("another table's is the same")
	}
}
