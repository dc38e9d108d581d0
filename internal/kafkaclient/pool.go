// Pool: the connections for everything that is asked of a cluster, except the batches of idempotent
// producers, which Client sends.

package kafkaclient

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/findcoordinator"
	"github.com/segmentio/kafka-go/protocol/listoffsets"
	"github.com/segmentio/kafka-go/protocol/metadata"
	"github.com/segmentio/kafka-go/protocol/produce"
	"github.com/segmentio/kafka-go/protocol/rawproduce"
)

// RequestTimeout is how long a broker may take to answer a request.
const RequestTimeout = 30 * time.Second

// Pool keeps connections to the brokers of a cluster: as many to each broker as there are requests
// at the same time. It remembers which broker to ask until that broker cannot be reached, or
// answers that another one is to be asked. Its methods may be called concurrently.
type Pool struct {
	opts    DialOptions
	brokers []string // host:port of brokers to ask first

	mu           sync.Mutex
	closed       bool
	idle         map[string][]*Conn // idle connections, by address
	known        *Metadata
	controller   int32
	coordinators map[string]string // the coordinators' addresses, by group
}

// NewPool makes a pool. It connects at the first request.
func NewPool(opts DialOptions, brokers ...string) *Pool {
	return &Pool{opts: opts, brokers: slices.Clone(brokers), idle: map[string][]*Conn{}, known: NewMetadata(), coordinators: map[string]string{}}
}

// Close ends the idle connections. A connection with a request ends once that is answered.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, all := range p.idle {
		for _, c := range all {
			c.Close()
		}
	}
	clear(p.idle)
}

// takeConn returns an idle connection to a broker, or a new one.
func (p *Pool) takeConn(ctx context.Context, addr string) (*Conn, error) {
	for {
		p.mu.Lock()
		n := len(p.idle[addr]) - 1
		if p.closed || n < 0 {
			p.mu.Unlock()
			return Dial(ctx, &p.opts, addr)
		}
		c := p.idle[addr][n]
		p.idle[addr] = p.idle[addr][:n]
		p.mu.Unlock()
		if c.Usable() {
			return c, nil
		}
		c.Close()
	}
}

// withConn calls do with a connection to the broker at addr, or to any broker when addr is "". When
// a broker does not answer, the pool forgets which brokers lead, because others may have taken over
// its work. It also closes the other connections to that broker: when the broker or its network is
// frozen, a request on each of them would wait as long.
func (p *Pool) withConn(ctx context.Context, addr string, do func(*Conn) error) error {
	addrs := []string{addr}
	if addr == "" {
		addrs = p.addresses()
	}
	var c *Conn
	var failures []error
	for _, addr := range addrs {
		var err error
		if c, err = p.takeConn(ctx, addr); err == nil {
			break
		}
		if failures = append(failures, err); ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if c == nil {
		p.forgetLeaders()
		return errors.Join(failures...)
	}
	if err := do(c); err != nil {
		c.Close()
		if ctx.Err() == nil { // otherwise the caller gave up, which says nothing about the brokers
			p.forgetLeaders()
			p.closeIdle(c.Addr)
		}
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		c.Close()
	} else {
		p.idle[c.Addr] = append(p.idle[c.Addr], c)
	}
	return nil
}

// addresses returns the addresses to try when any broker will do: first those with an idle
// connection, then the configured brokers, then the other known ones.
func (p *Pool) addresses() (all []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for addr, idle := range p.idle {
		if len(idle) > 0 {
			all = append(all, addr)
		}
	}
	some := slices.Clone(p.brokers)
	for _, addr := range p.known.Brokers {
		some = append(some, addr)
	}
	for _, addr := range some {
		if !slices.Contains(all, addr) {
			all = append(all, addr)
		}
	}
	return all
}

// forgetLeaders forgets which brokers lead partitions and coordinate groups. The brokers' addresses
// stay.
func (p *Pool) forgetLeaders() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known = &Metadata{Brokers: p.known.Brokers, Stale: make(chan struct{})}
	clear(p.coordinators)
}

