// A cluster in memory that keeps Kafka's rules for idempotent producers, and loses requests and
// answers, moves leaders and forgets on demand.

package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/initproducerid"
	"github.com/segmentio/kafka-go/protocol/metadata"
	"github.com/segmentio/kafka-go/protocol/produce"
	"github.com/segmentio/kafka-go/protocol/rawproduce"

	"github.com/cdc-relay/cdc-relay/internal/kafkaclient"
	"github.com/cdc-relay/cdc-relay/internal/kafkaclient/kafkatest"
)

// odds are how often, of a thousand, each thing goes wrong.
type odds struct {
	requestLost   int // the connection ends before the broker has the request
	requestLate   int // the same, but the broker gets it up to lateness later
	answerLost    int // the connection ends when the batches are appended
	slow          int // the broker takes up to lateness
	timedOut      int // 7: appended, and not replicated in time
	shrunk        int // 20: appended, and then too few replicas
	moved         int // 6: appended, then the leader moves; half of these lose the batch
	unexplained   int // -1, appended or not
	omitted       int // the answer does not speak of a batch
	noIdentity    int // InitProducerID fails
	forgottenOnce int // the leader forgets a producer
	lateness      time.Duration
}

// memory is the cluster. Its nodes are 1 to n, their addresses "1:9092" and so on.
type memory struct {
	t    testing.TB
	odds odds

	mu       sync.Mutex
	rng      *rand.Rand
	nodes    map[int32]*memNode
	topics   map[string]*memTopic
	producer int64
	// all that was ever stored, in the order of appends, with what is lost and deleted
	appends  []memRecord
	history  []memView
	wires    []*memWire
	cluster  string
	calm     bool // no more faults
	requests int
	metadata int             // how often it was asked for
	life     int             // how often its storage was taken back
	given    map[int64]int   // producer ids, by the life in which they were given
	sent     map[string]bool // the ids of all records that were in a request
	old      map[string]bool // those of sent that were on a connection of an earlier life
	cuts     int             // so many produce requests end their connection
	throttle int32
}

type memNode struct {
	down, frozen bool
	idless       bool          // it gives no producer ids
	hasty        bool          // it ends connections that are idle at once
	lag          time.Duration // of its metadata
	changed      chan struct{} // closed and replaced when down or frozen changes
}

type memTopic struct {
	partitions []*memPartition
	denied     bool
	limit      int // of a batch, in bytes
}

type memPartition struct {
	leader, epoch int32
	tooFew        bool
	short         bool          // a replica is not in sync, but enough are
	stuck         time.Duration // it takes so long, and then its replicas have not kept up (7)
	producers     map[int64]memProducer
}

// memProducer is what a partition remembers of a producer: its last five batches.
type memProducer struct {
	epoch   int16
	batches []memBatch
}

type memBatch struct {
	first, last int32
	ids         []string
}

// memRecord is a record that was stored.
type memRecord struct {
	id, key string
	kind    string // of the event's type: poison, namedPoison, or ""
	topic   string
	at      int
	lost    bool // with a leader that had not replicated it
}

// memView is the metadata at a time.
type memView struct {
	at     time.Time
	topics map[string][]kafkaclient.Leader
	short  map[string][]bool // a replica is not in sync
}

func newMemory(t testing.TB, nodes int, rng *rand.Rand) *memory {
	m := &memory{
		t: t, rng: rng, nodes: map[int32]*memNode{}, topics: map[string]*memTopic{}, producer: 1000,
		given: map[int64]int{}, sent: map[string]bool{}, old: map[string]bool{},
	}
	for n := range nodes {
		m.nodes[int32(n+1)] = &memNode{changed: make(chan struct{})}
	}
	return m
}

// change runs f with the lock, and notes what metadata is now.
func (m *memory) change(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
	m.noted()
}

func (m *memory) noted() {
	view := memView{at: time.Now(), topics: map[string][]kafkaclient.Leader{}, short: map[string][]bool{}}
	for name, topic := range m.topics {
		for _, p := range topic.partitions {
			view.topics[name] = append(view.topics[name], kafkaclient.Leader{Node: p.leader, Epoch: p.epoch})
			view.short[name] = append(view.short[name], p.tooFew || p.short)
		}
	}
	m.history = append(m.history, view)
}

