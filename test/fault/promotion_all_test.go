//go:build testall

package fault

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// A standby that has the slot becomes the primary, there and back again. Relays go on by
// themselves, the leader and the one that stands by, whatever the order of the hosts: nothing that
// the new primary has is lost, the order is kept, what had not been saved in the standby's slot
// comes twice.
func TestPromotion(t *testing.T) {
	for i, kind := range stand.Kinds {
		t.Run(kind.Name, func(t *testing.T) {
			stand.Parallel(t)
			s, pair := stand.OnPair(t, kind, 17+i, i, 1-i)
			p := stand.BeginPromotions(s, pair, uint64(time.Now().UnixNano()))
			ways := stand.Promotions[i : 2+i] // planned and killed, killed and killed while it lags
			for _, way := range ways {
				p.Round(way)
			}
			p.Finish()
		})
	}
}
