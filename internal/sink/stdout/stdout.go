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

// Driver describes stdout as a kind of sink.
func Driver() *sink.Driver {
	return &sink.Driver{
		Name: "stdout", Operation: "write", NoHeaders: true,
		// as on Kafka, to look at them
		CloudEvents: &sink.CloudEventsBinding{Prefix: "ce_", ContentType: "content-type", Taken: []string{"ce_*", "content-type"}},
		Does:        "`{}`: write each event as a line of JSON to stdout, in commit order.",
		Settings:    func() sink.Settings { return settings{} },
	}
}

// settings has no fields: naming the sink is all there is to configure.
type settings struct{}

func (settings) Keys() []setting.Key { return nil }

func (settings) Validate(*sink.Validation) {}

func (settings) Templates() []sink.NamedTemplate { return nil }

func (settings) Columns() []string { return nil }

func (settings) Check(context.Context, *sink.Opening) ([]sink.Finding, error) { return nil, nil }

// Open makes the sink. Its lines have the relay's own form or, with a profile or CloudEvents, show
// the records of these.
func (settings) Open(o *sink.Opening) (sink.Opened, error) {
	lines := NewLines(o.Traceparent)
	if o.Encoder == nil {
		return New(os.Stdout, lines), nil
	}
	headers, err := sink.NewPlainHeaders(o.PlainConfig, nil)
	if err != nil {
		return nil, err
	}
	encoder, err := o.Encoder(o.Columns, plainRecords{lines, headers})
	if err != nil {
		return nil, err
	}
	return New(os.Stdout, NewRecords(encoder, lines)), nil
}

// plainRecords makes what a broker would get, for an encoder that adds to it.
type plainRecords struct {
	*Lines
	headers sink.PlainHeaders
}

// Encode implements sink.Encoder.
func (p plainRecords) Encode(ev *event.Event, rec *sink.Record) *sink.Fault {
	rec.Reset(ev)
	rec.Topic, rec.Key, rec.Value, rec.Time = stdoutName, ev.Key, ev.Payload, ev.Time.UnixMilli()
	return p.headers.Append(ev, rec)
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
	record  sink.Record // memory for the record; one is enough for one lane
	call    sink.Call   // of the only lane
	// has an element while a write is under way, which may outlive its Publish
	writing    chan struct{}
	pipeClosed chan error             // the error of a write to a pipe whose reader has gone
	lastError  atomic.Pointer[string] // of the last write; nil when it had none
}

var _ sink.Sink = (*Sink)(nil)

// New returns a sink that writes the Value of each event's record to out: Lines, or Records of any
// encoder. A Write must not keep its argument.
func New(out io.Writer, encoder sink.Encoder) *Sink {
	s := &Sink{out: out, encoder: encoder, writing: make(chan struct{}, 1), pipeClosed: make(chan error, 1)}
	s.call = sink.NewCall(nil, s.topicOf)
	return s
}

// topicOf returns the digest of an event's topic.
func (s *Sink) topicOf(ev *event.Event) uint64 { return sink.ExchangeOrTopicOf(s.Route(ev).Name) }

// Place returns one lane and one destination for all events, except events that were deferred under
// another sink.
func (s *Sink) Place(ev *event.Event) (p sink.Place, ok bool) {
	p.ExchangeOrTopic = s.topicOf(ev)
	p.Dest = sink.DestOfPair(p.ExchangeOrTopic, s.Route(ev).RoutingKey)
	return p, true
}

// Route returns stdout, or the Route of an event that was deferred.
func (s *Sink) Route(ev *event.Event) event.Route {
	if ev.Route != nil {
		return *ev.Route
	}
	return event.Route{Name: stdoutName}
}

// Changed returns nil, because Place always answers.
func (s *Sink) Changed() <-chan struct{} { return nil }

// Run waits until ctx is done. A write that is blocked then, as on a full pipe that nobody reads,
// is left behind: it cannot be broken off, and ends with the process. A pipe whose reader has gone
// is a Stop, because nobody will read it again.
func (s *Sink) Run(ctx context.Context) error {
	select {
	case err := <-s.pipeClosed:
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
	if failed := s.lastError.Load(); failed != nil {
		return false, *failed
	}
	return true, ""
}

// Publish writes the events in order, each in one Write. A write that fails means unavailable: its
// event is Unknown, because a part of its line may have been written, and later events are Unsent.
// The same holds for a write that has not ended when ctx is done; the lines of a later call are
// written after it. After a rejected event no later event of its key is written.
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
		if err := s.writeLine(ctx, s.record.Value); err != nil {
			outcomes[i].State = sink.Unknown
			return fmt.Errorf("write event: %w", err)
		}
		outcomes[i].State = sink.Confirmed
	}
	return nil
}