// closeIdle closes the idle connections to a broker.
func (p *Pool) closeIdle(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.idle[addr] {
		c.Close()
	}
	delete(p.idle, addr)
}

// askAt asks the broker at an address, or any broker when it is "".
func askAt[R protocol.Message](ctx context.Context, p *Pool, addr string, timeout time.Duration, req protocol.Message) (res R, err error) {
	err = p.withConn(ctx, addr, func(c *Conn) (err error) {
		res, err = RoundTripAs[R](ctx, c, timeout, req)
		return err
	})
	return res, err
}

// AskAny asks any broker.
func AskAny[R protocol.Message](ctx context.Context, p *Pool, req protocol.Message) (R, error) {
	return askAt[R](ctx, p, "", RequestTimeout, req)
}

// AskController asks the controller of the cluster, or the broker that acts as such.
func AskController[R protocol.Message](ctx context.Context, p *Pool, req protocol.Message) (res R, err error) {
	if _, err = p.Topics(ctx, []string{}); err != nil {
		return res, err
	}
	p.mu.Lock()
	addr := p.known.Brokers[p.controller]
	p.mu.Unlock()
	return askAt[R](ctx, p, addr, RequestTimeout, req)
}

// AskCoordinator asks the coordinator of a group, which may take timeout to answer. codeOf returns
// the error code of an answer. When the code says that the broker is not the coordinator, the next
// call asks for the coordinator again.
func AskCoordinator[R protocol.Message](ctx context.Context, p *Pool, group string, timeout time.Duration, req protocol.Message, codeOf func(R) int16) (res R, err error) {
	p.mu.Lock()
	addr := p.coordinators[group]
	p.mu.Unlock()
	if addr == "" {
		found, err := AskAny[*findcoordinator.Response](ctx, p, &findcoordinator.Request{Key: group})
		if err == nil && found.ErrorCode != 0 {
			err = kafkago.Error(found.ErrorCode)
		}
		if err != nil {
			return res, fmt.Errorf("find the coordinator of group %s: %w", group, err)
		}
		addr = net.JoinHostPort(found.Host, strconv.Itoa(int(found.Port)))
		p.mu.Lock()
		p.coordinators[group] = addr
		p.mu.Unlock()
	}
	if res, err = askAt[R](ctx, p, addr, timeout, req); err != nil {
		return res, err
	}
	if code := kafkago.Error(codeOf(res)); code != 0 {
		if code == kafkago.NotCoordinatorForGroup || code == kafkago.GroupCoordinatorNotAvailable {
			p.forgetLeaders()
		}
		return res, code
	}
	return res, nil
}

// Topics asks any broker for metadata of topics. With nil it returns all topics that the login may
// see; with an empty list it returns none, and only updates the brokers.
func (p *Pool) Topics(ctx context.Context, names []string) ([]metadata.ResponseTopic, error) {
	res, err := AskAny[*metadata.Response](ctx, p, &metadata.Request{TopicNames: names})
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known = p.known.Merge(res, func(t *Topic) bool { return t.Code == 0 }, time.Now())
	p.controller = res.ControllerID
	return res.Topics, nil
}

// knownTopic returns the metadata of a topic. It asks for it unless it is known.
func (p *Pool) knownTopic(ctx context.Context, name string) (*Topic, error) {
	for asked := false; ; asked = true {
		p.mu.Lock()
		t := p.known.Topics[name]
		p.mu.Unlock()
		switch {
		case t != nil && t.Code == 0:
			return t, nil
		case asked && t != nil:
			return nil, kafkago.Error(t.Code)
		case asked:
			return nil, kafkago.UnknownTopicOrPartition
		}
		if _, err := p.Topics(ctx, []string{name}); err != nil {
			return nil, err
		}
	}
}

