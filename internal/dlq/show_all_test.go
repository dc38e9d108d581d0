//go:build testall

package dlq

import (
	"strings"
	"testing"
)

func TestShowWhatARowWaitsFor(t *testing.T) {
	r := setup(t)
	first, second, third := r.put(sample{of: Deferred}), r.put(sample{of: Deferred}), r.put(sample{of: Deferred})
	other := r.put(sample{of: Deferred})
	r.exec(`UPDATE cdc_relay.retry SET ordering_group = 2 WHERE n = $1`, other)
	for n, want := range map[int64]int64{first: 0, second: first, third: first, other: 0} {
		d, err := r.admin.Show(r.ctx, Deferred, n, true)
		r.must(err)
		if got := d.Behind; got == nil && want != 0 || got != nil && *got != want {
			t.Errorf("row %d is behind %v, want %d", n, got, want)
		}
	}
}

// Ids of any type are looked for as that type, so that its index serves; what is no value of it is
// nobody's. A longer one is another id, and what is found has the form of its row.
func TestEventsWithIDsOfOtherTypes(t *testing.T) {
	r := setup(t)
	for kind, id := range map[string]string{"bigint": "17", "text": "a'b", "bytea": `\x00ff`, "json": `{"a":1}`, "timestamptz": "2026-11-20 12:00:00+00", "char(8)": "abc", "varchar(3)": "abc"} {
		r.exec(`DROP TABLE IF EXISTS public.other`)
		r.exec(`CREATE TABLE public.other ("The Id" ` + kind + `)`)
		r.exec(`INSERT INTO public.other VALUES ($1::text::`+kind+`)`, id)
		for wanted, state := range map[string]string{id: EventUnknown, id + "      x": EventNotThere} {
			e, err := r.admin.Event(r.ctx, wanted, []Outbox{{"public", "other", []string{"The Id"}, []string{"tx"}}}, says(Relay{}))
			if err != nil || e.State != state || state == EventUnknown && e.ID != strings.TrimRight(value[string](r, `SELECT format('%s', "The Id") FROM public.other`), " ") {
				t.Errorf("%s %s is %+v, %v; want %s", kind, wanted, e, err, state)
			}
		}
	}
}

// Columns that end in the middle: whatever is there is shown, and nothing breaks.
func TestColumnsThatAreCut(t *testing.T) {
	whole := []byte("\x01a\x03bc\x01d\x00\x00\x01")
	for i := range whole {
		splitColumns(whole[:i])
	}
	if got := splitColumns(whole); len(got) != 3 || *got[2].Value.Text != "" || got[2].Name != "" {
		t.Errorf("the columns are %+v", got)
	}
	for _, odd := range []string{"\xff", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01a", "\x01a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "\x05abc"} {
		if got := splitColumns([]byte(odd)); len(got) != 0 {
			t.Errorf("%q is %+v", odd, got)
		}
	}
}
