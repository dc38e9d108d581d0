package retention

import (
	"fmt"
	"testing"
)

// TestSwapInPass: another table gets the name during a pass. The two count their ids alike, and one
// transaction has written to both.
func TestSwapInPass(t *testing.T) {
	for n := 1; n <= 3; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			r := newRig(t, 0, outboxTable)
			r.exec(`CREATE TABLE public.other (LIKE public.outbox INCLUDING ALL)`)
			r.exec(`BEGIN; INSERT INTO public.outbox VALUES ('1', now()); INSERT INTO public.other VALUES ('1', now()); COMMIT`)
			r.deliver(r.slot, "1")
			begun := 0
			r.cfg.Work = func(begins bool) {
				if !begins {
					return
				}
				if begun++; begun == n {
					r.exec(`BEGIN; ALTER TABLE public.outbox RENAME TO former; ALTER TABLE public.other RENAME TO outbox; COMMIT`)
				}
			}
			r.want(r.left(), "1") // of the table that has the name now
			if begun < n {
				t.Errorf("the pass had %d transactions", begun)
			}
		})
	}
}
