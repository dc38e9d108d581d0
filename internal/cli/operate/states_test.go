package operate

import (
	"errors"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/ops"
)

// docs/metrics.md explains every state that a status may have, and no other.
func TestStatesOnThePage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| State | Meaning |")
	table, _, _ = strings.Cut(table, "\n\n")
	described := map[string]bool{}
	for _, found := range regexp.MustCompile("(?m)^\\| `([a-z ]+)` \\|").FindAllStringSubmatch(table, -1) {
		described[found[1]] = true
	}
	want := append([]string{stateNotAnswering, stateNoAccess, stateUnknown}, ops.States...)
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(described)); !slices.Equal(got, want) {
		t.Errorf("the page explains\n%q, want\n%q", got, want)
	}
}

// The states of a status without a relay.
func TestStatesWithoutARelay(t *testing.T) {
	silent := errors.New("connection refused")
	for want, seen := range map[string]*snapshot{
		stateUnknown:      {noAnswer: silent, databaseErr: silent},
		stateNotAnswering: {noAnswer: silent, database: whoHolds(databaseStatus{SlotExists: true, SlotActive: true, Holder: "x"})},
		ops.StateStopped:  {noAnswer: silent, database: whoHolds(databaseStatus{SlotExists: true})},
	} {
		if got, why := seen.stateText(); got != want || why == "" {
			t.Errorf("the state is %q: %q, want %q", got, why, want)
		}
	}
	refused := whoHolds(databaseStatus{SlotExists: true, SlotActive: true, Holder: "x"})
	refused.setCause(&command.RefusedError{At: "h:1"})
	if refused.State != stateNoAccess || !strings.HasPrefix(refused.Why, "a relay answers at h:1, and wants a token: ") || !strings.HasSuffix(refused.Why, "; x holds the slot") {
		t.Errorf("a relay that wants a token is %q: %q", refused.State, refused.Why)
	}
	if v := whoHolds(databaseStatus{}); v.State != ops.StateStopped || !strings.Contains(v.Why, "there is no slot") {
		t.Errorf("without a slot it is %q: %q", v.State, v.Why)
	}
}

func whoHolds(v databaseStatus) *databaseStatus {
	v.judge()
	return &v
}
