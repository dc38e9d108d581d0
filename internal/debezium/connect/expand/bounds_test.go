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
	// 1,100 objects with a field each of its own: merged, each has 1,100.
	objects := make([]map[string]int, 1100)
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

// Half a surrogate pair has no UTF-8: it is an error, and no other character.
func TestHalfASurrogatePair(t *testing.T) {
	for text, half := range map[string]bool{
		`{"a":"\ud83d"}`: true, `{"a":"\uDE00x"}`: true, `{"\ud83d":1}`: true, `{"a":"\ud83d\u0041"}`: true, `{"a":["\ude00\ud83d"]}`: true,
		`{"a":"\ud83d\uDE00\n\u0041"}`: false, `{"a":"\\ud83d"}`: false, `{"a":"\ufffd"}`: false, `{"a":"\u0000\ud7ff"} \ud83d`: false,
	} {
		if x, err := (&Expander{Name: "payload"}).Expand([]byte(text)); errors.Is(err, errSurrogate) != half || !half && x.Unchanged {
			t.Errorf("%s: %+v, %v", text, x, err)
		}
	}
}
