package stdout

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/sinktest"
)

func TestConformance(t *testing.T) {
	has := []sinktest.Kind{sinktest.Good, sinktest.Unavailable, sinktest.Stalled, sinktest.EventInvalid, sinktest.EventUndecodable}
	sinktest.Run(t, func(kind sinktest.Kind) bool { return slices.Contains(has, kind) }, func(t *testing.T) sinktest.Broker {
		b := &file{t: t, read: make(chan struct{})}
		close(b.read)
		b.sink = New(b, NewLines(nil))
		ctx, cancel := context.WithCancel(context.Background())
		b.stop, b.done = cancel, make(chan error, 1)
		go func() { b.done <- b.sink.Run(ctx) }()
		t.Cleanup(func() {
			b.Fix(sinktest.Stalled)
			if err := b.Stop(); err != nil {
				t.Error(err)
			}
		})
		return b
	})
}

// file is a file that can be full, or a pipe that nobody reads.
type file struct {
	t    *testing.T
	sink *Sink
	stop context.CancelFunc
	done chan error
	n    uint64

	mu    sync.Mutex
	full  bool
	read  chan struct{} // closed while somebody reads
	lines []sinktest.Delivery
}

func (f *file) Write(p []byte) (int, error) {
	f.mu.Lock()
	read := f.read
	f.mu.Unlock()
	<-read // as a pipe does: what was begun is written once there is room
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.full {
		return 0, errors.New("no space left")
	}
	var l ownLine
	if err := json.Unmarshal(p, &l); err != nil || bytes.Count(p, []byte("\n")) != 1 {
		f.t.Errorf("not one JSON line: %q", p)
	}
	pos, err := event.ParsePosition(l.Position)
	if err != nil {
		f.t.Error(err)
	}
	f.lines = append(f.lines, sinktest.Delivery{Position: pos, ID: *l.ID, Key: *l.Key})
	return len(p), nil
}

func (f *file) Idempotent() bool { return false }

func (f *file) Sink() sink.Sink { return f.sink }

func (f *file) Stop() error {
	f.stop()
	err := <-f.done
	f.done <- err
	return err
}

func (f *file) Event(kind sinktest.Kind, key string) *event.Event {
	f.n++
	ev := sinktest.NewEvent(f.n, key)
	switch kind {
	case sinktest.EventInvalid:
		ev.Payload = []byte("{")
	case sinktest.EventUndecodable:
		ev.Fault = errors.New("the id is NULL")
	default:
	}
	return ev
}

func (f *file) Break(kind sinktest.Kind) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if kind == sinktest.Stalled {
		f.read = make(chan struct{})
		return
	}
	f.full = true
}

func (f *file) Fix(sinktest.Kind) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.full = false
	select {
	case <-f.read:
	default:
		close(f.read)
	}
}

func (f *file) Delivered() []sinktest.Delivery {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lines[:len(f.lines):len(f.lines)]
}
