package standbys

import (
	"slices"
	"testing"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
)

func TestNames(t *testing.T) {
	for setting, want := range map[string][]string{
		"":                {},
		"a":               {"a"},
		` b, "a" ,b`:      {"a", "b"},
		"Standby_1,other": {"other", "standby_1"},
		`"db_2" , "Db_3"`: {"Db_3", "db_2"}, // the server finds no slot of the second name
	} {
		if got := names(setting); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", setting, got, want)
		}
	}
}

// A standby is recorded when it is named and has what was read, and as long as it is named.
func TestHave(t *testing.T) {
	at := func(name string, at pglogrepl.LSN) Slot { return Slot{Name: name, at: at} }
	for name, c := range map[string]struct {
		view   View
		had    []string
		want   []string
		others bool
	}{
		"none":                    {View{}, nil, nil, false},
		"named":                   {View{Named: []string{"a"}, Slots: []Slot{at("a", 100)}}, nil, []string{"a"}, false},
		"named and behind":        {View{Named: []string{"a"}, Slots: []Slot{at("a", 99)}}, nil, nil, true},
		"behind and recorded":     {View{Named: []string{"a"}, Slots: []Slot{at("a", 99)}}, []string{"a"}, []string{"a"}, false},
		"not named any more":      {View{Slots: []Slot{at("a", 100)}}, []string{"a"}, nil, true},
		"one is not named":        {View{Named: []string{"a"}, Slots: []Slot{at("a", 100), at("b", 100)}}, nil, []string{"a"}, true},
		"one is without a slot":   {View{Named: []string{"a"}, Slots: []Slot{at("a", 100)}, without: true}, nil, []string{"a"}, true},
		"its slot was lost":       {View{Named: []string{"a"}, Slots: []Slot{{Name: "a", at: 100, Lost: true}}}, nil, nil, true},
		"its slot does not exist": {View{Named: []string{"a"}}, nil, nil, false},
	} {
		have, others := c.view.Have(&slot.Record{Standbys: c.had}, 100)
		if !slices.Equal(have, c.want) || others != c.others {
			t.Errorf("%s: %q, others %v, want %q, %v", name, have, others, c.want, c.others)
		}
	}
}

// Delivery waits for a standby that does not have what the server had one check ago, while nothing
// comes.
func TestWaitFor(t *testing.T) {
	type check struct {
		flushed, standby, received pglogrepl.LSN
		busy                       bool
		want                       bool
	}
	for name, checks := range map[string][]check{
		"all is there":                 {{100, 100, 100, false, false}, {100, 100, 100, false, false}},
		"down":                         {{100, 50, 50, false, false}, {100, 50, 50, false, true}, {200, 50, 50, false, true}},
		"down, and nothing to deliver": {{50, 50, 50, false, false}, {50, 50, 50, false, false}},
		"written since":                {{50, 50, 50, false, false}, {100, 50, 50, false, false}, {100, 50, 50, false, true}},
		"slow":                         {{100, 50, 50, false, false}, {200, 60, 60, false, false}, {300, 70, 70, false, false}},
		"the broker is away":           {{100, 50, 50, true, false}, {100, 50, 50, true, false}},
		"the server is busy":           {{100, 100, 50, false, false}, {100, 100, 50, false, false}},
		"it comes back":                {{100, 50, 50, false, false}, {100, 50, 50, false, true}, {100, 100, 100, false, false}},
	} {
		var w Wait
		for i, c := range checks {
			v := View{Named: []string{"a"}, Flushed: c.flushed, Slots: []Slot{{Name: "a", at: c.standby}}}
			if got := w.For(&v, c.received, c.busy); (len(got) == 1) != c.want {
				t.Errorf("%s: check %d: %q", name, i, got)
			}
		}
	}
	var w Wait
	for range 2 {
		w.For(&View{Named: []string{"gone"}, Flushed: 100}, 50, false)
	}
	if got := w.For(&View{Named: []string{"gone"}, Flushed: 100}, 50, false); !slices.Equal(got, []string{"gone"}) {
		t.Errorf("a slot that does not exist is not waited for: %q", got)
	}
}
