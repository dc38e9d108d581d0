// The sink: what the relay calls, and what holds its parts together.

package kafka

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Sink publishes to Kafka. Its methods may be called as sink.Sink says; Up and Stats from anywhere.
//
//	reader ─ Place ──▶ topics ──┐ asks           lanes ── Publish ──▶ streams ──▶ queue of the leader's broker
//	                            ▼                  │ ask                              │ two workers, a connection each
//	                         control ◀─────────────┘                                  ▼
//	                            └── metadata: known ──▶ all                        Kafka
type Sink struct {
	cfg     Config
	layout  *layout
	dial    func(ctx context.Context, addr string) (wire, error)
	batches batches
	topics  topics
	control *control
	paused  paused

	cluster atomic.Pointer[string] // its id; nil: no broker has named it yet
	known   atomic.Pointer[snapshot]
	changed chan struct{} // cap maxWaiting: there is a new snapshot

	lanesMu sync.RWMutex
	lanes   []*lane

	brokersMu sync.RWMutex
	brokers   map[int32]*broker
	launch    func(*broker) // starts a broker's workers; nil outside Run

	lastConfirm atomic.Int64 // Unix nanoseconds
	connections atomic.Int64
	pending     atomic.Int64 // records in requests that are under way

	stateMu sync.Mutex
	down    map[int32]string // why a broker is away, by node; the control connection is none
	logged  string
}

var _ sink.Sink = (*Sink)(nil)

// New checks the configuration. Nothing is connected before Run.
func New(cfg Config) (*Sink, error) {
	cfg.Brokers, cfg.Columns, cfg.Headers = slices.Clone(cfg.Brokers), slices.Clone(cfg.Columns), slices.Clone(cfg.Headers)
	cfg.defaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("configure kafka sink: %w", err)
	}
	layout, err := newLayout(&cfg)
	if err != nil {
		return nil, fmt.Errorf("configure kafka sink: %w", err)
	}
	compression, err := parseCompression(cfg.Compression)
	if err != nil {
		return nil, fmt.Errorf("configure kafka sink: %w", err)
	}
	s := &Sink{
		cfg: cfg, layout: layout, changed: make(chan struct{}, maxWaiting), brokers: map[int32]*broker{},
		down: map[int32]string{none: notConnected}, logged: notConnected,
	}
	s.dial = func(ctx context.Context, addr string) (wire, error) { return dial(ctx, &s.cfg, addr) }
	s.batches.of = compression
	s.known.Store(newSnapshot())
	s.control = newControl(s)
	s.topics = topics{sink: s, byName: map[string]*lanesOf{}}
	if layout.constant != nil {
		s.control.want(string(layout.constant))
	}
	for range firstLane {
		s.addLane()
	}
	return s, nil
}

const notConnected = "not connected yet"

// Place gives each partition of each topic a lane, as many as there were when the topic was first seen; see topics.
func (s *Sink) Place(ev *outbox.Event) (p sink.Place, ok bool) { return s.topics.place(ev) }

// Route names the event's topic. The bytes are the caller's, or the event's own Route's.
func (s *Sink) Route(ev *outbox.Event) outbox.Route { return s.layout.route(ev) }

// Shown is where an event goes, for spans: the topic, as its template when that has the key in it, and the partition; -1 when that is not known.
func (s *Sink) Shown(ev *outbox.Event) (topic string, partition int) {
	topic = string(s.layout.route(ev).Name)
	if t := s.known.Load().topics[topic]; t != nil && len(t.partitions) > 0 && ev.Fault == nil {
		partition := s.layout.partition(ev, int32(len(t.partitions)))
		return s.layout.shown(topic), int(partition)
	}
	return s.layout.shown(topic), -1
}

// Changed delivers when metadata was answered, once for each Place that had no answer since.
func (s *Sink) Changed() <-chan struct{} { return s.changed }

// Publish appends the events to their partitions and waits for the brokers' answers. See lane.publish.
func (s *Sink) Publish(ctx context.Context, lane int, events []*outbox.Event, outcomes []sink.Outcome) error {
	s.lanesMu.RLock()
	l := s.lanes[lane]
	s.lanesMu.RUnlock()
	return l.publish(ctx, events, outcomes)
}

