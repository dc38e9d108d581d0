package relay

import "testing"

// An ordering group is cut over once no more than a run of it is left and one was confirmed, not
// before: what waits in memory for a long ordering group would fill the in-flight budget.
func TestCutOverBeginsAtARun(t *testing.T) {
	for _, whole := range []bool{false, true} {
		h := newWaitingGroups(&room{limit: 1})
		if whole {
			h.countWhole(9, Run+3)
		} else {
			h.add(1, 9, Run+3)
		}
		keeps := func(want bool) {
			t.Helper()
			if is, keep := h.of(1, 9); !is || keep != want {
				t.Errorf("whole %t: held %t, cut over %t, want %t", whole, is, keep, want)
			}
		}
		h.sub(1, 9, true)
		h.sub(1, 9, true) // a run and one more are left
		keeps(false)
		h.sub(1, 9, false) // a run, while the line stops
		keeps(false)
		h.sub(1, 9, true)
		keeps(true)
		h.undo(1, 9)
		keeps(false)
	}
}
