// Package stdout writes events as JSON lines, for trying the relay without a broker.
package stdout

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/internal/config/setting"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Driver is the driver.
func Driver() *sink.Driver {
	return &sink.Driver{
		Name: "stdout", Operation: "write", NoHeaders: true,
		Does:     "`{}`: write each event as a line of JSON to stdout, in commit order.",
		Settings: func() sink.Settings { return settings{} },
	}
}

// settings are none: naming the sink is all there is to say.
type settings struct{}

func (settings) Keys() []setting.Key { return nil }

func (settings) Validate(*sink.Validation) {}

func (settings) Templates() []sink.NamedTemplate { return nil }

func (settings) Columns() []string { return nil }

func (settings) Check(context.Context, *sink.Opening) ([]sink.Finding, error) { return nil, nil }

// Open makes the sink, which prints lines of our own or, with a profile, records.
func (settings) Open(o *sink.Opening) (sink.Opened, error) {
	lines := NewLines(o.Traceparent)
	if o.Encoder == nil {
		return New(os.Stdout, lines), nil
	}
	encoder, err := o.Encoder(o.Columns, lines)
	if err != nil {
		return nil, err
	}
	return New(os.Stdout, NewRecords(encoder, lines)), nil
}

// Status implements sink.Opened.
func (s *Sink) Status() (out sink.Status) {
	out.Up, out.Why = s.Up()
	return out
}

// SentTo implements sink.Opened.
func (s *Sink) SentTo(ev *event.Event) sink.Sent {
	return sink.Sent{Name: string(s.Route(ev).Name), Partition: -1}
}

// Sink writes one line per event. It has one lane, so lines are in commit order.
type Sink struct {
	out     io.Writer
	encoder sink.Encoder
	record  sink.Record            // scratch: there is one lane
	call    sink.Call              // its call
	turn    chan struct{}          // taken by the write under way, which may outlive its Publish
	closed  chan error             // a write to a pipe whose reader has gone
	why     atomic.Pointer[string] // the last write's error; nil when it had none
}

var _ sink.Sink = (*Sink)(nil)

// New returns a sink that writes the Value of each event's record to out: Lines, or Records of any
// encoder. A Write must not keep its argument.
func New(out io.Writer, encoder sink.Encoder) *Sink {
	s := &Sink{out: out, encoder: encoder, turn: make(chan struct{}, 1), closed: make(chan error, 1)}
	s.call = sink.NewCall(nil, s.topicOf)
	return s
}

// topicOf digests where an event goes.
func (s *Sink) topicOf(ev *event.Event) uint64 { return sink.ExchangeOrTopicOf(s.Route(ev).Name) }

// Place has one lane and one destination, unless the event was deferred under another sink.
func (s *Sink) Place(ev *event.Event) (p sink.Place, ok bool) {
	p.ExchangeOrTopic = s.topicOf(ev)
	p.Dest = sink.DestOfPair(p.ExchangeOrTopic, s.Route(ev).RoutingKey)
	return p, true
}

// Route names stdout.
func (s *Sink) Route(ev *event.Event) event.Route {
	if ev.Route != nil {
		return *ev.Route
	}
	return event.Route{Name: name}
}

// Changed is nil: Place always answers.
func (s *Sink) Changed() <-chan struct{} { return nil }

// Run waits until ctx is done. A write that blocks then, as on a full pipe that nobody reads, is
// left behind: it cannot be broken off, and it ends with the process. A pipe whose reader has gone
// is a Stop: nobody will read it again.
func (s *Sink) Run(ctx context.Context) error {
	select {
	case err := <-s.closed:
		return &event.Stop{
			Code: event.ExitFailure, Reason: "stdout_closed", What: "stdout was closed",
			Fix: "what was not written is sent at the next start", Err: err,
		}
	case <-ctx.Done():
		return nil
	}
}

