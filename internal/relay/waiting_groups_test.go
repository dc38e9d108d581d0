package relay

import "testing"

// An ordering group is cut over once no more than a run of it is left and one was confirmed, not
// before: what waits in memory for a long ordering group would fill the in-flight budget.
func TestCutOverBeginsAtARun(t *testing.T) {
	for _, whole := range []bool{false, true} {
		w := newWaitingGroups(&room{limit: 1})
		if whole {
			w.countWhole(9, Run+3)
		} else {
			w.add(1, 9, Run+3)
		}
		keeps := func(want bool) {
			t.Helper()
			if is, keep := w.lookup(1, 9); !is || keep != want {
				t.Errorf("whole %t: held %t, cut over %t, want %t", whole, is, keep, want)
			}
		}
		w.sub(1, 9, true)
		w.sub(1, 9, true) // a run and one more are left
		keeps(false)
		w.sub(1, 9, false) // a run, while the line stops
		keeps(false)
		w.sub(1, 9, true)
		keeps(true)
		w.undo(1, 9)
		keeps(false)
	}
}
