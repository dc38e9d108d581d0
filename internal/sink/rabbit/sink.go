// The sink: its lanes and connections.

package rabbit

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/conn"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/message"
)

// Sink publishes to RabbitMQ. Its methods may be called as sink.Opened says; Up from anywhere.
type Sink struct {
	cfg          Config
	layout       message.Layout // how an event becomes a message
	limits       message.Limits
	links        []*conn.Link
	lanes        []*lane
	private      chan struct{} // taken by the one call that may have a private connection
	privateStuck chan struct{} // by the one suspect whose destination did not answer before
	unanswered   unanswered
	topology     topology

	cluster atomic.Pointer[cluster] // nil: no broker has sent its name yet

	connected    atomic.Bool  // a connection was made at least once
	refusedSince atomic.Int64 // since when the login is refused, Unix nanoseconds; 0: it is not
	// how many channels a connection may have, as far as the broker has refused more; 0: any number
	maxChannels atomic.Int64
	share       atomic.Int64 // as many, as long as others use none of what the user may have
	crowded     atomic.Int64 // ends of connections that had no more than their share, in a row
	single      atomic.Bool  // the lanes share the first connection
	leads       atomic.Bool  // the lanes have calls, or may have soon
	askAgain    time.Duration
	pending     atomic.Int64
	ignored     atomic.Int64 // returned events that count as delivered

	logMu  sync.Mutex
	logged string // the state last logged
}

var (
	_ sink.Opened = (*Sink)(nil)
	_ sink.Leader = (*Sink)(nil)
	_ sink.Prober = (*Sink)(nil) // the line asks for it
	_ sink.Holder = (*Sink)(nil) // the retry table does
)

// New makes the sink. Nothing is connected before Run.
func New(cfg Config) (*Sink, error) {
	cfg.Connections = cmp.Or(cfg.Connections, defaultConnections)
	cfg.LoginTimeout = cmp.Or(cfg.LoginTimeout, time.Minute)
	layout, err := message.NewLayout(&cfg.Config)
	if err != nil {
		return nil, fmt.Errorf("configure rabbitmq sink: %w", err)
	}
	s := &Sink{
		cfg: cfg, layout: layout, private: make(chan struct{}, 1), privateStuck: make(chan struct{}, 1), logged: notConnected,
		askAgain: conn.AskAgain,
	}
	connections := min(cfg.Connections, cfg.Lanes) // more would carry nothing
	s.cfg.Admit, s.cfg.Dialer.Lanes = s.admit, (cfg.Lanes+connections-1)/connections
	s.cfg.Dialer.MaxChannels = func() int { return int(s.maxChannels.Load()) }
	s.cfg.Dialer.ChannelOpen = cfg.ChannelOpen
	s.limits.Negotiated(conn.FrameSize)
	if name, constant := cfg.Exchange.Constant(); constant && len(cfg.Bindings) > 0 {
		s.topology.exchange = sink.ExchangeOrTopicOf([]byte(name))
	}
	for i := range connections {
		s.links = append(s.links, s.newLink(i == 0))
	}
	for i := range cfg.Lanes {
		s.lanes = append(s.lanes, newLane(s, s.links[i%len(s.links)]))
	}
	return s, nil
}

// Place spreads the ordering keys over the lanes.
func (s *Sink) Place(ev *event.Event) (p sink.Place, ok bool) {
	p.Lane = int(ev.Hash % uint64(len(s.lanes)))
	p.ExchangeOrTopic, p.Dest = s.layout.Place(ev)
	return p, true
}

// Route names the event's exchange and routing key. The bytes are the caller's, or the event's own
// Route's.
func (s *Sink) Route(ev *event.Event) event.Route { return s.layout.Route(ev) }

// SentTo implements sink.Opened: what is made from keys is shown as its template.
func (s *Sink) SentTo(ev *event.Event) sink.Sent {
	r := s.layout.Route(ev)
	exchange, routingKey := s.layout.Shown(ev.Copy, string(r.Name), string(r.RoutingKey))
	return sink.Sent{Name: exchange, RoutingKey: routingKey, Partition: -1}
}

// Changed is nil: Place always answers.
func (s *Sink) Changed() <-chan struct{} { return nil }

// Publish sends the events on the lane's channel, in order, and waits for the broker's answers. See
// lane.publish.
func (s *Sink) Publish(ctx context.Context, lane int, events []*event.Event, outcomes []sink.Outcome) error {
	return s.lanes[lane].publish(ctx, events, outcomes)
}

// Lead implements sink.Leader: the channels are opened, or closed. A standby has none, since the
// leader may need all that the user has.
func (s *Sink) Lead(on bool) {
	s.leads.Store(on)
	for _, l := range s.links {
		sess := l.Own()
		switch {
		case sess == nil:
		case on:
			sess.Spawn(func() { sess.OpenAll(context.Background()) })
		default:
			sess.Spawn(sess.CloseIdle)
		}
	}
}

// Run keeps the connections until ctx is done, then closes them, which takes at most CloseTimeout.
// The error is an *event.Stop: the broker refused the login for LoginTimeout and no connection was
// ever made.
func (s *Sink) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, l := range s.links {
		group.Go(func() error { return l.Keep(ctx) })
	}
	group.Go(func() error { return s.regain(ctx) })
	return group.Wait()
}

// Status implements sink.Opened.
func (s *Sink) Status() sink.Status {
	now := sink.Status{PendingConfirms: int(s.pending.Load()), Ignored: s.ignored.Load()}
	now.Up, now.Why = s.Up()
	for _, l := range s.links {
		if sess := l.Own(); sess != nil {
			now.Connections++
			now.Channels += sess.Channels()
		}
	}
	return now
}
