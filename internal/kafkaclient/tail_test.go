package kafkaclient

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/compress"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/apiversions"
)

// modelLog is a partition of three replicas, by Kafka's rules for replicas in sync, the high
// watermark, elections and repeated batches. The connection leads to one node, whoever leads.
type modelLog struct {
	t        *testing.T
	rand     *rand.Rand
	lively   int // moves in a pass, at most
	logs     [3][]logBatch
	inSync   map[int]bool
	leader   int
	epoch    uint32
	node     int           // where the connection leads
	former   []logBatch    // node's log when it last led; it may not know yet that it does not
	shown    int64         // its high watermark then
	sequence map[int64]int // of each producer, in batches
	forgot   bool          // the leader has forgotten the producers
	// what every replica in sync had when the batch was confirmed, by key
	confirmed map[string]bool
	moves     int
}

const (
	leastInSync = 2
	ownProducer = 7
	noTransact  = 8 // another program's
)

func (m *modelLog) end(node int) int64 {
	if n := len(m.logs[node]); n > 0 {
		return m.logs[node][n-1].last + 1
	}
	return 0
}

// watermark is the offset up to which all replicas in sync have the leader's log.
func (m *modelLog) watermark() int64 {
	low := m.end(m.leader)
	for i := range m.inSync {
		low = min(low, m.end(i))
	}
	return low
}

// append appends a batch of one to three records to the leader's log.
func (m *modelLog) append(producer int64, sequence int, keys ...string) {
	b := NewBatch(0)
	for _, key := range keys {
		b.Add(&Record{Key: []byte(key), Time: 1})
	}
	m.store(slices.Clone(b.Seal(producer, 0, int32(sequence))[baseOffsetAt:]))
}

func (m *modelLog) store(raw []byte) {
	binary.BigEndian.PutUint64(raw, uint64(m.end(m.leader)))
	binary.BigEndian.PutUint32(raw[leaderEpochAt-baseOffsetAt:], m.epoch)
	split, err := splitBatches(raw)
	if err != nil {
		m.t.Fatal(err)
	}
	m.logs[m.leader] = append(m.logs[m.leader], split...)
}

// truncate lets a replica give up what differs from the leader's log.
func (m *modelLog) truncate(i int) {
	from, same := m.logs[m.leader], 0
	for same < min(len(from), len(m.logs[i])) && string(from[same].raw) == string(m.logs[i][same].raw) {
		same++
	}
	m.logs[i] = slices.Clip(m.logs[i][:same])
}

// pass lets time pass, in which anything may happen.
func (m *modelLog) pass() {
	for range m.rand.IntN(m.lively) {
		m.move()
	}
}

// modelMoves has each move as often as its share.
var modelMoves = slices.Concat(
	slices.Repeat([]string{"fetch"}, 9), slices.Repeat([]string{"expand"}, 4), slices.Repeat([]string{"back"}, 3),
	slices.Repeat([]string{"own", "mixed", "unclean"}, 2), []string{"other", "shrink", "elect", "forget"},
)

func (m *modelLog) move() {
	if m.moves++; m.moves > 60 {
		return
	}
	i := m.rand.IntN(3)
	switch modelMoves[m.rand.IntN(len(modelMoves))] {
	case "fetch":
		if i != m.leader {
			n := len(m.logs[i])
			m.logs[i] = append(m.logs[i], m.logs[m.leader][n:min(n+1, len(m.logs[m.leader]))]...)
		}
	case "own":
		m.sequence[ownProducer]++
		n := m.sequence[ownProducer]
		m.append(ownProducer, n, fmt.Sprintf("own-%d-%d", m.epoch, n))
	case "other":
		m.sequence[noTransact]++
		m.append(noTransact, m.sequence[noTransact], fmt.Sprintf("other-%d-%d", m.epoch, m.sequence[noTransact]))
	case "mixed": // cannot be sent again
		m.sequence[noTransact]++
		n := m.sequence[noTransact]
		m.append(noTransact, n, fmt.Sprintf("own-%d-mixed-%d", m.epoch, n), fmt.Sprintf("other-%d-%d", m.epoch, n))
	case "shrink":
		if i != m.leader {
			delete(m.inSync, i)
		}
	case "expand":
		if m.end(i) >= m.watermark() {
			m.inSync[i] = true
		}
	case "elect":
		if m.inSync[i] {
			m.elect(i)
		}
	case "unclean":
		m.elect(i)
		m.inSync = map[int]bool{i: true}
	case "back": // the node catches up, and leads again
		if m.leader != m.node {
			m.logs[m.node] = slices.Clone(m.logs[m.leader])
			m.inSync[m.node] = true
			m.elect(m.node)
		}
	case "forget":
		m.forgot = true
	}
	if m.node == m.leader {
		m.former, m.shown = slices.Clone(m.logs[m.node]), m.watermark()
	}
}

