package slot

import "testing"

// A slot is logged when it is found a second time, once, and again after somebody has held it.
func TestUnheldIsLoggedOnce(t *testing.T) {
	var names unheldNames
	a, b := Unheld{Name: "a"}, Unheld{Name: "b"}
	for i, look := range []struct {
		found []Unheld
		say   string
		fresh bool
	}{
		{[]Unheld{a}, "", true},
		{[]Unheld{a}, "a", false},
		{[]Unheld{a}, "", false},
		{[]Unheld{a, b}, "", true},
		{nil, "", false},
		{[]Unheld{b}, "", true},
		{[]Unheld{a, b}, "b", true},
		{[]Unheld{a, b}, "a", false},
	} {
		list, fresh := names.replaceWith(look.found)
		say := ""
		for _, u := range list {
			say += u.Name
		}
		if say != look.say || fresh != look.fresh {
			t.Errorf("look %d: it says %q, fresh %t, want %q, %t", i, say, fresh, look.say, look.fresh)
		}
	}
}