// create makes or re-creates a topic. m.mu is locked.
func (m *memory) create(name string, partitions int) {
	m.topics[name] = &memTopic{limit: 1 << 20}
	m.grow(name, partitions)
}

func (m *memory) grow(name string, partitions int) {
	topic := m.topics[name]
	for len(topic.partitions) < partitions {
		topic.partitions = append(topic.partitions, &memPartition{leader: m.anyNode(), producers: map[int64]memProducer{}})
	}
}

// takeBack takes the storage of all nodes back to before the first record. The connections that
// stand are dead. A batch that is sent for the first time from then on, under a producer id from
// before, is a fault of the sink: another producer may have the id now. The lock is held.
func (m *memory) takeBack() {
	m.life++
	maps.Copy(m.old, m.sent)
	for i := range m.appends {
		m.appends[i].lost = true
	}
	for _, topic := range m.topics {
		for _, p := range topic.partitions {
			p.epoch, p.producers = 0, map[int64]memProducer{}
		}
	}
}

// anyNode is a node that is up, or none.
func (m *memory) anyNode() int32 {
	var up []int32
	for id, n := range m.nodes {
		if !n.down && !n.frozen {
			up = append(up, id)
		}
	}
	if len(up) == 0 {
		return kafkaclient.None
	}
	slices.Sort(up)
	return up[m.rng.IntN(len(up))]
}

// elect gives a partition another leader. m.mu is locked.
func (m *memory) elect(p *memPartition) {
	p.leader = m.anyNode()
	p.epoch++
}

// turn sets a node's state, and has the partitions it led find another leader after the election's
// time.
func (m *memory) turn(id int32, down, frozen bool, election time.Duration) {
	m.change(func() {
		n := m.nodes[id]
		n.down, n.frozen = down, frozen
		for _, w := range m.wires {
			w.over = w.over || down && w.node == id
		}
		close(n.changed)
		n.changed = make(chan struct{})
		for _, name := range slices.Sorted(maps.Keys(m.topics)) {
			for _, p := range m.topics[name].partitions {
				if !down && !frozen && p.leader == kafkaclient.None {
					m.elect(p)
				}
			}
		}
	})
	if !down && !frozen {
		return
	}
	time.AfterFunc(election, func() {
		m.change(func() {
			for _, name := range slices.Sorted(maps.Keys(m.topics)) {
				for _, p := range m.topics[name].partitions {
					if n := m.nodes[p.leader]; n != nil && (n.down || n.frozen) {
						m.elect(p)
					}
				}
			}
		})
	})
}

// roll reports whether something goes wrong now. m.mu is locked.
func (m *memory) roll(of1000 int) bool { return !m.calm && of1000 > 0 && m.rng.IntN(1000) < of1000 }

// dial connects to a broker in memory, in place of a TCP connection.
func (m *memory) dial(ctx context.Context, addr string) (kafkaclient.Connection, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	id, err := strconv.Atoi(host)
	if err != nil {
		return nil, err
	}
	w := &memWire{memory: m, node: int32(id), ended: make(chan struct{})}
	m.mu.Lock()
	w.life = m.life
	m.wires = append(m.wires, w)
	m.mu.Unlock()
	if err := w.reach(ctx, kafkaclient.DialTimeout); err != nil {
		return nil, fmt.Errorf("connect to broker %s: %w", addr, err)
	}
	return w, nil
}

// cut ends all connections.
func (m *memory) cut() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range m.wires {
		w.Close()
	}
	m.wires = nil
}

// memWire is a connection.
type memWire struct {
	memory *memory
	node   int32
	life   int // of the cluster
	once   sync.Once
	ended  chan struct{}
	over   bool      // the node has gone down since
	muted  time.Time // until then the node does not read from it: it is over its quota
}

func (w *memWire) Close() { w.once.Do(func() { close(w.ended) }) }

func (w *memWire) Usable() bool {
	w.memory.mu.Lock()
	n := w.memory.nodes[w.node]
	gone := w.over || n.hasty
	w.memory.mu.Unlock()
	if gone {
		w.Close()
	}
	return w.open()
}

func (w *memWire) open() bool {
	select {
	case <-w.ended:
		return false
	default:
		return true
	}
}

