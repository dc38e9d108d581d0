//go:build nightly

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
	seed := uint64(time.Now().UnixNano())
	t.Run("RabbitMQ", func(t *testing.T) {
		stand.Parallel(t)
		p := stand.BeginPromotions(t, stand.KindRabbitMQ, 17, seed, 0, 1)
		p.Round(stand.Planned)
		p.Fix()
		p.Round(stand.Killed)
		p.Finish()
		p.Unnamed() // it ends with exit 3, and goes on once that is accepted
		p.Stop()
	})
	t.Run("Kafka", func(t *testing.T) {
		stand.Parallel(t)
		p := stand.BeginPromotions(t, stand.KindKafka, 18, seed, 1, 0)
		p.Round(stand.KilledLagging)
		p.Finish()
		p.CatchUp()
		p.Stop()
	})
}
