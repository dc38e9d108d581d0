// Package stdout writes events as JSON lines, for trying the relay without a broker.
package stdout

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"syscall"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

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