// Watch waits for the node to go down.
func (w *memWire) Watch(ended chan<- struct{}) (unwatch func()) {
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			w.memory.mu.Lock()
			n := w.memory.nodes[w.node]
			gone, changed := n.down || n.hasty, n.changed
			w.memory.mu.Unlock()
			if gone {
				w.Close()
				kafkaclient.Notify(ended)
				return
			}
			select {
			case <-changed:
			case <-w.ended:
				kafkaclient.Notify(ended)
				return
			case <-stop:
				return
			}
		}
	}()
	return func() {
		close(stop)
		<-done
	}
}

var errRefused = errors.New("connection refused")

// reach waits while the node is frozen.
func (w *memWire) reach(ctx context.Context, timeout time.Duration) error {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		w.memory.mu.Lock()
		n := w.memory.nodes[w.node]
		down, frozen, changed := n.down, n.frozen, n.changed
		w.memory.mu.Unlock()
		switch {
		case down:
			return errRefused
		case !frozen:
			return nil
		}
		select {
		case <-changed:
		case <-timer.C:
			return context.DeadlineExceeded
		case <-ctx.Done():
			return ctx.Err()
		case <-w.ended:
			return net.ErrClosed
		}
	}
}

// pass lets time go by, while the node and the connection are up.
func (w *memWire) pass(ctx context.Context, d time.Duration) error {
	w.memory.mu.Lock()
	changed := w.memory.nodes[w.node].changed
	w.memory.mu.Unlock()
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return nil
		case <-changed:
			if err := w.reach(ctx, time.Minute); err != nil {
				return io.EOF
			}
			w.memory.mu.Lock()
			changed = w.memory.nodes[w.node].changed
			w.memory.mu.Unlock()
		case <-ctx.Done():
			return ctx.Err()
		case <-w.ended:
			return net.ErrClosed
		}
	}
}

func (w *memWire) RoundTrip(ctx context.Context, timeout time.Duration, req protocol.Message) (protocol.Message, error) {
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	res, err := w.exchange(bounded, req)
	if err == nil && !w.open() {
		err = net.ErrClosed
	}
	if err != nil {
		w.Close()
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, fmt.Errorf("send to broker %d: %w", w.node, err)
	}
	return res, nil
}

