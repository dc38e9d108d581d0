package ops

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// A loop that reports when it waits is stuck when it does not finish its work in time, and never
// while it waits.
func TestWork(t *testing.T) {
	h := NewWork("the feeder", time.Minute)
	later := func() string { return h.Stuck(time.Now().Add(2 * time.Minute)) }
	if why := later(); why != "" {
		t.Errorf("one that has begun nothing: %s", why)
	}
	h.Work(true)
	if why := h.Stuck(time.Now().Add(59 * time.Second)); why != "" {
		t.Error(why)
	}
	if why := later(); !strings.HasPrefix(why, "the feeder has been stuck for 2m") {
		t.Errorf("one that does not come round: %q", why)
	}
	h.Work(false)
	if why := later(); why != "" {
		t.Errorf("one that waits: %s", why)
	}
}

// A clock that is set, forward or back, changes nothing: beats are compared by the monotonic one.
func TestBeatsAreMonotonic(t *testing.T) {
	h := NewWork("the feeder", time.Minute)
	h.Work(true)
	for _, at := range []time.Time{h.beat(), h.running()} {
		if s := at.String(); !strings.Contains(s, " m=") || time.Since(at) > time.Minute || time.Until(at) > 0 {
			t.Errorf("it is told as %s", s)
		}
	}
}

// A loop that begins again after a long wait has its whole bound before it counts as stuck.
func TestHeartbeatBeginsAgain(t *testing.T) {
	begun := time.Now()
	h := NewHeartbeat("reporter", time.Minute, func() time.Time { return begun })
	h.last.Store(int64(begun.Add(-time.Hour).Sub(origin)))
	if why := h.Stuck(begun.Add(59 * time.Second)); why != "" {
		t.Error(why)
	}
	if why := h.Stuck(begun.Add(61 * time.Second)); why == "" {
		t.Error("not stuck after its bound")
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
