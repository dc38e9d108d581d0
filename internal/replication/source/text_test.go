package source

import "testing"

// The command has two roles: who runs it, and whom it is about.
func TestInitHint(t *testing.T) {
	want := "run `cdc-relay init --no-slot --url <URL> --role 'it'\\''s'`: the <URL> is of a superuser or a role that may create it, 'it'\\''s' is the relay's role"
	if got := InitHint("it's"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
