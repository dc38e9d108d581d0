package slot

import (
	"slices"
	"testing"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/replicationtest"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

func TestStandbyNames(t *testing.T) {
	for setting, want := range map[string][]string{
		"":                {},
		"a":               {"a"},
		` b, "a" ,b`:      {"a", "b"},
		"Standby_1,other": {"other", "standby_1"},
		`"db_2" , "Db_3"`: {"Db_3", "db_2"}, // the server finds no slot of the second name
	} {
		if got := standbyNames(setting); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", setting, got, want)
		}
	}
}

// A standby is recorded when it is named and has what was read, and as long as it is named.
func TestStandbysHave(t *testing.T) {
	at := func(name string, at pglogrepl.LSN) StandbySlot { return StandbySlot{Name: name, at: at} }
	for name, c := range map[string]struct {
		view   Standbys
		had    []string
		want   []string
		others bool
	}{
		"none":                    {Standbys{}, nil, nil, false},
		"named":                   {Standbys{Named: []string{"a"}, Slots: []StandbySlot{at("a", 100)}}, nil, []string{"a"}, false},
		"named and behind":        {Standbys{Named: []string{"a"}, Slots: []StandbySlot{at("a", 99)}}, nil, nil, true},
		"behind and recorded":     {Standbys{Named: []string{"a"}, Slots: []StandbySlot{at("a", 99)}}, []string{"a"}, []string{"a"}, false},
		"not named any more":      {Standbys{Slots: []StandbySlot{at("a", 100)}}, []string{"a"}, nil, true},
		"one is not named":        {Standbys{Named: []string{"a"}, Slots: []StandbySlot{at("a", 100), at("b", 100)}}, nil, []string{"a"}, true},
		"one is without a slot":   {Standbys{Named: []string{"a"}, Slots: []StandbySlot{at("a", 100)}, anyWithoutSlot: true}, nil, []string{"a"}, true},
		"its slot was lost":       {Standbys{Named: []string{"a"}, Slots: []StandbySlot{{Name: "a", at: 100, Lost: true}}}, nil, nil, true},
		"its slot does not exist": {Standbys{Named: []string{"a"}}, nil, nil, false},
	} {
		have, others := c.view.HavingAll(&Record{Standbys: c.had}, 100)
		if !slices.Equal(have, c.want) || others != c.others {
			t.Errorf("%s: %q, others %v, want %q, %v", name, have, others, c.want, c.others)
		}
	}
}

// Delivery waits for a standby that does not have what the server had one check ago, while nothing
// comes.
func TestStandbyWaitFor(t *testing.T) {
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
		var w StandbyWait
		for i, c := range checks {
			v := Standbys{Named: []string{"a"}, Flushed: c.flushed, Slots: []StandbySlot{{Name: "a", at: c.standby}}}
			if got := w.StandbysBehind(&v, c.received, c.busy); (len(got) == 1) != c.want {
				t.Errorf("%s: check %d: %q", name, i, got)
			}
		}
	}
	var w StandbyWait
	for range 2 {
		w.StandbysBehind(&Standbys{Named: []string{"gone"}, Flushed: 100}, 50, false)
	}
	if got := w.StandbysBehind(&Standbys{Named: []string{"gone"}, Flushed: 100}, 50, false); !slices.Equal(got, []string{"gone"}) {
		t.Errorf("a slot that does not exist is not waited for: %q", got)
	}
}

func TestNamesStandby(t *testing.T) {
	for setting, want := range map[string]bool{
		``:                               false,
		`*`:                              true,
		` * `:                            true,
		`a, b`:                           false,
		`a, *`:                           true,
		`"cdc-relay/shop"`:               true,
		`"CDC-Relay/Shop"`:               true, // the server compares without case
		`"cdc-relay/shop2"`:              false,
		`"cdc-relay/sho"`:                false,
		`2 (a, "cdc-relay/shop")`:        true,
		`FIRST 1 (a, b)`:                 false,
		`first 1 ("cdc-relay/shop", b)`:  true,
		`ANY 2 (a, *)`:                   true,
		"ANY\n1\t(\n\"cdc-relay/shop\")": true,
		`"*"`:                            true, // quoted, it means the same to the server
		`"a ""quoted"" one"`:             false,
		`"a, cdc-relay/shop"`:            false,
		`any`:                            false,
	} {
		if got := namesStandby(setting, "cdc-relay/shop"); got != want {
			t.Errorf("%q: %v, want %v", setting, got, want)
		}
	}
}

// What the server says counts, should we have misread its setting.
func TestSyncState(t *testing.T) {
	t.Parallel()
	for state, refused := range map[string]bool{"": false, "async": false, "potential": true, "sync": true, "quorum": true} {
		err := CheckSyncState(&source.Config{Slot: "shop"}, &View{HolderState: state})
		if refused {
			replicationtest.WantStop(t, err, event.ExitFailure, "sync_standby")
		} else if err != nil {
			t.Errorf("%q: %v", state, err)
		}
	}
}
