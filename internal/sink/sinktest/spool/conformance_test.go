package spool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/sinktest"
)

func TestConformance(t *testing.T) {
	has := []sinktest.Kind{sinktest.Good, sinktest.Unavailable, sinktest.EventInvalid, sinktest.EventUndecodable}
	sinktest.Run(t, func(kind sinktest.Kind) bool { return slices.Contains(has, kind) }, func(t *testing.T) sinktest.Broker {
		settings := Driver().Settings().(*Settings)
		settings.Directory = filepath.Join(t.TempDir(), "spool")
		s, err := settings.Open(&sink.Opening{})
		if err != nil {
			t.Fatal(err)
		}
		d := &directory{t: t, path: settings.Directory, sink: s, done: make(chan error, 1)}
		d.Fix(sinktest.Unavailable)
		ctx, cancel := context.WithCancel(context.Background())
		d.stop = cancel
		go func() { d.done <- s.Run(ctx) }()
		t.Cleanup(func() {
			if err := d.Stop(); err != nil {
				t.Error(err)
			}
		})
		return d
	})
}

// directory is a directory that can be away.
type directory struct {
	t    *testing.T
	path string
	sink sink.Sink
	stop context.CancelFunc
	done chan error
	n    uint64
}

func (d *directory) Idempotent() bool { return false }

func (d *directory) Sink() sink.Sink { return d.sink }

func (d *directory) Stop() error {
	d.stop()
	err := <-d.done
	d.done <- err
	return err
}

func (d *directory) Event(kind sinktest.Kind, key string) *event.Event {
	d.n++
	ev := sinktest.NewEvent(d.n, key)
	switch kind {
	case sinktest.EventInvalid:
		ev.Payload = []byte("{")
	case sinktest.EventUndecodable:
		ev.Fault = errors.New("the id is NULL")
	default:
	}
	return ev
}

func (d *directory) Break(sinktest.Kind) { d.must(os.Rename(d.path, d.path+".away")) }

func (d *directory) Fix(sinktest.Kind) {
	if err := os.Rename(d.path+".away", d.path); errors.Is(err, os.ErrNotExist) {
		d.must(os.MkdirAll(d.path, 0o700))
	}
}

func (d *directory) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

func (d *directory) Delivered() (all []sinktest.Delivery) {
	text, err := os.ReadFile(filepath.Join(d.path, "order"))
	if err != nil {
		return nil // nothing came, or it is away
	}
	for row := range bytes.Lines(text) {
		var l Line
		d.must(json.Unmarshal(row, &l))
		pos, err := event.ParsePosition(l.Position)
		d.must(err)
		all = append(all, sinktest.Delivery{Position: pos, ID: l.ID, Key: l.Key})
	}
	return all
}
