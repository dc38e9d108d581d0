package rabbit

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// Culprits that do not come again do not cost every later event a look for ever.
func TestCulpritsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c culprits
		at, pos := pair{exchange: "missing"}, event.Position{Commit: 1}
		c.setLimit(100)
		c.add(culprit{whole: true, pair: at}, false)
		time.Sleep(culpritsAge) //nolint:forbidigo // the bubble's time, not ours
		if known, _ := c.find(pos, at, 1); !known {
			t.Error("forgotten too early")
		}
		time.Sleep(time.Second) //nolint:forbidigo // the bubble's time, not ours
		if known, _ := c.find(pos, at, 101); known || c.count.Load() != 0 {
			t.Errorf("still known: %+v, over %d bytes", c.known, c.limit)
		}
	})
}
