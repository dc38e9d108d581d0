package source

import "testing"

func TestNameForAShell(t *testing.T) {
	for name, want := range map[string]string{"relay_1": "relay_1", "o'hara": `'o'\''hara'`, "a b": "'a b'"} {
		if got := shellWord(name); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
