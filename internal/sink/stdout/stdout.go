// Package stdout writes events as JSON lines, for trying the relay without a broker.
package stdout

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"time"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Sink writes one line per event. It has one lane, so lines are in commit order.
type Sink struct {
	out    io.Writer
	writes chan write // to the one goroutine that writes
}

// write is one line to be written. The writer keeps the line: a Publish that has given up must not touch it again.
type write struct {
	line []byte
	done chan<- error // has room, so that the writer never waits for a Publish that has given up
}

var _ sink.Sink = (*Sink)(nil)

// New returns a sink that writes to out. A Write must not keep its argument.
func New(out io.Writer) *Sink { return &Sink{out: out, writes: make(chan write)} }

// line is what is written of an event. A column that is NULL or not mapped is null.
type line struct {
	ID        *string         `json:"id"`
	Type      *string         `json:"type"`
	Aggregate *string         `json:"aggregate"`
	Key       *string         `json:"key"`
	Payload   any             `json:"payload"`                  // embedded JSON, a string, or null
	Base64    bool            `json:"payload_base64,omitempty"` // the string is base64: bytea, or no valid UTF-8
	Headers   json.RawMessage `json:"headers,omitempty"`
	Position  string          `json:"position"`
	Time      time.Time       `json:"commit_time"`
}

// Lane is 0.
func (s *Sink) Lane(*outbox.Event) (lane int, ok bool) { return 0, true }

// Changed is nil: Lane always answers.
func (s *Sink) Changed() <-chan struct{} { return nil }

// Run writes until ctx is done. A Write that blocks then, as on a full pipe that nobody reads, is left behind: it can not be
// broken off, and it ends with the process.
func (s *Sink) Run(ctx context.Context) error {
	go func() {
		for {
			select {
			case w := <-s.writes:
				_, err := s.out.Write(w.line)
				w.done <- err
			case <-ctx.Done():
				return
			}
		}
	}()
	<-ctx.Done()
	return nil
}

// Publish writes the events in order, each in one Write. A write that fails is unavailable: the event is Unknown, since a
// part of its line may have been written, and what follows is Unsent. So it is with a write that has not ended when ctx
// is done; a later call's lines are written after it.
func (s *Sink) Publish(ctx context.Context, _ int, events []*outbox.Event, outcomes []sink.Outcome) error {
	for i := range outcomes {
		outcomes[i] = sink.Outcome{State: sink.Unsent}
	}
	done := make(chan error, 1)
	for i, ev := range events {
		if ev.Fault != nil {
			outcomes[i] = rejected(sink.Undecodable, ev.Fault.Error())
			continue
		}
		text, err := encode(ev)
		if err != nil {
			outcomes[i] = rejected(sink.Invalid, "the payload or headers column is not valid JSON")
			continue
		}
		if err := s.write(ctx, write{append(text, '\n'), done}, done); err != nil {
			outcomes[i].State = sink.Unknown
			return fmt.Errorf("write event: %w", err)
		}
		outcomes[i].State = sink.Confirmed
	}
	return nil
}

// write hands a line to the writer and waits for its end, or for ctx's.
func (s *Sink) write(ctx context.Context, w write, done <-chan error) error {
	if err := ctx.Err(); err != nil {
		return err // select would choose at random
	}
	select {
	case s.writes <- w:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func rejected(reason sink.Reason, words string) sink.Outcome {
	return sink.Outcome{State: sink.Rejected, Fault: &sink.Fault{Class: sink.Permanent, Reason: reason, Words: words}}
}

// encode makes the line of an event.
func encode(ev *outbox.Event) ([]byte, error) {
	l := line{
		ID: text(ev.ID), Type: text(ev.Type), Aggregate: text(ev.Aggregate), Key: text(ev.Key),
		Headers: ev.Headers, Position: ev.Position.String(), Time: ev.CommitTime.UTC(),
	}
	switch {
	case ev.Payload == nil:
	case ev.PayloadKind == outbox.JSON:
		l.Payload = json.RawMessage(ev.Payload)
	case ev.PayloadKind == outbox.Text && utf8.Valid(ev.Payload):
		l.Payload = string(ev.Payload)
	default:
		l.Payload, l.Base64 = base64.StdEncoding.EncodeToString(ev.Payload), true
	}
	return json.Marshal(l)
}

// text is a column's text, nil for NULL.
func text(b []byte) *string {
	if b == nil {
		return nil
	}
	s := string(b)
	return &s
}
