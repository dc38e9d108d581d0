package session

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// A server that refuses connections is asked every few seconds; at once when a shutdown is
// suspected.
func TestWatchPauses(t *testing.T) {
	for name, c := range map[string]struct {
		refused error
		suspect bool
		want    time.Duration
	}{
		"a session has ended":               {want: watchPause},
		"refused":                           {refused: errors.New("too many clients"), want: refusedPause},
		"refused, and a shutdown suspected": {refused: errors.New("too many clients"), suspect: true, want: watchPause},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := NewShutdownWatch(&Shared{Cfg: &source.Config{}})
				if c.suspect {
					signal(w.suspect)
				}
				began := time.Now()
				if !w.pauseBetween(context.Background(), c.refused) || time.Since(began) != c.want {
					t.Errorf("paused for %s, want %s", time.Since(began), c.want)
				}
			})
		})
	}
}
