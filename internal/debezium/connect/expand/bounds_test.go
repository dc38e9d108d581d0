package expand

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"
)

// An expansion that would cost too much is an error, not a dead relay.
func TestExpansionsAreBounded(t *testing.T) {
	e := Expander{Name: "payload"}
	many := `{"a":[` + strings.Repeat("1,", maxMembers) + `1]}`
	if _, err := e.Expand([]byte(many)); !errors.Is(err, errMembers) {
		t.Errorf("%d members: %v", maxMembers+1, err)
	}
	// 2,000 objects with a field each of its own: merged, each has 2,000.
	objects := make([]map[string]int, 2000)
	for i := range objects {
		objects[i] = map[string]int{"f" + strconv.Itoa(i): i}
	}
	text, err := json.Marshal(map[string]any{"a": objects})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Expand(text); !errors.Is(err, errMembers) {
		t.Errorf("objects that swell: %v", err)
	}
	// Jackson's own limits, seen on 2.21.2: names of 50,000 characters are read, longer ones are
	// not.
	for n, unchanged := range map[int]bool{maxName: false, maxName + 1: true} {
		if x, err := e.Expand([]byte(`{"` + strings.Repeat("n", n) + `":1}`)); err != nil || x.Unchanged != unchanged {
			t.Errorf("a name of %d: %v, %v", n, x.Unchanged, err)
		}
	}
}
