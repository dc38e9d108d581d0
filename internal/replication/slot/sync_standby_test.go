package slot

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/replicationtest"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

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
