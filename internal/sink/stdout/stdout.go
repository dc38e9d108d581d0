// Package stdout writes events as JSON lines, for trying the relay without a broker.
package stdout

import (
	"context"
	"encoding/json"
	"io"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Sink writes to one writer. A line that was written counts as confirmed: what reads the other end is not asked.
type Sink struct {
	mu  sync.Mutex // lanes write whole calls
	enc *json.Encoder
}

var _ sink.Sink = (*Sink)(nil)

// lanes is enough for a writer that is one stream anyway.
const lanes = 1

// New makes a sink that writes to w.
func New(w io.Writer) *Sink {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return &Sink{enc: enc}
}

// Lane is always the one lane: lines come in commit order.
func (s *Sink) Lane(*outbox.Event) (lane int, ok bool) { return lanes - 1, true }

// Changed is nil: Lane always answers.
func (s *Sink) Changed() <-chan struct{} { return nil }

// Run waits for ctx: there is no connection to keep.
func (s *Sink) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// line is one event as a person or jq reads it. A NULL is null; a payload that is not text is base64.
type line struct {
	Position  string    `json:"position"`
	Committed time.Time `json:"committed"`
	ID        string    `json:"id"`
	Aggregate *string   `json:"aggregate"`
	Key       *string   `json:"key"`
	Type      *string   `json:"type"`
	Payload   any       `json:"payload"`
}

// Publish writes the events in order. An error of the writer is unavailable: what was not written is offered again.
func (s *Sink) Publish(ctx context.Context, _ int, events []*outbox.Event, outcomes []sink.Outcome) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range outcomes {
		outcomes[i] = sink.Outcome{State: sink.Unsent}
	}
	for i, ev := range events {
		if err := ctx.Err(); err != nil {
			return err
		}
		if ev.Fault != nil {
			outcomes[i] = sink.Outcome{State: sink.Rejected, Fault: &sink.Fault{
				Class: sink.Permanent, Reason: sink.Undecodable, Words: ev.Fault.Error(),
			}}
			continue
		}
		if err := s.enc.Encode(describe(ev)); err != nil {
			outcomes[i].State = sink.Unknown
			return err
		}
		outcomes[i].State = sink.Confirmed
	}
	return nil
}

func describe(ev *outbox.Event) line {
	l := line{
		Position: ev.Position.String(), Committed: ev.CommitTime.UTC(), ID: string(ev.ID),
		Aggregate: text(ev.Aggregate), Key: text(ev.Key), Type: text(ev.Type),
	}
	switch {
	case ev.Payload == nil:
	case ev.PayloadKind == outbox.JSON:
		l.Payload = json.RawMessage(ev.Payload)
	case ev.PayloadKind == outbox.Text:
		l.Payload = string(ev.Payload)
	default:
		l.Payload = ev.Payload // base64
	}
	return l
}

func text(b []byte) *string {
	if b == nil {
		return nil
	}
	s := string(b)
	return &s
}
