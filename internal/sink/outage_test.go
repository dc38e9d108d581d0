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

// An outage has a line when it begins, one when its reason changes, one each minute, and the last
// one has its length. Nothing is logged after the end.
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
		l.Away("gone")
		goBy(61 * time.Second)
		l.Close()
		goBy(time.Hour)
		l.Away("gone for good")
		goBy(time.Hour)
		var lines []string
		for _, e := range logs.All() {
			lines = append(lines, fmt.Sprint(e.Message, e.ContextMap()))
		}
		want := []string{
			"broker connectedmap[]",
			"broker unavailablemap[reason:refused]",
			"broker still unavailablemap[away:1m0s reason:refused]",
			"broker unavailablemap[reason:blocked]",
			"broker still unavailablemap[away:2m0s reason:blocked]",
			"broker connectedmap[away:2m15s connections:2]",
			"broker unavailablemap[reason:gone]",
			"broker still unavailablemap[away:1m0s reason:gone]",
			"broker unavailablemap[reason:gone for good]",
		}
		if !slices.Equal(lines, want) {
			t.Errorf("logged\n%q, want\n%q", lines, want)
		}
	})
}
