// Reading back: what a relay that died had stored is not sent again. When a term begins, nobody
// knows which of the events that the stream repeats are in Kafka. So before the first of them goes
// to a partition, the end of that partition's log is read, and an event that is there is confirmed
// without being sent.
//
// What must never happen is that an event is taken for stored which is not. Five rules keep that:
//
//	B1  The record is confirmed. That it can be read is not enough: see kafkaclient.ReadTail.
//	B2  It is the same record: key, value, time and headers, in the partition where the event would
//	    go. The header cdc_position is among them, and the id. So whoever else wrote it (a mirror,
//	    the relay of a restored copy), a consumer that has it drops the event by its id.
//	B3  No event is taken for stored behind one of its key that is not. The first event of a lane
//	    and partition that is not found, or is found before the one that was found last, ends the
//	    search there. So what retention, compaction or an election took away comes again with all
//	    that follows it. And where a former relay has sent a part twice (E1 E2 E1), E2 comes again,
//	    too: the newest record of a key stays that of the newest event.
//	B4  Only events that come directly from the stream are looked for. What an operator sends again
//	    is sent, and so is a row of the retry table.
//	B5  The broker is of the cluster that the relay sends to: Client.connect sees to that.
//
// Whatever fails, fails to the side of sending: an event arrives twice. That is so for a batch of
// the former relay, too, that is under way when the log is read. Nothing fences it: a broker
// refuses batches of an older epoch only once it has stored one of a newer epoch of the same
// producer id, and to go on with the ids of another process would put its numbers on other records.

package kafka

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/kafkaclient"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

const (
	// readBackTime is how long the end of a partition may take, with the wait for its turn. Its
	// events wait meanwhile. So they would without: only what keeps events from being sent, too,
	// takes so long.
	readBackTime = 30 * time.Second
	// readBackEnds is when no other is read any more, from the first reading of a term on.
	readBackEnds = time.Minute
	// clockSkew is how far the clocks of the database and of this machine may be apart. An event
	// that was committed later than that after the term began was not sent before. A wrong clock
	// costs a look, or leaves repeats: nothing is taken for stored because of it.
	clockSkew = 10 * time.Second
	// foundPause is for how long events are counted before the log tells how many were found.
	foundPause = time.Second
)

// readBack is the part of a sink that reads back.
type readBack struct {
	term    atomic.Int64 // counts the terms; 0: none has begun, or the key is off
	began   atomic.Int64 // when the term began, Unix nanoseconds
	first   atomic.Int64 // when the term's first partition was read, likewise; 0: none was
	found   atomic.Int64 // events that were confirmed without being sent
	pending atomic.Int64 // of these, those of which the log has not told yet
	gaveUp  atomic.Int64 // the term in which no more is read
	told    atomic.Int64 // the term in which the log has told that a partition cannot be read
}

// tail is what is known of the end of a partition's log.
type tail struct {
	mu     sync.Mutex                       // held while the log is read
	term   atomic.Int64                     // the term for which it was read
	stored atomic.Pointer[map[digest]int64] // highest offsets
}

// digest identifies a record by all of its content.
type digest [sha256.Size]byte

// Lead implements sink.Leader: with a term begins a new search.
func (s *Sink) Lead(on bool) {
	if on && s.cfg.ReadBack {
		s.readBack.began.Store(time.Now().UnixNano())
		s.readBack.first.Store(0)
		s.readBack.term.Add(1)
	} else {
		s.readBack.tellFound(s.cfg.Log)
	}
}

// isDirect reports whether an event comes from the stream, and is neither a row of the retry table
// nor sent again by an operator nor a copy.
func isDirect(ev *event.Event) bool { return ev.Route == nil && !ev.Replay && !ev.Copy }

// mayBeStored reports whether a direct event may have been sent before the term began.
func (b *readBack) mayBeStored(ev *event.Event) bool {
	return ev.CommitTime.UnixNano() < b.began.Load()+int64(clockSkew)
}

