package conn

import (
	"io"
	"testing"
	"time"
)

func TestWireRemembersThatItStoodStill(t *testing.T) {
	w, _, far := pipe(t)
	go w.run()
	go func() { _, _ = far.Write([]byte("ab")) }()
	buf := make([]byte, 1)
	read := func() {
		t.Helper()
		if _, err := io.ReadFull(w, buf); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	read()
	if w.WasFrozen(now) {
		t.Error("frozen while it works")
	}
	if !w.WasFrozen(now.Add(time.Minute)) {
		t.Error("not frozen after a minute of work on one read")
	}
	w.working.Store(now.Add(-time.Minute).UnixNano())
	read()
	if !w.WasFrozen(time.Now()) {
		t.Error("the next read makes it forget")
	}
}

// A huge message over a slow line is progress as long as pieces of it leave.
func TestWireWritesInPieces(t *testing.T) {
	w, _, far := pipe(t)
	go w.run()
	if _, err := w.Write(make([]byte, 3*wirePiece)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(far, make([]byte, wirePiece+1)); err != nil {
		t.Fatal(err)
	}
	if w.wrote.Load() == 0 {
		t.Error("a piece that left is no progress")
	}
	if w.hasRoom() {
		t.Error("room is given before the message has left")
	}
	if _, err := io.ReadFull(far, make([]byte, 2*wirePiece-1)); err != nil {
		t.Fatal(err)
	}
}
