// Package await is how tests wait: for a condition, polled, and with a context that ends with the
// test. A busy machine is slow and not wrong, so a wait counts answers and not seconds. A call that
// hangs is ended by the watchdog of the whole run (tools/testrun).
package await

import (
	"context"
	"testing"
	"time"
)

const (
	// Every is the pause between the first polls. Later ones are rarer, because what is asked costs
	// more than the pause.
	Every = 10 * time.Millisecond
	// Polls is how often a wait asks before it gives up: two minutes at least, longer where answers
	// take long.
	Polls = 2400
)

// Until polls ok until it is true. After Polls answers that were false the test fails, with what it
// waited for and what the states say then. It is called from the test's own goroutine.
func Until(t testing.TB, what string, ok func() bool, states ...func() any) {
	t.Helper()
	for n := range Polls {
		if ok() {
			return
		}
		if n < 50 {
			time.Sleep(Every)
		} else {
			time.Sleep(5 * Every)
		}
	}
	for _, state := range states {
		t.Logf("state: %+v", state())
	}
	t.Fatalf("waited for %s: not so after %d polls", what, Polls)
}

// Closed is Until for a channel that is closed in the end.
func Closed(t testing.TB, what string, c <-chan struct{}) {
	t.Helper()
	select { // it mostly is soon
	case <-c:
		return
	case <-time.After(Every):
	}
	Until(t, what, func() bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	})
}

// Context is for the calls of a test and its cleanups, before which t.Context ends. It has no
// deadline.
func Context(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	return ctx
}
