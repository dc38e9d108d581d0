package schema

import "testing"

// TestBegin: what was there before a table was sent is kept while it is the same table, and is not
// known otherwise.
func TestBegin(t *testing.T) {
	was := Sends{Tables: map[string]OutboxTable{"same": {OID: 1, First: "7:7:"}, "replaced": {OID: 2, First: "7:7:"}, "gone": {OID: 5, First: "7:7:"}, "unknown": {OID: 6}}}
	now := Sends{Tables: map[string]OutboxTable{"same": {OID: 1}, "replaced": {OID: 3}, "added": {OID: 4}, "unknown": {OID: 6}}}.AddRemembered(was)
	if now.KnowsFirst() {
		t.Error("the begin of every table counts as known")
	}
	now.SetFirst("9:9:")
	for name, want := range map[string]string{"same": "7:7:", "replaced": NoRows, "added": "9:9:", "gone": "7:7:", "unknown": "9:9:"} {
		if got := now.Tables[name].First; got != want {
			t.Errorf("before %s was %s, want %s", name, got, want)
		}
	}
	if !now.KnowsFirst() {
		t.Error("the begin of a table is not known")
	}
}

// TestBeginAtASlot: the snapshot that a slot exports may be a text that PostgreSQL does not read.
func TestBeginAtASlot(t *testing.T) {
	for text, want := range map[string]string{"5129:5128:": "5129:5129:", "7:9:8": "7:9:8", "7:7:": "7:7:", NoRows: NoRows} {
		if got := normalizedSnapshot(text); got != want {
			t.Errorf("%s is kept as %s, want %s", text, got, want)
		}
	}
}
