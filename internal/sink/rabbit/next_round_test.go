package rabbit

import (
	"context"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/conn"
)

// A return and its ack that arrive after the returns were read, and before the outcomes are given,
// confirm nothing: the message is in no queue.
func TestAnswerBetweenReturnsAndOutcomesIsNotBelieved(t *testing.T) {
	b := newBroker(t)
	b.bare("bare", "topic")
	proxy := startProxy(t, b.real.Addr())
	cfg := byKey(b)
	cfg.URLs = []string{b.through(proxy)}
	s := start(t, cfg)
	// the channel is open
	wantRejected(t, s.send(newEvent("bare", "created"))[0], sink.Destination, sink.Unroutable)

	l := s.lanes[0]
	outcomes := make([]sink.Outcome, 1)
	l.begin([]*event.Event{newEvent("bare", "created")}, outcomes)
	ch, err := l.open(b.ctx)
	b.must(err)
	proxy.Hold(netproxy.Down)
	l.send(b.ctx, ch, l.todo)
	l.readAnswers()
	returned, err := l.returned(ch)
	b.must(err)
	proxy.Release(netproxy.Down)
	<-l.sent[0].answer.Done()
	l.decide(ch, returned)
	if outcomes[0].State != sink.Unknown {
		t.Errorf("a message that was returned is %s", outcomes[0].State)
	}
	b.must(l.resolve(ch))
	wantRejected(t, outcomes[0], sink.Destination, sink.Unroutable)
	l.finish()
}

// An event before a rejected one of its key is not behind it: when the channel was closed over
// another event, it is sent again in the same call.
func TestEventBeforeARejectedOneOfItsKeyIsSentAgain(t *testing.T) {
	b := newBroker(t)
	b.exchange("events", nil)
	proxy := startProxy(t, b.real.Addr())
	cfg := byKey(b)
	cfg.URLs = []string{b.through(proxy)}
	s := start(t, cfg)
	wantConfirmed(t, s.send(newEvent("events", "t"))) // the channel is open
	call := []*event.Event{newEvent("nowhere", "t"), newEvent("events", "t"), invalidEvent("events"), newEvent("events", "t")}
	call[1].Hash, call[2].Hash, call[3].Hash = 7, 7, 7
	proxy.Hold(netproxy.Down) // all is sent before the answer to the first comes
	sent := make(chan []sink.Outcome, 1)
	go func() { sent <- s.send(call...) }()
	b.must(proxy.WaitHeld(b.ctx, netproxy.Down, 1))
	proxy.Release(netproxy.Down)
	outcomes := <-sent
	wantRejected(t, outcomes[0], sink.Destination, sink.NoExchange)
	wantRejected(t, outcomes[2], sink.Permanent, sink.Invalid)
	if outcomes[1].State != sink.Confirmed || outcomes[3].State != sink.Unsent {
		t.Errorf("before the rejected event of the key %s, behind it %s", outcomes[1].State, outcomes[3].State)
	}
	if n := b.depth("events"); n < 2 {
		t.Error("the event before it is not there")
	}
}

// The last answer and the end of the caller's patience come together: nothing is in doubt, so the
// call has no error.
func TestCancelledWhenAllIsAnswered(t *testing.T) {
	b := newBroker(t)
	b.exchange("events", nil)
	s := start(t, b.config())
	l := s.lanes[0]
	outcomes := make([]sink.Outcome, 1)
	l.begin(events(1, "t"), outcomes)
	ch, err := l.open(b.ctx)
	b.must(err)
	l.send(b.ctx, ch, l.todo)
	<-l.sent[0].answer.Done()
	ctx, cancel := context.WithCancel(b.ctx)
	cancel()
	b.must(l.conclude(ctx, ch, conn.Cancelled, l.resolve(ch)))
	wantConfirmed(t, outcomes)
	l.finish()
	if wantConfirmed(t, s.send(newEvent("k", "t"))); !ch.Usable() {
		t.Error("a channel on which all is answered was given up")
	}
}