// Up reports whether the last write succeeded, and if not, why it failed. It may be called from
// anywhere.
func (s *Sink) Up() (ok bool, why string) {
	if failed := s.why.Load(); failed != nil {
		return false, *failed
	}
	return true, ""
}

// Publish writes the events in order, each in one Write. A write that fails is unavailable: the
// event is Unknown, since a part of its line may have been written, and what follows is Unsent. So
// it is with a write that has not ended when ctx is done; a later call's lines are written after
// it. After a rejected event nothing of its key is written.
func (s *Sink) Publish(ctx context.Context, _ int, events []*event.Event, outcomes []sink.Outcome) error {
	s.call.Begin(events, outcomes)
	defer s.call.End()
	defer s.record.Forget()
	for i, ev := range events {
		if s.call.IsBehindRejected(i) {
			continue
		}
		if fault := sink.RowFault(ev); fault != nil {
			s.call.Reject(i, fault)
			continue
		}
		if fault := s.encoder.Encode(ev, &s.record); fault != nil {
			s.call.Reject(i, fault)
			continue
		}
		if err := s.write(ctx, s.record.Value); err != nil {
			outcomes[i].State = sink.Unknown
			return fmt.Errorf("write event: %w", err)
		}
		outcomes[i].State = sink.Confirmed
	}
	return nil
}

