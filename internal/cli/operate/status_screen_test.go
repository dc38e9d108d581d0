package operate

import (
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/ops"
)

func TestFit(t *testing.T) {
	for _, c := range []struct {
		text          string
		width, height int
		want          []string
	}{
		{"state      idle\nslot       s\n", 30, 5, []string{"state      idle", "slot       s"}},
		{"state      broker down: no route to it", 24, 5, []string{"state      broker down:", "           no route to", "           it"}},
		{"state      \x1b[1;31mbroker down\x1b[0m: no route", 24, 5, []string{"state      \x1b[1;31mbroker down\x1b[0m:", "           no route"}},
		{"state      " + strings.Repeat("x", 30), 24, 5, []string{"state      xxxxxxxxxxxxx", "           xxxxxxxxxxxxx", "           xxxx"}},
		{"a\nb\nc\nd\n", 30, 3, []string{"a", "b", "... 2 more lines"}},
		{"a\nb\n", 5, 1, []string{"... 2"}},
		{"state      too narrow to break", 10, 3, []string{"state     "}},
	} {
		if got := fit(c.text, c.width, c.height); !slices.Equal(got, c.want) {
			t.Errorf("%q in %dx%d:\n%q, want\n%q", c.text, c.width, c.height, got, c.want)
		}
	}
}

// The screen shows the newest lines of the log, as many as it has room for.
func TestLogLines(t *testing.T) {
	s := &ops.Status{Log: []string{"a", "b\x1b[2J", strings.Repeat("c", 40)}}
	for room, want := range map[int][]string{
		-1: nil, 0: nil, 1: {"log        ccccccc…"}, 9: {"log        a", "           b?[2J", "           ccccccc…"},
	} {
		if got := logLines(s, 19, room); !slices.Equal(got, want) {
			t.Errorf("in %d lines: %q, want %q", room, got, want)
		}
	}
	s.Log = slices.Repeat([]string{"x"}, 20)
	if got := logLines(s, 80, 100); len(got) != maxLogLines || logLines(nil, 80, 100) != nil {
		t.Errorf("%d lines are shown of 20", len(got))
	}
}
