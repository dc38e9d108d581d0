// Records as Debezium makes them.

package record

import (
	"errors"

	"github.com/cdc-relay/cdc-relay/internal/debezium"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// profiled reports whether a profile makes the event's record. It does not make a dead letter's
// copy: that has the relay's own form, and a topic of its own.
func (l *Layout) profiled(ev *event.Event) bool { return l.router != nil && !ev.Copy }

// routed is the topic that a profile makes.
func (l *Layout) routed(ev *event.Event, buf []byte) ([]byte, *sink.Fault) {
	name, err := l.router.Topic(ev, buf[:0])
	if err != nil {
		return nil, unrendered(err)
	}
	return name, CheckTopic(name)
}

// render makes the record by the profile. Nothing of the relay's own is added.
func (e *Encoder) render(ev *event.Event) *sink.Fault {
	rec := &e.profile
	if err := e.layout.router.Build(ev, rec); err != nil {
		return unrendered(err)
	}
	e.Key, e.Value, e.Time = rec.Key, rec.Value, rec.Time
	if e.Time < 0 {
		return tooEarly
	}
	e.Headers, e.HeaderCount = e.Headers[:0], 0
	for i := range rec.Headers {
		e.AddHeader(rec.Headers[i].Name, rec.Headers[i].Value)
	}
	return nil
}

// unrendered is the fault of an event that the profile makes no record of. It is the event's own,
// and for ever: Debezium's task would end over it.
func unrendered(err error) *sink.Fault {
	if errors.Is(err, debezium.ErrNoRoute) {
		return &sink.Fault{Class: sink.Permanent, Reason: sink.NullInTemplate, Text: err.Error()}
	}
	return invalid(err.Error())
}
