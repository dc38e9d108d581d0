package publication

import "testing"

// TestBegin: since when a table is sent is kept while it is the same table, and is not known
// otherwise.
func TestBegin(t *testing.T) {
	was := State{Tables: map[string]Table{"same": {OID: 1, Since: 7}, "replaced": {OID: 2, Since: 7}, "gone": {OID: 5, Since: 7}, "unknown": {OID: 6}}}
	now := State{Tables: map[string]Table{"same": {OID: 1}, "replaced": {OID: 3}, "added": {OID: 4}, "unknown": {OID: 6}}}.After(was)
	if now.KnowsBegin() {
		t.Error("the begin of every table counts as known")
	}
	now.BeginAt(9)
	for name, want := range map[string]int64{"same": 7, "replaced": 9, "added": 9, "gone": 7, "unknown": 9} {
		if got := now.Tables[name].Since; got != want {
			t.Errorf("%s is sent since %d, want %d", name, got, want)
		}
	}
	if !now.KnowsBegin() {
		t.Error("the begin of a table is not known")
	}
	now.LeaveOut(8)
	if got := now.Tables["same"].Since; got != 8 {
		t.Errorf("after rows below 8 were left out, it is sent since %d", got)
	}
}