// writeLine writes a line when it is its turn, and waits for the end of the write, or of ctx. The
// line must not be changed after that, because the write may still be under way.
func (s *Sink) writeLine(ctx context.Context, line []byte) error {
	if err := ctx.Err(); err != nil {
		return err // select would choose at random
	}
	select {
	case s.writing <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	done := make(chan error, 1)
	go func() {
		_, err := s.out.Write(line)
		s.noteResult(err)
		<-s.writing
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// noteResult keeps the result of a write for Up, and for Run when no later write can succeed.
func (s *Sink) noteResult(err error) {
	if err == nil {
		s.lastError.Store(nil)
		return
	}
	why := err.Error()
	s.lastError.Store(&why)
	if errors.Is(err, syscall.EPIPE) {
		select {
		case s.pipeClosed <- err:
		default: // it is known already
		}
	}
}

// Lines is the encoder of lines in the relay's own form.
type Lines struct {
	trace func(ev *event.Event, buf []byte) []byte
}

// NewLines makes the encoder. traceparent returns the traceparent of a line, or nil for none. A nil
// function means that the line has the row's.
func NewLines(traceparent func(ev *event.Event, buf []byte) []byte) *Lines {
	return &Lines{trace: traceparent}
}

// Records is an encoder whose lines show the records of another encoder.
type Records struct {
	encoder sink.Encoder
	lines   *Lines // for copies of dead letters
}

// NewRecords makes the encoder.
func NewRecords(of sink.Encoder, lines *Lines) *Records { return &Records{encoder: of, lines: lines} }

var (
	_ sink.Encoder = (*Lines)(nil)
	_ sink.Encoder = (*Records)(nil)
)

// stdoutName is where all lines go.
var stdoutName = []byte("stdout")

// Traits implements sink.Encoder.
func (*Lines) Traits() sink.Traits { return sink.Traits{Topic: stdoutName} }

// Traits implements sink.Encoder.
func (*Records) Traits() sink.Traits { return sink.Traits{Topic: stdoutName} }

// Place implements sink.Encoder.
func (*Lines) Place(ev *event.Event, rec *sink.Record) *sink.Fault {
	rec.ResetPlace(ev)
	rec.Topic, rec.Key = stdoutName, ev.Key
	return nil
}

// Place implements sink.Encoder.
func (r *Records) Place(ev *event.Event, rec *sink.Record) *sink.Fault { return r.lines.Place(ev, rec) }

// ownLine is the line that is written for an event. A column that is NULL or not mapped is null.
type ownLine struct {
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
	out := ownLine{
		ID: textOrNull(ev.ID), Type: textOrNull(ev.Type), Aggregate: textOrNull(ev.Aggregate), Key: textOrNull(ev.Key),
		Headers: ev.Headers, Trace: textOrNull(rec.Traceparent(ev, l.trace)), Position: ev.Position.String(), Replay: ev.Replay, Time: ev.CommitTime.UTC(),
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

// recordLine is the line for a record. Keys, values and headers have the form of textOrBase64.
type recordLine struct {
	Topic        string         `json:"topic"`
	*amqpAddress                // of a record that has an exchange
	Partition    *int32         `json:"partition,omitempty"` // only if the row names one
	Key          any            `json:"key"`
	Value        any            `json:"value"`
	Headers      []headerOfLine `json:"headers"`
	Time         time.Time      `json:"timestamp"`
	Position     string         `json:"position"`
}

// amqpAddress is the address of a record on RabbitMQ.
type amqpAddress struct {
	Exchange   string `json:"exchange"`
	RoutingKey string `json:"routing_key"`
}

type headerOfLine struct {
	Name  string `json:"name"`
	Value any    `json:"value"`
}

// textOrBase64 returns null for nil, valid text as a string, and other bytes as {"base64": ...}.
func textOrBase64(b []byte) any {
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
	if fault := r.encoder.Encode(ev, rec); fault != nil {
		return fault
	}
	out := recordLine{
		Topic: string(rec.Topic), Key: textOrBase64(rec.Key), Value: textOrBase64(rec.Value), Headers: []headerOfLine{},
		Time: time.UnixMilli(rec.Time).UTC(), Position: ev.Position.String(),
	}
	if rec.Exchange != nil {
		out.amqpAddress = &amqpAddress{string(rec.Exchange), string(rec.RoutingKey)}
	}
	if rec.Partition >= 0 {
		out.Partition = &rec.Partition
	}
	for _, h := range rec.Headers {
		out.Headers = append(out.Headers, headerOfLine{h.Name, textOrBase64(h.Value)})
	}
	encodeLine(rec, out)
	return nil
}

// encodeLine makes the record's Value of v, as one line of JSON. The line has bytes of its own,
// because a write may outlive the record.
func encodeLine(rec *sink.Record, v any) (ok bool) {
	var text bytes.Buffer
	enc := json.NewEncoder(&text) // it ends the line
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	rec.Value = text.Bytes()
	return err == nil
}

// textOrNull returns the text of a column, or nil for NULL.
func textOrNull(b []byte) *string {
	if b == nil {
		return nil
	}
	s := string(b)
	return &s
}
