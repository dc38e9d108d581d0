// Package rabbit publishes events to RabbitMQ: N connections of amqp091-go that this package keeps
// itself, one channel in confirm mode per lane, every message persistent and mandatory. The
// broker's answer to each event (confirm, nack, return, channel or connection exception) becomes a
// sink.Outcome.
//
// sink.go has the sink, connections.go what keeps its connections; lane.go sends, outcomes.go reads
// the answers; message.go makes the messages; settings.go is the section of the configuration.
package rabbit

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/conn"
)

// Config says where to publish and how an event becomes a message.
type Config struct {
	conn.Dialer // the first connection determines the cluster; one to another is refused

	// Encoder makes the records of the messages; nil: the relay's own format, newPlain of this
	// configuration.
	Encoder sink.Encoder
	// Exchange and RoutingKey say where messages go, for people and for the checks of a start. In
	// the relay's own format they make the names; any other encoder makes its own.
	Exchange, RoutingKey sink.Template
	Allow                Allow

	// The rest is of the relay's own format.

	// AllowHeaders are the names of SteeringHeaders that a row may use.
	AllowHeaders []string
	sink.PlainConfig
	// ContentType is the content type of a message whose row names none; "": the one of the
	// payload's kind.
	ContentType string
	// The columns of these properties, "" for none.
	ContentTypeColumn, CorrelationID, Priority, Expiration string

	// Lanes is the number of lanes; lane i publishes on connection i % Connections.
	Lanes int
	// Connections is the number of connections; 0 means two, and there are never more than lanes.
	Connections int
	// Declare declares a constant exchange, durable, at the first connection.
	Declare      bool
	ExchangeType string // "": topic
	// Bindings are declared for a constant exchange: see topology.
	Bindings   []Binding
	Unroutable Unroutable
	// Mirror is where copies of dead letters go, for Check; nil: nowhere.
	Mirror *event.Route
	// LoginTimeout ends Run when the broker has refused the login for so long and no connection was
	// ever made; 0 means a minute.
	LoginTimeout time.Duration
	Log          *zap.Logger

	// The rest is called for metrics. Each is optional, must not block, and may be called
	// concurrently.

	// Connected is called before lanes publish on a connection; again says that it was up before.
	Connected   func(again bool)
	ChannelOpen func()
	// Confirms counts the broker's answers of one call. Returned ones are acked too, but are
	// counted as returned only.
	Confirms func(acks, nacks, returned, timeouts int)
}

// defaultConnections is enough for all lanes: a lane has a channel of its own, so connections add
// no order and hardly any speed. The second has its own socket, TLS records and reader on both
// sides, and keeps publishing when the first is lost.
const defaultConnections = 2

// Sink publishes to RabbitMQ. Its methods may be called as sink.Opened says; Up from anywhere.
type Sink struct {
	cfg               Config
	layout            layout // how an event becomes a message
	limits            limits
	links             []*link
	lanes             []*lane
	privateRight      chan struct{} // taken by the one call that may have a private connection
	stuckPrivateRight chan struct{} // by the one suspect whose destination did not answer before
	unanswered        unansweredDests
	topology          topology

	cluster atomic.Pointer[firstCluster] // nil: no broker has sent its name yet

	connected    atomic.Bool  // a connection was made at least once
	refusedSince atomic.Int64 // since when the login is refused, Unix nanoseconds; 0: it is not
	unfitSince   atomic.Int64 // likewise since when all brokers are unfit
	// how many channels a connection may have, as far as the broker has refused more; 0: any number
	maxChannels     atomic.Int64
	leads           atomic.Bool // the lanes have calls, or may have soon
	pendingConfirms atomic.Int64
	ignoredReturns  atomic.Int64 // returned events that count as delivered

	logMu  sync.Mutex
	logged string // the state last logged
	outage *sink.OutageLog
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
	layout, err := newLayout(&cfg)
	if err != nil {
		return nil, fmt.Errorf("configure rabbitmq sink: %w", err)
	}
	s := &Sink{
		cfg: cfg, layout: layout, privateRight: make(chan struct{}, 1), stuckPrivateRight: make(chan struct{}, 1), logged: notConnected,
		outage: sink.NewOutageLog(cfg.Log, "broker connected"),
	}
	connections := min(cfg.Connections, cfg.Lanes) // more would carry nothing
	s.cfg.Admit, s.cfg.Dialer.Lanes = s.admitCluster, (cfg.Lanes+connections-1)/connections
	s.cfg.Dialer.MaxChannels = func() int { return int(s.maxChannels.Load()) }
	s.cfg.Dialer.ChannelOpen = cfg.ChannelOpen
	s.limits.setFrameMax(conn.FrameSize)
	if name, constant := cfg.Exchange.Constant(); constant && len(cfg.Bindings) > 0 {
		s.topology.exchange = sink.ExchangeOrTopicOf([]byte(name))
	}
	for range connections {
		s.links = append(s.links, &link{sink: s, up: make(chan struct{}), why: notConnected})
	}
	for i := range cfg.Lanes {
		s.lanes = append(s.lanes, newLane(s, s.links[i%len(s.links)]))
	}
	return s, nil
}

// Place spreads the ordering keys over the lanes.
func (s *Sink) Place(ev *event.Event) (p sink.Place, ok bool) {
	p.Lane = int(ev.Hash % uint64(len(s.lanes)))
	p.ExchangeOrTopic, p.Dest = s.layout.digestsOf(ev)
	return p, true
}

// Route names the event's exchange and routing key. The bytes are the caller's, or the event's own
// Route's.
func (s *Sink) Route(ev *event.Event) event.Route { return s.layout.routeOf(ev) }

// SentTo implements sink.Opened: what is made from keys is shown as its template.
func (s *Sink) SentTo(ev *event.Event) sink.Sent {
	r := s.layout.routeOf(ev)
	exchange, routingKey := s.layout.shownNames(ev.Copy, string(r.Name), string(r.RoutingKey))
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
		sess := l.currentSession()
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
// The error is an *event.Stop: the broker refused the login for LoginTimeout, or lacks what the
// configuration asks for, and no connection was ever made.
func (s *Sink) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, l := range s.links {
		group.Go(func() error { return l.keepConnected(ctx) })
	}
	return group.Wait()
}

// Status implements sink.Opened.
func (s *Sink) Status() sink.Status {
	now := sink.Status{PendingConfirms: int(s.pendingConfirms.Load()), Ignored: s.ignoredReturns.Load()}
	now.Up, now.Why = s.Up()
	for _, l := range s.links {
		if sess := l.currentSession(); sess != nil {
			now.Connections++
			now.Channels += sess.Channels()
		}
	}
	return now
}