func (m *modelLog) elect(i int) {
	m.leader = i
	m.epoch++
	m.forgot = false
	for other := range m.logs {
		m.truncate(other)
	}
}

func (m *modelLog) bounds(context.Context) (first, end int64, err error) {
	m.pass()
	return 0, m.shown, nil
}

func (m *modelLog) read(_ context.Context, from int64) (batches []logBatch, err error) {
	m.pass()
	for _, b := range m.former {
		if b.last >= from && b.last < m.shown {
			batches = append(batches, b)
		}
	}
	return batches[:min(1+m.rand.IntN(4), len(batches))], nil
}

func (m *modelLog) sendAgain(_ context.Context, b *logBatch) (base int64, err error) {
	m.pass()
	if m.node != m.leader {
		return 0, kafkago.NotLeaderForPartition
	}
	if len(m.inSync) < leastInSync {
		return 0, kafkago.NotEnoughReplicas
	}
	sequence := func(b *logBatch) uint32 { return binary.BigEndian.Uint32(b.raw[baseSequenceAt-baseOffsetAt:]) }
	at := -1
	for i, stored := range m.logs[m.leader] {
		if stored.producer == b.producer && sequence(&stored) == sequence(b) && !m.forgot {
			at = i
		}
	}
	if at < 0 {
		m.store(slices.Clone(b.raw))
		at = len(m.logs[m.leader]) - 1
	}
	want := m.logs[m.leader][at]
	for epoch := m.epoch; m.watermark() <= want.last; {
		if m.move(); m.moves > 60 {
			return 0, kafkago.RequestTimedOut
		}
		if m.epoch != epoch {
			return 0, kafkago.NotLeaderForPartition
		}
	}
	if len(m.inSync) < leastInSync {
		return 0, kafkago.NotEnoughReplicasAfterAppend
	}
	m.former, m.shown = slices.Clone(m.logs[m.node]), m.watermark()
	m.confirmed = map[string]bool{}
	for _, stored := range m.logs[m.leader] {
		everywhere := true
		for i := range m.inSync {
			everywhere = everywhere && slices.ContainsFunc(m.logs[i], func(b logBatch) bool { return string(b.raw) == string(stored.raw) })
		}
		if _, err := stored.show(keysOf(func(key string) { m.confirmed[key] = m.confirmed[key] || everywhere })); err != nil {
			m.t.Fatal(err)
		}
	}
	return want.first, nil
}

// keysOf is a TailReader that only sees.
type keysOf func(key string)

func (keysOf) Begin()       {}
func (keysOf) Enough() bool { return false }
func (keysOf) Found() bool  { return true }
func (k keysOf) See(m *kafkago.Message) bool {
	k(string(m.Key))
	return strings.HasPrefix(string(m.Key), "own")
}

// seen collects keys as the sink collects records.
type seen struct {
	keys   map[string]bool
	enough int
	twice  string // a key that was seen twice in one reading
}

func (s *seen) Begin()       { s.keys = map[string]bool{} }
func (s *seen) Enough() bool { return len(s.keys) >= s.enough }
func (s *seen) Found() bool  { return len(s.keys) > 0 }
func (s *seen) See(m *kafkago.Message) bool {
	ours := strings.HasPrefix(string(m.Key), "own")
	if ours {
		if s.keys[string(m.Key)] {
			s.twice = string(m.Key)
		}
		s.keys[string(m.Key)] = true
	}
	return ours
}

// Whatever happens to the replicas and the leader meanwhile: what readTail shows was on every
// replica in sync when these were enough.
func TestTailShowsWhatIsConfirmed(t *testing.T) {
	const runs = 5000
	known, refused := 0, 0
	for seed := range uint64(runs) {
		r := rand.New(rand.NewPCG(seed, 1))
		m := &modelLog{t: t, rand: r, lively: 1 + r.IntN(12), inSync: map[int]bool{0: true, 1: true, 2: true}, sequence: map[int64]int{}}
		for range 1 + m.rand.IntN(3) {
			m.sequence[ownProducer]++
			m.append(ownProducer, m.sequence[ownProducer], fmt.Sprintf("own-0-%d", m.sequence[ownProducer]))
		}
		m.logs[1], m.logs[2] = slices.Clone(m.logs[0]), slices.Clone(m.logs[0])
		m.pass()
		m.node, m.former, m.shown, m.moves = m.leader, slices.Clone(m.logs[m.leader]), m.watermark(), 0
		s := &seen{enough: 1 + m.rand.IntN(30)}
		if err := readTail(t.Context(), m, s); err != nil {
			refused++
			continue
		}
		if len(s.keys) > 0 {
			known++
		}
		for key := range s.keys {
			if !m.confirmed[key] {
				t.Fatalf("seed %d: %s is taken for stored; confirmed are %v", seed, key, m.confirmed)
			}
		}
	}
	if known < runs/5 || refused < runs/5 {
		t.Errorf("in %d runs something was known %d times, and the reading was refused %d times: the model reaches too little", runs, known, refused)
	}
}

