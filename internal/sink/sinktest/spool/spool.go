// Package spool is a sink for tests: it appends events to files of a directory, one per topic. It
// shows what a sink is made of: this folder, and one line that registers its Driver.
package spool

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/cdc-relay/cdc-relay/internal/config/setting"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Driver is the driver.
func Driver() *sink.Driver {
	return &sink.Driver{
		Name: "spool", Broker: "the spool", Operation: "append", NoHeaders: true,
		Route:    []sink.RoutePart{{Key: "topic", Replay: "append to this file instead", Limit: 255}},
		Settings: func() sink.Settings { return &Settings{Topic: sink.MustTemplate("{aggregate}")} },
	}
}

// Settings are its section.
type Settings struct {
	Directory string
	Topic     sink.Template
}

// Keys implements sink.Settings.
func (s *Settings) Keys() []setting.Key {
	return []setting.Key{
		setting.Text("directory", &s.Directory).Doc("Folder of the files."),
		sink.TemplateKey("topic", &s.Topic).Doc("Template of a file's name."),
	}
}

// Validate implements sink.Settings.
func (s *Settings) Validate(v *sink.Validation) {
	if s.Directory == "" {
		v.FaultAt(v.Section+"directory", errors.New("is not set"))
	}
}

// Templates implements sink.Settings.
func (s *Settings) Templates() []sink.NamedTemplate {
	return []sink.NamedTemplate{{Key: "topic", Template: &s.Topic}}
}

// Columns implements sink.Settings.
func (s *Settings) Columns() []string { return nil }

// Open implements sink.Settings.
func (s *Settings) Open(o *sink.Opening) (sink.Opened, error) {
	topic, err := s.Topic.Bind(o.Columns)
	return &Sink{directory: s.Directory, topic: topic}, err
}

// Check implements sink.Settings.
func (s *Settings) Check(context.Context, *sink.Opening) ([]sink.Finding, error) {
	_, err := os.Stat(s.Directory)
	return []sink.Finding{{Name: "spool", OK: err == nil, Detail: s.Directory}}, nil
}

// Sink has one lane, so its files are in commit order.
type Sink struct {
	directory string
	topic     sink.Template
	failed    atomic.Pointer[error] // of the last append; nil: none
}

// Line is what a file has of an event.
type Line struct {
	ID, Key, Position string
	Payload           json.RawMessage
}

// Route implements sink.Sink.
func (s *Sink) Route(ev *event.Event) event.Route {
	if ev.Route != nil {
		return *ev.Route
	}
	if name, ok := s.topic.Append([]byte{}, ev); ok {
		return event.Route{Name: name}
	}
	return event.Route{}
}

// Place implements sink.Sink.
func (s *Sink) Place(ev *event.Event) (p sink.Place, ok bool) {
	p.ExchangeOrTopic = sink.ExchangeOrTopicOf(s.Route(ev).Name)
	p.Dest = sink.DestOfPair(p.ExchangeOrTopic, nil)
	return p, true
}

// Changed implements sink.Sink.
func (s *Sink) Changed() <-chan struct{} { return nil }

// Run implements sink.Sink.
func (s *Sink) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// Publish implements sink.Sink. An append that fails is unavailable: a part of it may be there.
func (s *Sink) Publish(ctx context.Context, _ int, events []*event.Event, outcomes []sink.Outcome) error {
	for i, ev := range events {
		if err := ctx.Err(); err != nil {
			return err // what follows is Unsent
		}
		fault, err := s.append(ev)
		switch {
		case err != nil:
			s.failed.Store(&err)
			outcomes[i].State = sink.Unknown
			return err
		case fault != nil:
			outcomes[i] = sink.Outcome{State: sink.Rejected, Fault: fault}
		default:
			outcomes[i].State = sink.Confirmed
		}
	}
	s.failed.Store(nil)
	return nil
}

func (s *Sink) append(ev *event.Event) (*sink.Fault, error) {
	name := s.Route(ev).Name
	line, err := json.Marshal(Line{string(ev.ID), string(ev.Key), ev.Position.String(), append(json.RawMessage(nil), ev.Payload...)})
	if fault := sink.RowFault(ev); fault != nil {
		return fault, nil
	}
	if err != nil || name == nil {
		return &sink.Fault{Class: sink.Permanent, Reason: sink.Invalid, Text: "cannot be written as a line"}, nil //nolint:nilerr // the event's own fault
	}
	f, err := os.OpenFile(filepath.Join(s.directory, filepath.Base(string(name))), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.Write(append(line, '\n'))
		err = errors.Join(err, f.Close())
	}
	return nil, err
}

// Status implements sink.Opened.
func (s *Sink) Status() sink.Status {
	if failed := s.failed.Load(); failed != nil {
		return sink.Status{Why: (*failed).Error()}
	}
	return sink.Status{Up: true}
}

// SentTo implements sink.Opened.
func (s *Sink) SentTo(ev *event.Event) sink.Sent {
	return sink.Sent{Name: string(s.Route(ev).Name), Partition: -1}
}
