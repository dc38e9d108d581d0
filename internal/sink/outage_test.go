package sink

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// An outage has a line when it begins, one when its reason changes, and one with its length at the
// end.
func TestOutageLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		l := NewOutageLog(zap.New(core), "broker connected")
		goBy := func(d time.Duration) {
			time.Sleep(d) //nolint:forbidigo // a bubble's time takes none of ours
			synctest.Wait()
		}
		l.Back()
		goBy(time.Hour)
		l.Away("refused")
		goBy(90 * time.Second)
		l.Away("blocked")
		goBy(45 * time.Second)
		l.Back(zap.Int("connections", 2))
		goBy(time.Hour)
		var lines []string
		for _, e := range logs.All() {
			lines = append(lines, fmt.Sprint(e.Message, e.ContextMap()))
		}
		want := []string{
			"broker connectedmap[]",
			"broker unavailablemap[reason:refused]",
			"broker unavailablemap[reason:blocked]",
			"broker connectedmap[away:2m15s connections:2]",
		}
		if !slices.Equal(lines, want) {
			t.Errorf("logged\n%q, want\n%q", lines, want)
		}
	})
}
