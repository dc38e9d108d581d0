// Package kafka publishes events to Apache Kafka: record batches of this package's own encoder,
// from one idempotent producer per lane and partition, acknowledged by all in-sync replicas. The
// broker's answer to each batch (its error code, the record errors in it, no answer) becomes a
// sink.Outcome.
package kafka

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go/compress"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/kafkaclient"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Sink publishes to Kafka. Its methods may be called as sink.Opened says; Up from anywhere.
//
//	reader ─ Place ──▶ placement ──┐ asks        lanes ── Publish ──▶ producers ──▶ queue of the leader's broker
//	                            ▼                  │ ask                              │ two workers, a connection each
//	                         control ◀─────────────┘                                  ▼
//	                            └── Metadata ──▶ all                               Kafka
type Sink struct {
	cfg       Config
	layout    *layout
	client    *kafkaclient.Client
	batches   sync.Pool // of *kafkaclient.Batch, so that a producer without a batch keeps no buffer
	placement placement
	changed   chan struct{} // has a signal for each waiting caller once there is newer metadata
	outage    *sink.OutageLog

	states    partitionStates
	readBack  readBack
	heldBytes atomic.Int64 // bytes of batches, without the first smallBatch of each: see maxHeld

	lanesMu sync.RWMutex
	lanes   []*lane

	// partsAdvanced is called by a lane that has advanced its parts, before it waits; nil: nothing
	// is. Tests check the parts there.
	partsAdvanced func([]*producer)
}

var (
	_ sink.Opened = (*Sink)(nil)
	_ sink.Prober = (*Sink)(nil) // the delivery line uses it
	_ sink.Placer = (*Sink)(nil) // likewise
	_ sink.Leader = (*Sink)(nil)
)

// New makes a sink of a configuration that package config has checked. Run connects it.
func New(cfg Config) (*Sink, error) {
	cfg.setDefaults()
	layout, err := newLayout(&cfg.RecordConfig)
	if err != nil {
		return nil, fmt.Errorf("configure kafka sink: %w", err)
	}
	var compression compress.Compression
	if err := compression.UnmarshalText([]byte(cmp.Or(cfg.Compression, "none"))); err != nil {
		return nil, fmt.Errorf("configure kafka sink: %w", err)
	}
	s := &Sink{cfg: cfg, layout: layout, changed: make(chan struct{}, maxWaiting), outage: sink.NewOutageLog(cfg.Log, "brokers connected")}
	s.batches.New = func() any { return kafkaclient.NewBatch(compression) }
	opts := cfg.clientOptions()
	opts.OnMetadata, opts.OnState = s.metadataAnswered, s.stateChanged
	s.client = kafkaclient.NewClient(opts)
	s.placement = placement{sink: s, lanes: map[string][]int32{}}
	s.states = partitionStates{states: map[topicPartition]*partitionState{}, waitingLanes: map[*lane]struct{}{}, reportOutage: s.client.NoteReplicas}
	if layout.Constant != nil {
		s.client.Control.KeepFresh(string(layout.Constant))
	}
	for range firstLane {
		s.addLane()
	}
	return s, nil
}

// Place implements sink.Sink; see placement.
func (s *Sink) Place(ev *event.Event) (p sink.Place, ok bool) { return s.placement.place(ev) }

// Route returns the event's topic. The bytes belong to the caller, or to the event's own Route.
func (s *Sink) Route(ev *event.Event) event.Route { return s.layout.Route(ev) }

// SentTo implements sink.Opened. A topic that is made from keys is shown as its template.
func (s *Sink) SentTo(ev *event.Event) sink.Sent {
	topic := string(s.layout.Route(ev).Name)
	to := sink.Sent{Name: s.layout.Shown(topic), Partition: -1}
	if t := s.client.Metadata.Load().Topics[topic]; t != nil && len(t.Partitions) > 0 && ev.Fault == nil {
		var rec sink.Record
		_, _ = s.layout.Place(ev, &rec) // an event without a topic was not sent
		to.Partition = int(PartitionOf(ev, &rec, int32(len(t.Partitions))))
	}
	return to
}

// Changed delivers a signal when new metadata has come, for each call of Place that had no answer
// since the last one.
func (s *Sink) Changed() <-chan struct{} { return s.changed }

// PlaceAnyway implements sink.Placer. A topic that is placed without metadata has one lane for
// ever, like a topic in error. So no key changes its lane when the metadata comes.
func (s *Sink) PlaceAnyway(on bool) {
	s.placement.placeAnyway(on)
	s.metadataAnswered() // callers that wait ask again
}

// Publish appends the events to their partitions and waits for the brokers' answers. See
// lane.publish.
func (s *Sink) Publish(ctx context.Context, lane int, events []*event.Event, outcomes []sink.Outcome) error {
	s.lanesMu.RLock()
	l := s.lanes[lane]
	s.lanesMu.RUnlock()
	return l.publish(ctx, events, outcomes)
}

// Probe sends one event by a producer of its own, so that no lane waits for its partition. A probe
// of a destination is given up after probeTime, because the destination is given up already. A
// suspect event, which has a fault of its own, waits for its partition as in a lane.
func (s *Sink) Probe(ctx context.Context, ev *event.Event, suspect bool) (sink.Outcome, error) {
	l := newLane(s)
	l.probes = !suspect
	var outcomes [1]sink.Outcome
	err := l.publish(ctx, []*event.Event{ev}, outcomes[:])
	return outcomes[0], err
}