// write writes a line in its turn and waits for the end of that, or of ctx. The line is not touched
// again: the write may still be under way.
func (s *Sink) write(ctx context.Context, line []byte) error {
	if err := ctx.Err(); err != nil {
		return err // select would choose at random
	}
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	done := make(chan error, 1)
	go func() {
		_, err := s.out.Write(line)
		s.note(err)
		<-s.turn
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// note keeps how a write ended for Up, and for Run when no other can succeed.
func (s *Sink) note(err error) {
	if err == nil {
		s.why.Store(nil)
		return
	}
	why := err.Error()
	s.why.Store(&why)
	if errors.Is(err, syscall.EPIPE) {
		select {
		case s.closed <- err:
		default: // known already
		}
	}
}

// Lines is the encoder of the relay's own lines.
type Lines struct {
	trace func(ev *event.Event, buf []byte) []byte
}

// NewLines makes the encoder. traceparent says what a line has as its traceparent, nil: nothing;
// without that function it is the row's.
func NewLines(traceparent func(ev *event.Event, buf []byte) []byte) *Lines {
	return &Lines{trace: traceparent}
}

// Records is an encoder whose lines show the records of another one.
type Records struct {
	of    sink.Encoder
	lines *Lines // of copies of dead letters
}

// NewRecords makes the encoder.
func NewRecords(of sink.Encoder, lines *Lines) *Records { return &Records{of: of, lines: lines} }

var (
	_ sink.Encoder = (*Lines)(nil)
	_ sink.Encoder = (*Records)(nil)
)

// name is where all lines go.
var name = []byte("stdout")

// Traits implements sink.Encoder.
func (*Lines) Traits() sink.Traits { return sink.Traits{Topic: name} }

// Traits implements sink.Encoder.
func (*Records) Traits() sink.Traits { return sink.Traits{Topic: name} }

// Place implements sink.Encoder.
func (*Lines) Place(ev *event.Event, rec *sink.Record) *sink.Fault {
	rec.Unplace(ev)
	rec.Topic, rec.Key = name, ev.Key
	return nil
}

// Place implements sink.Encoder.
func (r *Records) Place(ev *event.Event, rec *sink.Record) *sink.Fault { return r.lines.Place(ev, rec) }

// line is what is written of an event. A column that is NULL or not mapped is null.
type line struct {
	ID        *string `json:"id"`
	Type      *string `json:"type"`
	Aggregate *string `json:"aggregate"`
	Key       *string `json:"key"`
	Payload   any     `json:"payload"` // embedded JSON, a string, or null
	// the string is base64: bytea, or no valid UTF-8
	Base64   bool            `json:"payload_base64,omitempty"`
	Headers  json.RawMessage `json:"headers,omitempty"`
	Trace    *string         `json:"traceparent,omitempty"`
	Position string          `json:"position"`
	Replay   bool            `json:"cdc_replay,omitempty"`
	Time     time.Time       `json:"commit_time"`
}

// Encode implements sink.Encoder. Embedded JSON loses the white space between its tokens, which a
// line needs, and nothing else: < > & stay as they are.
func (l *Lines) Encode(ev *event.Event, rec *sink.Record) *sink.Fault {
	rec.Reset(ev)
	out := line{
		ID: text(ev.ID), Type: text(ev.Type), Aggregate: text(ev.Aggregate), Key: text(ev.Key),
		Headers: ev.Headers, Trace: text(rec.Traceparent(ev, l.trace)), Position: ev.Position.String(), Replay: ev.Replay, Time: ev.CommitTime.UTC(),
	}
	switch {
	case ev.Payload == nil:
	case ev.PayloadKind == event.JSON:
		out.Payload = json.RawMessage(ev.Payload)
	case ev.PayloadKind == event.Text && utf8.Valid(ev.Payload):
		out.Payload = string(ev.Payload)
	default:
		out.Payload, out.Base64 = base64.StdEncoding.EncodeToString(ev.Payload), true
	}
	if !encodeLine(rec, out) {
		return sink.PermanentFault(sink.Invalid, "the payload or headers column is not valid JSON")
	}
	return nil
}

// record is what is written of one. Keys, values and headers are as shown makes them.
type record struct {
	Topic     string    `json:"topic"`
	*address            // of one that has an exchange
	Partition *int32    `json:"partition,omitempty"` // only one that the row names
	Key       any       `json:"key"`
	Value     any       `json:"value"`
	Headers   []header  `json:"headers"`
	Time      time.Time `json:"timestamp"`
	Position  string    `json:"position"`
}

// address is where RabbitMQ takes the record.
type address struct {
	Exchange   string `json:"exchange"`
	RoutingKey string `json:"routing_key"`
}

type header struct {
	Name  string `json:"name"`
	Value any    `json:"value"`
}

// shown is null, text as a string, or anything else as {"base64": ...}.
func shown(b []byte) any {
	switch {
	case b == nil:
		return nil
	case utf8.Valid(b):
		return string(b)
	}
	return map[string]string{"base64": base64.StdEncoding.EncodeToString(b)}
}

// Encode implements sink.Encoder.
func (r *Records) Encode(ev *event.Event, rec *sink.Record) *sink.Fault {
	if ev.Copy {
		return r.lines.Encode(ev, rec)
	}
	if fault := r.of.Encode(ev, rec); fault != nil {
		return fault
	}
	out := record{
		Topic: string(rec.Topic), Key: shown(rec.Key), Value: shown(rec.Value), Headers: []header{},
		Time: time.UnixMilli(rec.Time).UTC(), Position: ev.Position.String(),
	}
	if rec.Exchange != nil {
		out.address = &address{string(rec.Exchange), string(rec.RoutingKey)}
	}
	if rec.Partition >= 0 {
		out.Partition = &rec.Partition
	}
	for _, h := range rec.Headers {
		out.Headers = append(out.Headers, header{h.Name, shown(h.Value)})
	}
	encodeLine(rec, out)
	return nil
}

// encodeLine makes v, as one line of JSON, the record's Value. It has bytes of its own: a write may
// outlive the record.
func encodeLine(rec *sink.Record, v any) (ok bool) {
	var text bytes.Buffer
	enc := json.NewEncoder(&text) // ends the line
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	rec.Value = text.Bytes()
	return err == nil
}

// text is a column's text, nil for NULL.
func text(b []byte) *string {
	if b == nil {
		return nil
	}
	s := string(b)
	return &s
}