// readTails reads the logs of the partitions to which the term's first direct events go.
func (l *lane) readTails(ctx context.Context) {
	b := &l.sink.readBack
	term := b.term.Load()
	if term == 0 || term == b.gaveUp.Load() {
		return
	}
	for _, pr := range l.parts {
		t := &pr.state.tail
		if t.term.Load() == term {
			continue
		}
		for _, i := range pr.part.todo {
			if ev := l.Events[i]; isDirect(ev) {
				l.readTail(ctx, pr, ev, term)
				l.began = time.Now() // what others confirmed meanwhile does not count
				break
			}
		}
	}
}

// readTail reads the log of a partition, of whose events this one is the first.
func (l *lane) readTail(ctx context.Context, pr *producer, first *event.Event, term int64) {
	b, t := &l.sink.readBack, &pr.state.tail
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.term.Load() == term {
		return // another lane has read it
	}
	t.stored.Store(nil)
	now := time.Now().UnixNano()
	if !b.first.CompareAndSwap(0, now) && now > b.first.Load()+int64(readBackEnds) {
		b.gaveUp.Store(term)
		l.noteUnread(pr, term, fmt.Errorf("%s have passed since the first was read: no other is", readBackEnds))
	} else if b.mayBeStored(first) {
		bounded, cancel := context.WithTimeout(ctx, readBackTime)
		defer cancel()
		found := tailDigests{digester: newDigester(), from: first.Position}
		var ok bool
		if found.want, ok = l.digestOf(first, found.digester); ok {
			err := l.sink.client.ReadTail(bounded, pr.Topic, pr.Partition, &found)
			for mayPass(err) && kafkaclient.Sleep(bounded, pauseMax) {
				l.sink.client.Control.RequestMetadata(pr.Topic)
				err = l.sink.client.ReadTail(bounded, pr.Topic, pr.Partition, &found)
			}
			switch {
			case ctx.Err() != nil:
				return // the call ends, and the next one reads
			case errors.Is(err, kafkago.TopicAuthorizationFailed):
				b.gaveUp.Store(term) // nor may it read the others
				l.noteUnread(pr, term, err)
			case bounded.Err() != nil:
				l.noteUnread(pr, term, fmt.Errorf("it takes longer than %s: %w", readBackTime, err))
			case err != nil:
				l.noteUnread(pr, term, err)
			case found.Found():
				t.stored.Store(&found.stored)
			}
		}
	}
	t.term.Store(term)
}

// mayPass reports whether an error may pass soon, as when a leader is away and another is chosen.
// Too few replicas may stay so for hours, and one that is slow to confirm (RequestTimedOut) would
// keep the broker's other logs from being read.
func mayPass(err error) bool {
	if code, ok := errors.AsType[kafkago.Error](err); ok {
		v := verdictOf(int16(code))
		return v.action == actionResend && v.reason != sink.TooFewReplicas && code != kafkago.RequestTimedOut
	}
	_, network := errors.AsType[net.Error](err)
	return network || errors.Is(err, io.EOF)
}

// noteUnread logs, once in a term, why a partition's log was not read.
func (l *lane) noteUnread(pr *producer, term int64, err error) {
	if l.sink.readBack.told.Swap(term) == term {
		return
	}
	fields := []zap.Field{zap.String("partition", partitionName(pr.shownTopic(), pr.Partition)), zap.String("err", oneLine(err))}
	if errors.Is(err, kafkago.TopicAuthorizationFailed) {
		fields = append(fields, zap.String("fix", "allow Read on the topics, or set sink.kafka.read_back to false"))
	}
	l.sink.cfg.Log.Info("cannot read what Kafka has: some events of before the start may be sent again", fields...)
}

// isStored reports whether an event is in the partition's log already, and confirms it then. The
// first event that is not ends the search.
func (l *lane) isStored(pr *producer, i int) bool {
	t, ev := &pr.state.tail, l.Events[i]
	stored, term := t.stored.Load(), l.sink.readBack.term.Load()
	if stored == nil || t.term.Load() != term || !isDirect(ev) {
		return false // what an earlier term has read may be gone
	}
	if pr.foundIn != term {
		pr.foundIn, pr.foundAt = term, -1
	}
	if l.sink.readBack.mayBeStored(ev) {
		if d, ok := l.digestOf(ev, newDigester()); ok {
			if at, ok := (*stored)[d]; ok && at > pr.foundAt {
				pr.foundAt = at
				l.Outcomes[i].State = sink.Confirmed
				l.sink.readBack.noteFound(l.sink.cfg.Log)
				return true
			}
		}
	}
	t.stored.Store(nil)
	return false
}