// Run keeps the connections until ctx is done. The error is an *event.Stop: no connection was ever
// made, because the brokers refused the login for kafkaclient.LoginTimeout, or none of them has had
// what the configuration asks for, or there can be no login.
func (s *Sink) Run(ctx context.Context) error {
	if err := s.cfg.LoginFault; err != nil {
		return &event.Stop{Code: event.ExitUsage, Reason: "broker_login", What: err.Error(), Fix: fixAWS}
	}
	err := s.client.Run(ctx)
	if errors.Is(err, kafkaclient.ErrUnfit) {
		return &event.Stop{Code: event.ExitUsage, Reason: "broker_unfit", What: oneLine(err), Fix: fixRefusal(err)}
	}
	if errors.Is(err, kafkaclient.ErrLogin) {
		return &event.Stop{
			Code: event.ExitFailure, Reason: "broker_login",
			What: fmt.Sprintf("the brokers have refused the login for %s", kafkaclient.LoginTimeout),
			Fix:  cmp.Or(fixRefusal(err), "check sink.kafka.sasl"), Err: errors.New(oneLine(err)),
		}
	}
	return err
}

// Up reports whether the cluster answers, every broker that leads a partition of ours is reached,
// and not all partitions that were tried have too few replicas; and if not, why.
func (s *Sink) Up() (ok bool, why string) { return s.client.Up() }

// stateChanged logs that Up or its reason has changed. why is "" when the sink is up.
func (s *Sink) stateChanged(why string, brokers int) {
	if why != "" {
		s.outage.Away(why)
		return
	}
	s.outage.Back(zap.Int("brokers", brokers))
}

// metadataAnswered tells callers that wait for a place that there is newer metadata.
func (s *Sink) metadataAnswered() {
	for range s.placement.takeWaiting() {
		kafkaclient.Notify(s.changed)
	}
}

// Status implements sink.Opened.
func (s *Sink) Status() sink.Status {
	up, why := s.Up()
	return sink.Status{
		Up: up, Why: why, Waiting: s.waitingDestinations(),
		Connections: int(s.client.Connections.Load()), PendingConfirms: int(s.client.Pending.Load()), Found: s.readBack.found.Load(),
	}
}

// waitingDestinations returns what the lanes wait for, each destination once, sorted by name.
func (s *Sink) waitingDestinations() (out []sink.Paused) {
	s.lanesMu.RLock()
	defer s.lanesMu.RUnlock()
	for _, l := range s.lanes {
		if w := l.shownWait.Load(); w != nil {
			out = append(out, *w)
		}
	}
	slices.SortFunc(out, func(a, b sink.Paused) int {
		return cmp.Or(strings.Compare(a.Destination, b.Destination), a.Since.Compare(b.Since))
	})
	return slices.CompactFunc(out, func(a, b sink.Paused) bool { return a.Destination == b.Destination })
}

// Check examines the cluster; see examineCluster.
func Check(ctx context.Context, cfg Config) []sink.Finding {
	s, err := New(cfg)
	if err != nil {
		return []sink.Finding{{Name: "broker configuration", Detail: oneLine(err), Fix: "correct sink.kafka"}}
	}
	opts := s.cfg.clientOptions()
	return examineCluster(ctx, &opts, s.layout, &cfg)
}

// Config says where to publish and how an event becomes a record. The functions in it are optional,
// must not block and may be called concurrently.
type Config struct {
	kafkaclient.DialOptions
	RecordConfig

	// Brokers are host:port of brokers of one cluster, the first to ask. The others are learnt from
	// their answers.
	Brokers []string
	// Mirror is the topic of copies of dead letters, for Check; "" when there is none.
	Mirror string
	// Compression is none, gzip, snappy, lz4 or zstd; "" is none.
	Compression string
	// OneLane puts all events into one lane, one call at a time, which keeps the order of commits
	// over all keys.
	OneLane bool
	// ReadBack says that events of before a term are looked for in Kafka, and not sent again when
	// they are there.
	ReadBack bool
	// LoginFault is why no login can ever be made, which ends Run at once; nil: it can.
	LoginFault error
	// ConfirmTimeout is how long a broker may take to answer, and how long a partition may be
	// without a leader or without enough replicas while others confirm; 30 s unless set.
	ConfirmTimeout time.Duration
	Log            *zap.Logger

	// Connected is called when a connection to a node is open; again says that there was one
	// before.
	Connected func(again bool)
	// Confirms counts the brokers' answers by event. On Kafka returned is always 0, and a timeout
	// is an answer that did not come.
	Confirms func(acks, nacks, returned, timeouts int)
}

// setDefaults sets the fields that may be left out.
func (c *Config) setDefaults() {
	if c.ConfirmTimeout <= 0 {
		c.ConfirmTimeout = 30 * time.Second
	}
	if c.ClientID == "" {
		c.ClientID = "cdc-relay"
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	c.Secure = func(conn *tls.Conn) net.Conn { return &sink.TLSConn{Conn: conn} }
}

func (c *Config) clientOptions() kafkaclient.Options {
	opts := kafkaclient.Options{
		DialOptions: c.DialOptions, Brokers: c.Brokers, ConfirmTimeout: c.ConfirmTimeout, Explain: explain, OnConnected: c.Connected,
	}
	if c.Compression == "zstd" {
		opts.ProduceVersion = 7 // of Kafka 2.1; with an earlier one the broker refuses every batch
	}
	return opts
}