// fixedLog has one log before the last batch is sent again, and another one after that.
type fixedLog struct {
	before, after []logBatch
	refusal       error
	base          int64
	sent          []logBatch
	lent          []byte // what the last read returned; the next one writes over it
}

func (f *fixedLog) bounds(context.Context) (first, end int64, err error) {
	return 0, f.before[len(f.before)-1].last + 1, nil
}

func (f *fixedLog) read(_ context.Context, from int64) (batches []logBatch, err error) {
	log := f.before
	if len(f.sent) > 0 {
		log = f.after
	}
	for _, b := range log {
		if b.last >= from {
			clear(f.lent)
			f.lent = slices.Clone(b.raw)
			b.raw = f.lent
			return []logBatch{b}, nil
		}
	}
	return nil, nil
}

func (f *fixedLog) sendAgain(_ context.Context, b *logBatch) (base int64, err error) {
	f.sent = append(f.sent, *b)
	return f.base, f.refusal
}

// inEpoch is the batch as a leader of another epoch stores it.
func inEpoch(epoch uint32, b logBatch) logBatch {
	b.raw = slices.Clone(b.raw)
	binary.BigEndian.PutUint32(b.raw[leaderEpochAt-baseOffsetAt:], epoch)
	return b
}

// fixedBatch is a batch of some records at an offset.
func fixedBatch(t *testing.T, at int64, attributes uint16, keys ...string) logBatch {
	t.Helper()
	return batchOfSize(t, at, int64(len(keys)), 0, attributes, keys...)
}

// batchOfSize takes more offsets than it has records when it was compacted. Each record has size
// bytes. The attributes have the compression, too.
func batchOfSize(t *testing.T, at, offsets int64, size int, attributes uint16, keys ...string) logBatch {
	t.Helper()
	b := NewBatch(compress.Compression(attributes & codecBits))
	for _, key := range keys {
		b.Add(&Record{Key: []byte(key), Value: make([]byte, size), Time: 1})
	}
	raw := slices.Clone(b.Seal(ownProducer, 0, int32(at))[baseOffsetAt:])
	binary.BigEndian.PutUint64(raw, uint64(at))
	binary.BigEndian.PutUint16(raw[AttributesAt-baseOffsetAt:], attributes)
	binary.BigEndian.PutUint32(raw[lastOffsetAt-baseOffsetAt:], uint32(offsets-1))
	binary.BigEndian.PutUint32(raw[CrcAt-baseOffsetAt:], crc32.Checksum(raw[AttributesAt-baseOffsetAt:], CRCTable))
	batches, err := splitBatches(raw)
	if err != nil {
		t.Fatal(err)
	}
	return batches[0]
}