// noteFound counts an event that was found, and logs how many there are, in one line a second.
func (b *readBack) noteFound(log *zap.Logger) {
	b.found.Add(1)
	if b.pending.Add(1) == 1 {
		time.AfterFunc(foundPause, func() { b.tellFound(log) })
	}
}

// tellFound logs how many events were found since it did so last.
func (b *readBack) tellFound(log *zap.Logger) {
	if n := b.pending.Swap(0); n > 0 {
		log.Info("events were in Kafka already, and are not sent again", zap.Int64("events", n))
	}
}

// digestOf is the digest of the record that an event makes. ok is false when it makes none.
func (l *lane) digestOf(ev *event.Event, by digester) (d digest, ok bool) {
	m, large := &l.builder, l.sink.layout.Large
	for alone := large.IsLarge(ev); ; alone = true {
		large.Enter(&m.record, alone)
		fault := m.Build(ev)
		if ok = fault == nil; ok {
			by.begin(m.Time, m.Key, m.Value)
			for i := range m.record.Headers {
				by.header(m.record.Headers[i].Name, m.record.Headers[i].Value)
			}
			d = by.sum()
		}
		if alone {
			m.Forget()
		}
		if again := large.Leave(&m.record, alone); ok || !again {
			return d, ok
		}
	}
}

// tailDigests collects the records at the end of a log that may be events of the term.
type tailDigests struct {
	digester
	from    event.Position   // that of the first event
	want    digest           // its record
	stored  map[digest]int64 // the highest offset of each
	reached bool             // a record from before the first event was seen, or its own
}

var _ kafkaclient.TailReader = (*tailDigests)(nil)

// Begin implements kafkaclient.TailReader.
func (f *tailDigests) Begin() { f.stored, f.reached = map[digest]int64{}, false }

// See implements kafkaclient.TailReader. Each event of the relay's own format has a position. What
// lies before the first event is not remembered: a topic may have very many partitions.
func (f *tailDigests) See(m *kafkago.Message) (ours bool) {
	position := ""
	f.begin(m.Time.UnixMilli(), m.Key, m.Value)
	for _, h := range m.Headers {
		if h.Key == sink.HeaderPosition {
			ours, position = true, string(h.Value)
		}
		f.header(h.Key, h.Value)
	}
	if at, err := event.ParsePosition(position); err == nil {
		f.reached = f.reached || !f.from.Less(at)
		if !at.Less(f.from) {
			d := f.sum()
			f.stored[d] = max(f.stored[d], m.Offset)
		}
	}
	return ours
}

// Enough implements kafkaclient.TailReader.
func (f *tailDigests) Enough() bool { return f.reached }

// Found implements kafkaclient.TailReader. Without the first event nothing is found (B3).
func (f *tailDigests) Found() bool {
	_, ok := f.stored[f.want]
	return ok
}

// digester makes digests of records. The traceparent is left out: each attempt has its own span.
type digester struct{ hash.Hash }

func newDigester() digester { return digester{sha256.New()} }

func (d digester) begin(time int64, key, value []byte) {
	d.Reset()
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(time))
	d.Write(b[:])
	d.field(key)
	d.field(value)
}

func (d digester) header(name string, value []byte) {
	if name != sink.HeaderTraceparent {
		d.field([]byte(name))
		d.field(value)
	}
}

// field adds a value with its length in front; that of null is -1.
func (d digester) field(v []byte) {
	n := int64(len(v))
	if v == nil {
		n = -1
	}
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(n))
	d.Write(b[:])
	d.Write(v)
}

func (d digester) sum() (sum digest) {
	d.Sum(sum[:0])
	return sum
}