// leaderAddress returns the address of a partition's leader.
func (p *Pool) leaderAddress(ctx context.Context, topic string, partition int32) (addr string, err error) {
	if _, err := p.knownTopic(ctx, topic); err != nil {
		return "", err
	}
	p.mu.Lock()
	leader, ok := p.known.Leader(topic, partition)
	addr = p.known.Brokers[leader.Node]
	p.mu.Unlock()
	if !ok || addr == "" {
		p.forgetLeaders()
		return "", kafkago.LeaderNotAvailable
	}
	return addr, nil
}

// codeError returns the error of a code in an answer, or nil for 0. After an error the pool asks
// again which brokers lead.
func (p *Pool) codeError(code int16) error {
	if code == 0 {
		return nil
	}
	p.forgetLeaders()
	return kafkago.Error(code)
}

// The times that Offsets takes for the offset of the first message, and for the offset after the
// last one.
const (
	FirstOffset = kafkago.FirstOffset
	EndOffset   = kafkago.LastOffset
)

// Offsets returns for each partition the offset of the first message that is not older than at. at
// is in Unix milliseconds, or FirstOffset or EndOffset. The offset is -1 when there is no such
// message.
func (p *Pool) Offsets(ctx context.Context, topic string, partitions []int, at int64) (found map[int]int64, err error) {
	err = tryThrice(ctx, func() error {
		found, err = p.listOffsets(ctx, topic, partitions, at)
		return err
	})
	return found, err
}

func (p *Pool) listOffsets(ctx context.Context, topic string, partitions []int, at int64) (map[int]int64, error) {
	of := map[string][]listoffsets.RequestPartition{} // partitions by the address of their leader
	for _, id := range partitions {
		addr, err := p.leaderAddress(ctx, topic, int32(id))
		if err != nil {
			return nil, fmt.Errorf("list offsets of %s-%d: %w", topic, id, err)
		}
		of[addr] = append(of[addr], listoffsets.RequestPartition{Partition: int32(id), CurrentLeaderEpoch: None, Timestamp: at})
	}
	found := map[int]int64{}
	for addr, asked := range of {
		res, err := askAt[*listoffsets.Response](ctx, p, addr, RequestTimeout, &listoffsets.Request{
			ReplicaID: None, Topics: []listoffsets.RequestTopic{{Topic: topic, Partitions: asked}},
		})
		if err != nil {
			return nil, fmt.Errorf("list offsets of %s: %w", topic, err)
		}
		for _, t := range res.Topics {
			for _, said := range t.Partitions {
				if err := p.codeError(said.ErrorCode); err != nil {
					return nil, fmt.Errorf("list offsets of %s-%d: %w", topic, said.Partition, err)
				}
				found[int(said.Partition)] = said.Offset
			}
		}
	}
	for _, id := range partitions {
		if _, ok := found[id]; !ok {
			return nil, fmt.Errorf("list offsets of %s-%d: the broker did not answer", topic, id)
		}
	}
	return found, nil
}

// Write returns nil once all in-sync replicas of a partition have the message. The partition is
// that of the key. After an error the message may be in the log or not. Errors that may pass are
// tried up to three times.
func (p *Pool) Write(ctx context.Context, m *kafkago.Message) error {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	b := NewBatch(0)
	r := Record{Key: m.Key, Value: m.Value, Time: m.Time.UnixMilli()}
	for _, h := range m.Headers {
		r.AddHeader(h.Key, h.Value)
	}
	b.Add(&r)
	batch := b.Seal(None, None, None)
	return tryThrice(ctx, func() error { return p.writeBatch(ctx, m, batch) })
}

// tryThrice calls do up to three times, as long as it fails with an error that may pass: a leader
// moves, or was just elected.
func tryThrice(ctx context.Context, do func() error) error {
	for try := 1; ; try++ {
		err := do()
		var code kafkago.Error
		if err == nil || try == 3 || errors.As(err, &code) && !code.Temporary() || !Sleep(ctx, time.Duration(try)*100*time.Millisecond) {
			return err
		}
	}
}