// What counts is what the second reading shows, and it counts only behind a confirm.
func TestTailCountsBehindAConfirm(t *testing.T) {
	of := func(at int64, keys ...string) logBatch { return fixedBatch(t, at, 0, keys...) }
	log := []logBatch{of(0, "own-0"), of(1, "other-1"), of(2, "own-2", "own-3"), of(4, "other-4")}
	compacted := []logBatch{of(0, "own-0"), batchOfSize(t, 1, 600, 0, 0, "own-1"), of(601, "own-2")}
	large := []logBatch{batchOfSize(t, 0, 1, 3<<20, 0, "own-0"), batchOfSize(t, 1, 1, 3<<20, 0, "own-1")}
	bomb := []logBatch{batchOfSize(t, 0, 1, decodedTail+1, uint16(compress.Lz4), "own-0")}
	for name, tc := range map[string]struct {
		log  fixedLog
		want []string // keys that are shown in the end
		sent int64    // offset of the batch that is sent again; -1: none is
		err  bool
	}{
		"confirmed":           {fixedLog{before: log, after: log, base: 2}, []string{"own-0", "own-2", "own-3"}, 2, false},
		"stored once more":    {fixedLog{before: log, after: log, base: 5}, []string{"own-0", "own-2", "own-3"}, 2, false},
		"confirmed elsewhere": {fixedLog{before: log, after: log, base: 1}, nil, 2, true},
		"too few replicas":    {fixedLog{before: log, after: log, refusal: kafkago.NotEnoughReplicas}, nil, 2, true},
		"another log":         {fixedLog{before: log, after: []logBatch{log[0], log[1], of(2, "own-5", "own-6")}, base: 2}, nil, 2, true},
		"an earlier batch is another": {
			fixedLog{before: log, after: []logBatch{of(0, "other-0"), log[1], log[2]}, base: 2}, []string{"own-2", "own-3"}, 2, false,
		},
		"the same records in another epoch": {fixedLog{before: log, after: []logBatch{log[0], log[1], inEpoch(9, log[2])}, base: 2}, nil, 2, true},
		"what lies behind it": {
			fixedLog{before: append(log[:3:3], of(4, "own-4", "other-5")), after: append(log[:3:3], of(4, "own-6", "own-7")), base: 2},
			[]string{"own-0", "own-2", "own-3"},
			2, false,
		},
		// the second look begins within its offsets
		"behind a compacted batch":        {fixedLog{before: compacted, after: compacted, base: 601}, []string{"own-0", "own-1", "own-2"}, 601, false},
		"compacted":                       {fixedLog{before: compacted[1:2]}, nil, -1, false},
		"too large":                       {fixedLog{before: large, after: large}, nil, -1, false},
		"too large when decompressed":     {fixedLog{before: bomb, after: bomb}, nil, -1, false},
		"none of ours":                    {fixedLog{before: log[1:2]}, nil, -1, false},
		"a batch of ours and of somebody": {fixedLog{before: []logBatch{of(0, "own-0", "other-1")}}, nil, -1, false},
		"in a transaction":                {fixedLog{before: []logBatch{fixedBatch(t, 0, transactional, "own-0")}}, nil, -1, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := &seen{enough: 10}
			err := readTail(t.Context(), &tc.log, s)
			if got := slices.Sorted(maps.Keys(s.keys)); (err != nil) != tc.err || err == nil && !slices.Equal(got, tc.want) {
				t.Errorf("%v, %v; want %v", got, err, tc.want)
			}
			if s.twice != "" {
				t.Errorf("%s was shown twice", s.twice)
			}
			stored := slices.IndexFunc(tc.log.before, func(b logBatch) bool { return b.first == tc.sent })
			switch {
			case tc.sent < 0 && len(tc.log.sent) > 0 || tc.sent >= 0 && (len(tc.log.sent) != 1 || tc.log.sent[0].first != tc.sent):
				t.Errorf("sent again: %v", tc.log.sent)
			case tc.sent >= 0 && string(tc.log.sent[0].sealed()[CrcAt:]) != string(tc.log.before[stored].raw[CrcAt-baseOffsetAt:]):
				t.Error("other bytes were sent")
			}
		})
	}
}

// A first batch comes whole, however large it is. One that is larger than what is read of a tail is
// not taken into memory.
func TestTailLimitsAnAnswer(t *testing.T) {
	f := newFake(t, func(f *fake, c net.Conn) {
		f.offers = append(f.offers, apiversions.ApiKeyResponse{ApiKey: int16(protocol.Fetch), MaxVersion: 13})
		f.greet(c)
		id, _ := f.Next(c)
		head := binary.BigEndian.AppendUint32(nil, tailBytes+tailFetch+1)
		if _, err := c.Write(binary.BigEndian.AppendUint32(head, uint32(id))); err != nil {
			f.Error(err)
		}
	})
	unwatched := func(_ func(), do func() error) error { return do() }
	_, err := (&tailLog{conn: f.dial(), watch: unwatched, topic: "events"}).read(t.Context(), 0)
	var over *TooLargeError
	if !errors.As(err, &over) {
		t.Errorf("got %v", err)
	}
}

// A broker that does not answer keeps nobody from reading the logs that others lead. It is given up
// as soon as another broker leads.
func TestTailsOfASilentBroker(t *testing.T) {
	const silent, answers, of = 1, 2, 2 * tailReaders
	synctest.Test(t, func(t *testing.T) {
		c := NewClient(Options{Explain: error.Error})
		reached := errors.New("reached")
		c.Dial = func(ctx context.Context, addr string) (Connection, error) {
			if addr == fmt.Sprint(answers) {
				return nil, reached
			}
			<-ctx.Done()
			return nil, ctx.Err()
		}
		lead := func(node int32) {
			leaders := slices.Repeat([]Leader{{Node: node}}, of)
			c.Metadata.Store(&Metadata{
				Brokers: map[int32]string{silent: fmt.Sprint(silent), answers: fmt.Sprint(answers)},
				Topics:  map[string]*Topic{"events": {Partitions: leaders}, "others": {Partitions: []Leader{{Node: answers}}}},
			})
		}
		lead(silent)
		var readings sync.WaitGroup
		for i := range int32(of) {
			readings.Go(func() {
				if err := c.ReadTail(t.Context(), "events", i, nil); !errors.Is(err, kafkago.NotLeaderForPartition) {
					t.Errorf("the former leader: %v", err)
				}
			})
		}
		synctest.Wait()
		if err := c.ReadTail(t.Context(), "others", 0, nil); !errors.Is(err, reached) {
			t.Errorf("the other broker: %v", err)
		}
		lead(answers)
		readings.Wait()
	})
}
