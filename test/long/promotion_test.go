//go:build nightly

// Many promotions of a standby.

package long

import (
	"flag"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

var (
	promotions    = flag.Int("promotions", 30, "on each kind of broker in TestPromotions")
	promotionSeed = flag.Uint64("promotion-seed", 0, "of TestPromotions; 0: another one each time")
)

// Standbys of PostgreSQL 17 and 18 are promoted one after the other under load: see TestPromotion
// in test/fault.
func TestPromotions(t *testing.T) {
	seed := *promotionSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	stand.PromoteMany(t, seed, *promotions)
}