func (p *Pool) writeBatch(ctx context.Context, m *kafkago.Message, batch []byte) error {
	topic, err := p.knownTopic(ctx, m.Topic)
	if err != nil {
		return err
	}
	count := int32(len(topic.Partitions))
	partition := rand.Int32N(count) //nolint:gosec // one without a key goes anywhere
	if m.Key != nil {
		partition = PartitionOf(m.Key, count)
	}
	addr, err := p.leaderAddress(ctx, m.Topic, partition)
	if err != nil {
		return err
	}
	res, err := askAt[*produce.Response](ctx, p, addr, RequestTimeout, &rawproduce.Request{
		Acks: -1, Timeout: int32(RequestTimeout.Milliseconds()),
		Topics: []rawproduce.RequestTopic{{Topic: m.Topic, Partitions: []rawproduce.RequestPartition{{
			Partition: partition, RecordSet: protocol.RawRecordSet{Reader: bytes.NewReader(batch)},
		}}}},
	})
	if err != nil {
		return err
	}
	if len(res.Topics) != 1 || len(res.Topics[0].Partitions) != 1 {
		return errNoPartition
	}
	return p.codeError(res.Topics[0].Partitions[0].ErrorCode)
}

// deleteRequest is the request DeleteRecords, which kafka-go does not have.
type deleteRequest struct {
	Topics    []deleteRequestTopic `kafka:"min=v0,max=v1"`
	TimeoutMs int32                `kafka:"min=v0,max=v1"`
}

type deleteRequestTopic struct {
	Name       string                   `kafka:"min=v0,max=v1"`
	Partitions []deleteRequestPartition `kafka:"min=v0,max=v1"`
}

type deleteRequestPartition struct {
	Partition int32 `kafka:"min=v0,max=v1"`
	Offset    int64 `kafka:"min=v0,max=v1"`
}

type deleteResponse struct {
	ThrottleTimeMs int32                 `kafka:"min=v0,max=v1"`
	Topics         []deleteResponseTopic `kafka:"min=v0,max=v1"`
}

type deleteResponseTopic struct {
	Name       string                    `kafka:"min=v0,max=v1"`
	Partitions []deleteResponsePartition `kafka:"min=v0,max=v1"`
}

type deleteResponsePartition struct {
	Partition    int32 `kafka:"min=v0,max=v1"`
	LowWatermark int64 `kafka:"min=v0,max=v1"`
	ErrorCode    int16 `kafka:"min=v0,max=v1"`
}

func (r *deleteRequest) ApiKey() protocol.ApiKey  { return protocol.DeleteRecords }
func (r *deleteResponse) ApiKey() protocol.ApiKey { return protocol.DeleteRecords }

func init() { protocol.Register(&deleteRequest{}, &deleteResponse{}) }

// DeleteBefore deletes the messages of a partition before an offset.
func (p *Pool) DeleteBefore(ctx context.Context, topic string, partition int, offset int64) error {
	err := p.deleteBefore(ctx, topic, int32(partition), offset)
	if err != nil {
		return fmt.Errorf("delete messages of %s-%d before offset %d: %w", topic, partition, offset, err)
	}
	return nil
}

func (p *Pool) deleteBefore(ctx context.Context, topic string, partition int32, offset int64) error {
	addr, err := p.leaderAddress(ctx, topic, partition)
	if err != nil {
		return err
	}
	res, err := askAt[*deleteResponse](ctx, p, addr, RequestTimeout, &deleteRequest{
		TimeoutMs: int32(RequestTimeout.Milliseconds()),
		Topics:    []deleteRequestTopic{{topic, []deleteRequestPartition{{partition, offset}}}},
	})
	if err != nil {
		return err
	}
	if len(res.Topics) != 1 || len(res.Topics[0].Partitions) != 1 {
		return errNoPartition
	}
	return p.codeError(res.Topics[0].Partitions[0].ErrorCode)
}