// addLane makes a lane and returns its number.
func (s *Sink) addLane() int32 {
	s.lanesMu.Lock()
	defer s.lanesMu.Unlock()
	s.lanes = append(s.lanes, newLane(s))
	return int32(len(s.lanes) - 1)
}

// Run keeps the connections until ctx is done. The error is an *outbox.Stop: the brokers refused the login for LoginTimeout
// and no connection was ever made.
func (s *Sink) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	var working sync.WaitGroup
	launch := func(b *broker) { working.Go(func() { b.run(ctx) }) }
	s.brokersMu.Lock()
	s.launch = launch
	for _, b := range s.brokers {
		launch(b)
	}
	s.brokersMu.Unlock()
	group.Go(func() error { return s.control.run(ctx) })
	err := group.Wait()
	s.brokersMu.Lock()
	s.launch = nil
	s.brokersMu.Unlock()
	working.Wait()
	return err
}

// broker is the one of that node.
func (s *Sink) broker(node int32) *broker {
	s.brokersMu.RLock()
	b := s.brokers[node]
	s.brokersMu.RUnlock()
	if b != nil {
		return b
	}
	s.brokersMu.Lock()
	defer s.brokersMu.Unlock()
	if b = s.brokers[node]; b == nil {
		b = newBroker(s, node)
		s.brokers[node] = b
		if s.launch != nil {
			s.launch(b)
		}
	}
	return b
}

// connected counts a connection.
func (s *Sink) connected(addr string, again bool) {
	s.connections.Add(1)
	if h := s.cfg.Hooks.Connected; h != nil {
		h(addr, again)
	}
}

// note records why a broker cannot be reached, nil for the control connection's; "" when it can. It logs what is new.
func (s *Sink) note(b *broker, why string) {
	node := int32(none)
	if b != nil {
		node = b.node
	}
	s.stateMu.Lock()
	defer s.stateMu.Unlock()
	if s.down[node] == why {
		return
	}
	if why == "" {
		delete(s.down, node)
	} else {
		s.down[node] = why
	}
	s.logState()
}

// leadersChanged forgets why brokers are away that lead nothing of ours any more.
func (s *Sink) leadersChanged(known *snapshot) {
	s.stateMu.Lock()
	defer s.stateMu.Unlock()
	for node := range s.down {
		if node != none && !known.leads(node) {
			delete(s.down, node)
		}
	}
	s.logState()
}

// Up reports whether the cluster answers and every broker that leads a partition of ours is reached, and if not, why.
func (s *Sink) Up() (ok bool, why string) {
	s.stateMu.Lock()
	defer s.stateMu.Unlock()
	why = s.why()
	return why == "", why
}

// why is the first reason, in the order of the nodes, the control connection's before all.
func (s *Sink) why() string {
	first := int32(-2)
	for node := range s.down {
		if first == -2 || node < first {
			first = node
		}
	}
	return s.down[first]
}

// logState writes one line when Up or its reason has changed.
func (s *Sink) logState() {
	why := s.why()
	if why == s.logged {
		return
	}
	s.logged = why
	if why == "" {
		s.cfg.Log.Info("brokers connected", zap.Int("brokers", len(s.known.Load().brokers)))
		return
	}
	s.cfg.Log.Warn("broker unavailable", zap.String("reason", why))
}

// Stats is a look at the sink for metrics and status.
type Stats struct {
	Connections     int      // up now
	PendingConfirms int      // records written and not answered
	Paused          []Paused // destinations that refuse
}

// Stats looks at the sink.
func (s *Sink) Stats() Stats {
	return Stats{Connections: int(s.connections.Load()), PendingConfirms: int(s.pending.Load()), Paused: s.paused.list()}
}

// ephemeral is what differs at every connect in an error's text: the local end of a socket, and the clock beside a
// certificate that has expired.
var ephemeral = regexp.MustCompile(`[^ ]+:\d+->|current time \S+ is `)

// oneLine is err in a line that is the same whenever the cause is.
func oneLine(err error) string {
	return strings.ReplaceAll(ephemeral.ReplaceAllString(err.Error(), ""), "\n", "; ")
}
