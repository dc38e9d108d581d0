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
	early         = flag.Int("early-promotions", 6, "on each version in TestEarlyPromotions")
	promotionSeed = flag.Uint64("promotion-seed", 0, "of both; 0: another one each time")
)

// Standbys of PostgreSQL 17 and 18 that have the slot are promoted one after the other under load.
// Relays go on by themselves, the leader and the one that stands by, whatever the order of the
// hosts: nothing that the new primary has is lost, the order is kept, what had not been saved in
// the standby's slot comes twice.
func TestPromotions(t *testing.T) { stand.PromoteMany(t, seed(), *promotions) }

// A standby is promoted before anything is known to be ready: nothing is lost, whether the relay
// goes on by itself or stops.
func TestEarlyPromotions(t *testing.T) { stand.PromoteEarly(t, seed(), *early) }

func seed() uint64 {
	if *promotionSeed != 0 {
		return *promotionSeed
	}
	return uint64(time.Now().UnixNano())
}
