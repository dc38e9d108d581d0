package relay

import (
	"context"
	"testing"
)

// A stop that was cut the moment everything was settled is a clean one.
func TestNothingToWaitForIsNoCut(t *testing.T) {
	l := New(Config{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 1000 {
		if err := l.WaitSettled(ctx); err != nil {
			t.Fatal(err)
		}
	}
}
