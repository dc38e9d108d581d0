package work

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Pauses grow from the shortest to the longest, and begin again.
func TestPauses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := Backoff{Min: 100 * time.Millisecond, Max: time.Second}
		pause := func(longest time.Duration) {
			t.Helper()
			began := time.Now()
			err := b.Pause(t.Context())
			if took := time.Since(began); err != nil || took < longest/2 || took > longest {
				t.Errorf("pause of %s, %v; want half of %s or more", took, err, longest)
			}
		}
		for _, longest := range []int{100, 200, 400, 800, 1000, 1000} {
			pause(time.Duration(longest) * time.Millisecond)
		}
		b.Reset()
		pause(100 * time.Millisecond)
		why := errors.New("the session has ended")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(why)
		if err := b.Pause(ctx); !errors.Is(err, why) {
			t.Errorf("pause that is cut short: %v", err)
		}
	})
}

// Each reason is said at once and then each minute, however often it comes and whatever comes in
// between.
func TestJournal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		j := NewJournal(slog.New(slog.NewTextHandler(&log, nil)), "it fails", "it works")
		said := func(want ...string) {
			t.Helper()
			lines := strings.Count(log.String(), "\n")
			for _, w := range want {
				if !strings.Contains(log.String(), w) {
					lines = -1
				}
			}
			if lines != len(want) {
				t.Errorf("want lines with %q:\n%s", want, &log)
			}
			log.Reset()
		}
		if j.Works() {
			t.Error("it has always worked")
		}
		said()
		for n := range 59 {
			j.Failed(errors.New("read tcp 127.0.0.1:" + strings.Repeat("1", 1+n%4) + "->127.0.0.1:5432: refused"))
			j.Failed(errors.New("no such host"))
			<-time.After(time.Second)
		}
		said("127.0.0.1:5432: refused", "no such host")
		<-time.After(time.Second)
		j.Failed(errors.New("no such host"))
		said("no such host")
		if !j.Works() || j.Works() {
			t.Error("it works again, once")
		}
		said("after=1m0s")
		j.Failed(errors.New("no such host"))
		said("no such host")
	})
}
