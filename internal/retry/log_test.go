package retry

import (
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// A dead letter is logged with what it takes to find it, its trace too, and the hook is called.
func TestDeadLettersAreLogged(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	var told []event.Position
	c := &Config{Log: zap.New(core), Hooks: Hooks{DeadLettered: func(ev *event.Event, reason sink.Reason, attempts int) {
		if reason != sink.TooLarge || attempts != 4 {
			t.Errorf("the hook is told of %s after %d attempts", reason, attempts)
		}
		told = append(told, ev.Position)
	}}}
	ev := event.Event{
		Position: event.Position{Commit: 7, Index: 1}, ID: []byte("e0"), Key: []byte("secret"), Payload: []byte("secret"), Headers: []byte("secret"),
		Traceparent: []byte("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"),
	}
	row := &store.Row{N: 3, Event: ev, Class: sink.Permanent, Reason: sink.TooLarge, Attempts: 4}
	c.logDeadLetter(row, writtenResult(row))

	// One that is too old is logged with its last rejection.
	c.logDeadLetter(row, store.Result{Row: row, Kind: store.Dead, Attempts: 4})

	// The message of another has a span of the relay's own: that is named.
	c.Traceparent = func(*event.Event, []byte) []byte {
		return []byte("00-11111111111111111111111111111111-2222222222222222-01")
	}
	c.logDeadLetter(row, writtenResult(row))

	if len(told) != 3 || told[0] != ev.Position {
		t.Errorf("the hook was told of %v", told)
	}
	lines := logs.All()
	for _, l := range lines {
		for name, v := range l.ContextMap() {
			if v == "secret" {
				t.Errorf("%s is personal", name)
			}
		}
	}
	first, last := lines[0].ContextMap(), lines[2].ContextMap()
	if first["event_id"] != "e0" || first["reason"] != "too_large" || first["class"] != "permanent" || first["n"] != int64(3) ||
		first["trace_id"] != "0af7651916cd43dd8448eb211c80319c" || first["span_id"] != "b7ad6b7169203331" {
		t.Errorf("the first line says %v", first)
	}
	if last["trace_id"] != "11111111111111111111111111111111" || last["span_id"] != "2222222222222222" {
		t.Errorf("the last line says %v", last)
	}
}
