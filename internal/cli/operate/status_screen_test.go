package operate

import (
	"slices"
	"strings"
	"testing"
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
