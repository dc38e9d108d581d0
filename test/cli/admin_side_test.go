package cli

import (
	"encoding/json"
	"testing"
)

// Who has no token sees what the database knows, with the fix, and has the exit code of that.
func TestStatusWithoutAToken(t *testing.T) {
	look := aRelay.join(t)
	t.Parallel()
	r := look()
	r.admin = ""
	wants := "a relay answers at " + r.relay.Admin() + ", and wants a token: set admin.socket or a token of role read in admin.tokens, docs/running.md#security"
	if out := r.ok("status", "--admin", r.relay.Admin()); !hasAll(out, []string{"state      no access: " + wants + "; cdc-relay/" + r.slot, "confirmed "}) {
		t.Errorf("it says %s", out)
	}
	var v struct{ State, Why, Relay string }
	if err := json.Unmarshal([]byte(r.ok("status", "--json", "--admin", r.relay.Admin())), &v); err != nil || v.State != "no access" || !hasAll(v.Why+v.Relay, []string{wants}) {
		t.Errorf("it says %+v, %v", v, err)
	}
}