func (w *memWire) exchange(ctx context.Context, req protocol.Message) (protocol.Message, error) {
	m := w.memory
	produce, ok := req.(*rawproduce.Request)
	var sent []memSent
	if ok {
		sent = w.read(produce)
	}
	if !w.open() {
		return nil, net.ErrClosed
	}
	if err := w.reach(ctx, time.Hour); err != nil {
		return nil, io.EOF
	}
	if w.dead() {
		return nil, w.pass(ctx, time.Hour)
	}
	switch req := req.(type) {
	case *metadata.Request:
		if err := w.pass(ctx, time.Millisecond); err != nil {
			return nil, err
		}
		return m.believes(w.node, req), nil
	case *initproducerid.Request:
		if err := w.pass(ctx, time.Millisecond); err != nil {
			return nil, err
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.nodes[w.node].idless || m.roll(m.odds.noIdentity) {
			return &initproducerid.Response{ErrorCode: int16(kafkago.GroupLoadInProgress)}, nil
		}
		m.producer++
		m.given[m.producer] = m.life
		return &initproducerid.Response{ProducerID: m.producer}, nil
	case *rawproduce.Request:
		return w.produce(ctx, req, sent)
	}
	return nil, fmt.Errorf("a %T", req)
}

// believes is a node's metadata.
func (m *memory) believes(node int32, req *metadata.Request) *metadata.Response {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.metadata++
	res := &metadata.Response{ClusterID: m.cluster}
	for id, n := range m.nodes {
		if !n.down {
			res.Brokers = append(res.Brokers, metadata.ResponseBroker{NodeID: id, Host: fmt.Sprint(id), Port: 9092})
		}
	}
	if req.TopicNames == nil {
		m.t.Error("metadata of all topics was asked for")
	}
	believed := m.history[0]
	for _, view := range m.history {
		if m.calm || !view.at.After(time.Now().Add(-m.nodes[node].lag)) {
			believed = view
		}
	}
	for _, name := range req.TopicNames {
		said := metadata.ResponseTopic{Name: name}
		for i, l := range believed.topics[name] {
			inSync := []int32{1, 2}
			if believed.short[name][i] {
				inSync = inSync[:1]
			}
			said.Partitions = append(said.Partitions, metadata.ResponsePartition{
				PartitionIndex: int32(i), LeaderID: l.Node, LeaderEpoch: l.Epoch, ReplicaNodes: []int32{1, 2}, IsrNodes: inSync,
			})
		}
		if said.Partitions == nil {
			said.ErrorCode = int16(kafkago.UnknownTopicOrPartition)
		}
		m.rng.Shuffle(len(said.Partitions), func(i, j int) {
			said.Partitions[i], said.Partitions[j] = said.Partitions[j], said.Partitions[i]
		})
		res.Topics = append(res.Topics, said)
	}
	return res
}

// memSent is a batch of a request.
type memSent struct {
	topic     string
	partition int32
	size      int
	producer  int64
	epoch     int16
	first     int32
	records   []memRecord
}

// read takes the request's bytes, which are not the broker's to keep.
func (w *memWire) read(req *rawproduce.Request) (sent []memSent) {
	m := w.memory
	for _, topic := range req.Topics {
		for _, p := range topic.Partitions {
			var sealed bytes.Buffer
			if _, err := p.RecordSet.WriteTo(&sealed); err != nil {
				m.t.Error(err)
			}
			b := kafkatest.Decode(m.t, sealed.Bytes())
			s := memSent{
				topic: topic.Topic, partition: p.Partition, size: sealed.Len(),
				producer: b.ProducerID, epoch: b.ProducerEpoch, first: b.BaseSequence,
			}
			for _, r := range b.Records {
				rec := memRecord{id: string(r.Headers[0].Value), key: string(r.Key), topic: topic.Topic}
				// a profile's records may have one
				if len(r.Headers) > 1 && r.Headers[1].Key == HeaderType {
					rec.kind = string(r.Headers[1].Value)
				}
				s.records = append(s.records, rec)
			}
			for _, other := range sent {
				if other.topic == s.topic && other.partition == s.partition {
					m.t.Errorf("two batches for %s/%d in one request", s.topic, s.partition)
				}
			}
			sent = append(sent, s)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range sent {
		for _, r := range s.records {
			m.sent[r.id] = true
			if w.life != m.life {
				m.old[r.id] = true
			}
		}
	}
	return sent
}

func (w *memWire) produce(ctx context.Context, req *rawproduce.Request, sent []memSent) (protocol.Message, error) {
	m := w.memory
	m.mu.Lock()
	m.requests++
	lost, late := m.roll(m.odds.requestLost) || m.cuts > 0, m.roll(m.odds.requestLate)
	m.cuts = max(0, m.cuts-1)
	unanswered, slow := m.roll(m.odds.answerLost), m.roll(m.odds.slow)
	delay, stuck := time.Duration(1+m.rng.Int64N(int64(m.odds.lateness)+1)), time.Duration(0)
	for _, s := range sent {
		if topic := m.topics[s.topic]; topic != nil && int(s.partition) < len(topic.partitions) {
			stuck = max(stuck, topic.partitions[s.partition].stuck)
		}
	}
	m.mu.Unlock()
	if req.Acks != -1 {
		m.t.Errorf("acks %d", req.Acks)
	}
	switch {
	case lost:
		return nil, io.EOF
	case late:
		time.AfterFunc(delay, func() { m.produce(w, sent) })
		return nil, io.EOF
	case slow:
	default:
		delay = time.Millisecond
	}
	delay = max(delay, stuck, time.Until(w.muted))
	if err := w.pass(ctx, delay); err != nil {
		return nil, err
	}
	res := m.produce(w, sent)
	if res == nil || unanswered {
		return nil, io.EOF
	}
	w.muted = time.Now().Add(time.Duration(res.ThrottleTimeMs) * time.Millisecond)
	if err := w.pass(ctx, time.Millisecond); err != nil {
		return nil, err
	}
	return res, nil
}

// dead says that the storage was taken back, and so the node was stopped, since the connection
// was made.
func (w *memWire) dead() bool {
	w.memory.mu.Lock()
	defer w.memory.mu.Unlock()
	return w.life != w.memory.life
}

// produce is the broker's part; nil when the node is down meanwhile.
func (m *memory) produce(w *memWire, sent []memSent) *produce.Response {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.nodes[w.node].down || m.life != w.life {
		return nil
	}
	res := &produce.Response{ThrottleTimeMs: m.throttle}
	m.rng.Shuffle(len(sent), func(i, j int) { sent[i], sent[j] = sent[j], sent[i] })
	for _, s := range sent {
		said := produce.ResponsePartition{Partition: s.partition}
		code, culprits := m.append(w.node, s)
		said.ErrorCode = int16(code)
		if m.roll(m.odds.omitted) {
			continue
		}
		for _, c := range culprits {
			said.RecordErrors = append(said.RecordErrors, produce.ResponseError{BatchIndex: c, BatchIndexErrorMessage: "one or more records have been rejected"})
		}
		res.Topics = append(res.Topics, produce.ResponseTopic{Topic: s.topic, Partitions: []produce.ResponsePartition{said}})
	}
	return res
}

// append is Kafka's: the checks before, the producer's state, the log, and what happens while it
// waits for its replicas.
func (m *memory) append(node int32, s memSent) (code kafkago.Error, culprits []int32) {
	topic := m.topics[s.topic]
	if topic == nil || int(s.partition) >= len(topic.partitions) {
		return kafkago.UnknownTopicOrPartition, nil
	}
	if topic.denied {
		return kafkago.TopicAuthorizationFailed, nil
	}
	p := topic.partitions[s.partition]
	if p.leader != node {
		return kafkago.NotLeaderForPartition, nil
	}
	if p.tooFew {
		return kafkago.NotEnoughReplicas, nil
	}
	if s.size > topic.limit {
		return kafkago.MessageSizeTooLarge, nil
	}
	for i, r := range s.records {
		switch r.kind {
		case namedPoison:
			culprits = append(culprits, int32(i))
		case poison:
			return kafkago.PolicyViolation, nil
		}
	}
	if culprits != nil {
		return kafkago.InvalidRecord, culprits
	}
	if m.roll(m.odds.unexplained) && m.rng.IntN(2) == 0 {
		return kafkago.Unknown, nil
	}
	if m.given[s.producer] != m.life && slices.ContainsFunc(s.records, func(r memRecord) bool { return !m.old[r.id] }) {
		m.t.Errorf("producer %d was given before the storage was taken back, what it sends was not sent before", s.producer)
	}
	before, known := p.producers[s.producer]
	batch := memBatch{first: s.first, last: s.first + int32(len(s.records)) - 1}
	for _, r := range s.records {
		batch.ids = append(batch.ids, r.id)
	}
	if known {
		switch last := before.batches[len(before.batches)-1].last; {
		case s.epoch < before.epoch:
			return kafkago.InvalidProducerEpoch, nil
		case slices.ContainsFunc(before.batches, func(b memBatch) bool {
			if b.first != batch.first || b.last != batch.last {
				return false
			}
			if !slices.Equal(b.ids, batch.ids) {
				m.t.Errorf("other records under used sequence numbers: %v instead of %v", batch.ids, b.ids)
			}
			return true
		}):
			if p.stuck > 0 {
				return kafkago.RequestTimedOut, nil
			}
			return 0, nil
		case s.first != last+1:
			return kafkago.OutOfOrderSequenceNumber, nil
		}
	}
	at := len(m.appends)
	for _, r := range s.records {
		r.at = len(m.appends)
		m.appends = append(m.appends, r)
	}
	after := memProducer{epoch: s.epoch, batches: append(slices.Clone(before.batches), batch)}
	after.batches = after.batches[max(0, len(after.batches)-5):]
	p.producers[s.producer] = after
	switch {
	case p.stuck > 0, m.roll(m.odds.timedOut):
		return kafkago.RequestTimedOut, nil
	case m.roll(m.odds.shrunk):
		return kafkago.NotEnoughReplicasAfterAppend, nil
	case m.roll(m.odds.unexplained):
		return kafkago.Unknown, nil
	case m.roll(m.odds.moved):
		if m.rng.IntN(2) == 0 { // the new leader does not have it
			for i := at; i < len(m.appends); i++ {
				m.appends[i].lost = true
			}
			if p.producers[s.producer] = before; !known {
				delete(p.producers, s.producer)
			}
		}
		m.elect(p)
		m.noted()
		return kafkago.NotLeaderForPartition, nil
	case m.roll(m.odds.forgottenOnce):
		delete(p.producers, s.producer)
	}
	return 0, nil
}

// Records of these types are refused: without a word of which record it is, and by name.
const (
	poison      = "poison"
	namedPoison = "named-poison"
)
