package kafka

import (
	"bytes"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/kafkaclient"
	"github.com/cdc-relay/cdc-relay/internal/kafkaclient/kafkatest"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// partRig is a lane with a topic of one partition, worked by hand: there is no broker and no
// goroutine. Node 1 leads.
type partRig struct {
	t        *testing.T
	lane     *lane
	outcomes []sink.Outcome
	id       int64
}

// withPart runs a test of one part, in fake time that passes only when the test sleeps.
func withPart(t *testing.T, test func(d *partRig)) {
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Config{Brokers: []string{"1:9092"}, RecordConfig: toTopic(t, "events"), ConfirmTimeout: 10 * time.Second})
		must(t, err)
		d := &partRig{t: t, lane: s.lanes[laneOfMany], id: 100}
		d.know(kafkaclient.Leader{Node: 1, Epoch: 5})
		test(d)
	})
}

// know has metadata say who leads each partition.
func (d *partRig) know(leaders ...kafkaclient.Leader) {
	s := d.lane.sink
	was := s.client.Metadata.Load()
	s.client.Metadata.Store(&kafkaclient.Metadata{
		Version: was.Version + 1, At: time.Now(), Brokers: map[int32]string{1: "1:9092", 2: "2:9092"}, Stale: make(chan struct{}),
		Topics: map[string]*kafkaclient.Topic{"events": {Name: "events", Partitions: leaders, InSync: make([]bool, len(leaders)), Version: was.Version + 1, At: time.Now()}},
	})
	close(was.Stale)
}

// begin begins a call, and brings it on its way.
func (d *partRig) begin(events ...*event.Event) {
	d.outcomes = make([]sink.Outcome, len(events))
	d.lane.beginCall(events, d.outcomes)
	if !d.lane.isMetadataKnown() {
		d.t.Fatal("the metadata is not known")
	}
	d.lane.splitIntoParts()
	d.step()
}

func (d *partRig) step() {
	d.lane.metadata = d.lane.sink.client.Metadata.Load()
	for _, s := range d.lane.parts {
		if d.lane.advancePart(s, true); s.faults() != "" {
			d.t.Error(s.faults())
		}
	}
}

func (d *partRig) producer() *producer { return d.lane.routes["events"].producers[0] }

// end ends the call as its context does.
func (d *partRig) end() {
	d.lane.interruptParts()
	d.lane.endCall()
}

// attempt is what was given to a broker.
type attempt struct {
	node     int32
	bytes    []byte
	producer int64
	sequence int32
	ids      []string
}

func (a attempt) String() string {
	return fmt.Sprintf("producer %d, sequence %d, to %d: %v", a.producer, a.sequence, a.node, a.ids)
}

// taken takes what waits for a worker, giving the producer an id when it asks for one.
func (d *partRig) taken() attempt {
	d.t.Helper()
	s := d.producer()
	if d.lane.sink.client.Control.Withdraw(&s.ProducerBatch) {
		d.id++
		d.answered(kafkaclient.Answer{Kind: kafkaclient.Identity, Producer: d.id})
	}
	if s.part.phase != phaseOut || s.part.queuedAt == nil || !s.part.queuedAt.Withdraw(&s.ProducerBatch) {
		d.t.Fatalf("nothing is on its way: phase %d", s.part.phase)
	}
	b := kafkatest.Decode(d.t, s.Bytes)
	a := attempt{node: s.part.queuedAt.Node, bytes: bytes.Clone(s.Bytes), producer: b.ProducerID, sequence: b.BaseSequence}
	for _, r := range b.Records {
		a.ids = append(a.ids, string(r.Headers[0].Value))
	}
	return a
}

// answered gives the answer to what was taken.
func (d *partRig) answered(a kafkaclient.Answer) {
	s := d.producer()
	s.Answer = a
	d.lane.applyAnswer(s)
	d.step()
}

// unidentified answers with an error if the producer asks for an id.
func (d *partRig) unidentified(code kafkago.Error) {
	if d.lane.sink.client.Control.Withdraw(&d.producer().ProducerBatch) {
		d.answered(kafkaclient.Answer{Kind: kafkaclient.Identity, Code: int16(code)})
	}
}

// othersConfirm has another partition confirm a batch.
func (d *partRig) othersConfirm() {
	d.lane.sink.states.noteConfirmed(d.lane.sink.states.stateOf("others", 0))
}

func (d *partRig) code(code kafkago.Error) {
	d.answered(kafkaclient.Answer{Kind: kafkaclient.Answered, Code: int16(code)})
}

// waits wants the part to wait, and lets time go by until it does not.
func (d *partRig) waits() {
	d.t.Helper()
	p := &d.producer().part
	if p.phase != phaseWaiting {
		d.t.Fatalf("phase %d, want a wait", p.phase)
	}
	for range 100 {
		goBy(pauseMin)
		if d.step(); p.phase != phaseWaiting {
			return
		}
	}
	d.t.Fatal("waits for ever")
}

func (d *partRig) Want(state sink.State, reason sink.Reason, class sink.Class) {
	d.t.Helper()
	for i, o := range d.outcomes {
		if o.State != state || o.Fault != nil && (o.Fault.Reason != reason || o.Fault.Class != class) {
			d.t.Errorf("event %d is %s %v, want %s %s %s", i, o.State, o.Fault, state, class, reason)
		}
	}
}

func few(n int) (all []*event.Event) {
	for range n {
		all = append(all, newEvent("", fmt.Sprint("key-", lastPosition.Load())))
	}
	return all
}

// Every error code, as the answer to the first attempt of a batch of four: what happens to it, and
// under which numbers other records go afterwards.
func TestAnswers(t *testing.T) {
	type reaction uint8
	const (
		confirms reaction = iota
		sendsAgain
		renews
		halves
		refuses
	)
	for code := kafkago.Error(-1); code <= 120; code++ {
		t.Run(fmt.Sprint(int(code)), func(t *testing.T) {
			want, doubt := sendsAgain, true
			var reason sink.Reason
			switch code {
			case 0:
				want, doubt = confirms, false
			case 46: // not of what was never sent before
				want, doubt = renews, false
			case 45, 47, 48, 49, 51, 59, 90:
				want, doubt = renews, false
			case 10, 18, 32, 42, 44, 87:
				want, doubt = halves, false
			case 2: // tried again twice, then halved
				want, doubt = sendsAgain, false
			case 17, 35, 43, 76:
				want, doubt, reason = refuses, false, sink.Invalid
			case 19: // nothing was appended
				want, doubt = sendsAgain, false
			case 29, 31, 53:
				want, doubt, reason = refuses, false, sink.NotPermitted
			default:
			}
			withPart(t, func(d *partRig) {
				d.begin(few(4)...)
				first := d.taken()
				d.code(code)
				switch want {
				case confirms:
					d.Want(sink.Confirmed, "", 0)
				case sendsAgain:
					d.waits()
					if again := d.taken(); !bytes.Equal(again.bytes, first.bytes) {
						t.Errorf("sent %v again as %v", first, again)
					}
				case renews:
					again := d.taken()
					if again.producer == first.producer || again.sequence != 0 || fmt.Sprint(again.ids) != fmt.Sprint(first.ids) {
						t.Errorf("sent %v again as %v", first, again)
					}
					first = again
				case halves:
					if again := d.taken(); fmt.Sprint(again.ids) != fmt.Sprint(first.ids[:len(again.ids)]) || len(again.ids) > 3 {
						t.Errorf("sent %v, then %v", first.ids, again.ids)
					}
				case refuses:
					d.Want(sink.Rejected, reason, sink.Destination)
				}
				// What was sent then is not known to be anywhere, and the call ends.
				if d.producer().part.phase == phaseOut {
					d.answered(kafkaclient.Answer{Kind: kafkaclient.Unsent, Why: io.EOF})
				}
				d.end()
				d.begin(few(4)...)
				switch other := d.taken(); {
				case doubt && other.producer == first.producer:
					t.Errorf("other records went under the numbers of %v: %v", first, other)
				case !doubt && other.producer != first.producer:
					t.Errorf("a new producer %d for nothing", other.producer)
				case code == 0 && other.sequence != 4, code != 0 && other.sequence != 0:
					t.Errorf("the next sequence number is %d", other.sequence)
				}
			})
		})
	}
}

// An attempt that is not answered leaves doubt; one that was not made leaves none.
func TestLost(t *testing.T) {
	for _, kind := range []kafkaclient.AnswerKind{kafkaclient.Lost, kafkaclient.Unsent} {
		withPart(t, func(d *partRig) {
			d.begin(few(3)...)
			first := d.taken()
			d.answered(kafkaclient.Answer{Kind: kind, Why: io.EOF})
			if kind == kafkaclient.Unsent {
				d.waits()
			}
			if again := d.taken(); !bytes.Equal(again.bytes, first.bytes) {
				t.Errorf("sent %v again as %v", first, again)
			}
			d.answered(kafkaclient.Answer{Kind: kafkaclient.Unsent, Why: io.EOF})
			d.end()
			wantState, wantNew := sink.Unsent, false
			if kind == kafkaclient.Lost {
				wantState, wantNew = sink.Unknown, true
			}
			d.Want(wantState, "", 0)
			d.begin(few(3)...)
			if other := d.taken(); (other.producer != first.producer) != wantNew {
				t.Errorf("after an answer of kind %d: %v, then %v", kind, first, other)
			}
		})
	}
}

// What a client has when its call ends goes to nobody else: the next call sends its events under
// another producer id, and the answer that comes late changes nothing.
func TestLateAnswer(t *testing.T) {
	for _, late := range []kafkaclient.Answer{
		{Kind: kafkaclient.Answered},
		{Kind: kafkaclient.Answered, Code: int16(kafkago.RequestTimedOut)},
		{Kind: kafkaclient.Answered, Code: int16(kafkago.OutOfOrderSequenceNumber)},
		{Kind: kafkaclient.Lost, Why: io.EOF},
		{Kind: kafkaclient.Unsent, Why: io.EOF},
	} {
		withPart(t, func(d *partRig) {
			events := few(4)
			d.begin(events[:3]...)
			first, former := d.taken(), d.producer()
			d.end()
			d.Want(sink.Unknown, "", 0)
			d.begin(events...)
			next := d.taken()
			if next.producer == first.producer || next.sequence != 0 || len(next.ids) != 4 {
				t.Fatalf("first %v, then %v", first, next)
			}
			former.Answer = late
			d.lane.applyAnswer(former)
			d.Want(sink.Unsent, "", 0)
			d.code(0)
			d.Want(sink.Confirmed, "", 0)
		})
	}
}

// A destination that refuses is not blamed for a batch in doubt before ConfirmTimeout has passed,
// while others confirm. When its events come again they go under another producer id.
func TestDoubtIsNotRejected(t *testing.T) {
	withPart(t, func(d *partRig) {
		events := few(6)
		d.begin(events...)
		first := d.taken()
		d.code(20)
		began := time.Now()
		for time.Since(began) < 9*time.Second {
			d.waits()
			if again := d.taken(); !bytes.Equal(again.bytes, first.bytes) {
				t.Fatal("other bytes")
			}
			d.code(19)
			d.Want(sink.Unsent, "", 0)
			d.othersConfirm()
		}
		goBy(time.Second)
		d.step()
		d.taken()
		d.code(19)
		d.Want(sink.Rejected, sink.TooFewReplicas, sink.Destination)
		d.end()
		d.begin(events...)
		if again := d.taken(); again.producer == first.producer {
			t.Errorf("sent %v again as %v", first, again)
		}
	})
}

// An answer that may accuse an event, once and not again before the partition is in trouble for
// other reasons, accuses the partition when that does not end; and so does a producer id that is
// not to be had.
func TestNoEventIsAccusedOverItsPartition(t *testing.T) {
	for name, answers := range map[string]func(d *partRig){
		"one answer of -1, then no leader": func(d *partRig) {
			d.taken()
			d.know(kafkaclient.Leader{Node: kafkaclient.None, Epoch: 6})
			d.code(-1)
		},
		"no producer id": func(d *partRig) {
			for _, code := range []kafkago.Error{-1, kafkago.UnsupportedVersion, kafkago.OutOfOrderSequenceNumber} {
				d.unidentified(code)
				d.waits()
			}
			d.unidentified(kafkago.InvalidRequest)
		},
	} {
		t.Run(name, func(t *testing.T) {
			withPart(t, func(d *partRig) {
				d.begin(few(2)...)
				answers(d)
				for began := time.Now(); d.producer().part.phase == phaseWaiting; {
					if time.Since(began) > time.Minute {
						t.Fatal("waits for ever")
					}
					d.othersConfirm()
					goBy(pauseMax)
					d.step()
					d.unidentified(kafkago.InvalidRequest)
				}
				d.Want(sink.Rejected, sink.NoLeader, sink.Destination)
			})
		})
	}
}

// A new leader is sent to at once; one that denies it leads, after a growing pause.
func TestLeaderMoves(t *testing.T) {
	withPart(t, func(d *partRig) {
		d.begin(few(1)...)
		if a := d.taken(); a.node != 1 {
			t.Errorf("sent to %d", a.node)
		}
		d.code(6)
		if d.step(); d.producer().part.phase != phaseWaiting {
			t.Error("sent again at once to who is not the leader")
		}
		d.know(kafkaclient.Leader{Node: kafkaclient.None, Epoch: 6})
		if d.step(); d.producer().part.phase != phaseWaiting {
			t.Error("sent to nobody")
		}
		d.know(kafkaclient.Leader{Node: 2, Epoch: 7})
		d.step()
		if a := d.taken(); a.node != 2 {
			t.Errorf("sent to %d", a.node)
		}
		pauses := []time.Duration{}
		for range 7 {
			d.code(6)
			began := time.Now()
			d.waits()
			d.taken()
			pauses = append(pauses, time.Since(began))
		}
		for i, want := range []int{10, 20, 40, 80, 160, 250, 250} {
			if got := pauses[i]; got != time.Duration(want)*time.Millisecond {
				t.Errorf("pause %d: %s, want %d ms", i, got, want)
			}
		}
		// What waits in the queue of who leads no more is taken back.
		d.code(6)
		d.waits()
		d.know(kafkaclient.Leader{Node: 1, Epoch: 8})
		d.step()
		if a := d.taken(); a.node != 1 {
			t.Errorf("sent to %d", a.node)
		}
	})
}

// Numbers do not begin again from 0.
func TestSequenceEnds(t *testing.T) {
	withPart(t, func(d *partRig) {
		d.begin(few(1)...)
		first := d.taken()
		d.code(0)
		d.end()
		d.producer().nextSequence = 1<<31 - 1<<20
		d.begin(few(1)...)
		d.taken()
		d.code(0)
		d.end()
		d.begin(few(1)...)
		if next := d.taken(); next.producer == first.producer || next.sequence != 0 {
			t.Errorf("then %v", next)
		}
	})
}

// The topic is deleted while a batch waits.
func TestTopicIsGone(t *testing.T) {
	withPart(t, func(d *partRig) {
		d.begin(few(3)...)
		d.taken()
		d.code(3)
		s := d.lane.sink
		was := s.client.Metadata.Load()
		s.client.Metadata.Store(&kafkaclient.Metadata{Version: was.Version + 1, Stale: make(chan struct{}), Topics: map[string]*kafkaclient.Topic{
			"events": {Name: "events", Code: 3, Version: was.Version + 1},
		}})
		d.step()
		d.Want(sink.Rejected, sink.NoTopic, sink.Destination)
	})
}

// What is gone from behind the events in doubt leaves them in doubt.
func TestGoneBehindDoubt(t *testing.T) {
	withPart(t, func(d *partRig) {
		d.begin(few(4)...)
		d.taken()
		s := d.producer()
		s.dropBatch()
		s.part.phase, s.part.doubted, s.part.suspects = phaseReady, 1, 2
		d.lane.Reject(2, &sink.Fault{})
		if p := &s.part; d.lane.fillBatch(s) != phaseReady || s.batch.Count() != 3 || p.doubted != 1 || p.suspects != 2 {
			t.Errorf("%d records, %d in doubt, %d suspects", s.batch.Count(), p.doubted, p.suspects)
		}
		s.dropBatch()
		d.lane.Reject(0, &sink.Fault{})
		if p := &s.part; d.lane.fillBatch(s) != phaseReady || s.batch.Count() != 2 || p.doubted != 0 || p.suspects != 1 {
			t.Errorf("%d records, %d in doubt, %d suspects", s.batch.Count(), p.doubted, p.suspects)
		}
	})
}

// A record larger than any merged request that costs two connections in a row is too large; what is
// smaller never is.
func TestCutConnections(t *testing.T) {
	for _, c := range []struct {
		size, events int
		cut          bool
		want         sink.State
	}{
		{kafkaclient.MaxRequest + 1, 1, true, sink.Rejected},
		{kafkaclient.MaxRequest + 1, 1, false, sink.Unsent}, // timeouts, say
		{kafkaclient.MaxRequest / 2, 1, true, sink.Unsent},
	} {
		withPart(t, func(d *partRig) {
			ev := few(1)[0]
			ev.Payload = make([]byte, c.size)
			d.begin(ev)
			for i := range 4 {
				d.taken()
				d.answered(kafkaclient.Answer{Kind: kafkaclient.Lost, Why: io.EOF, Cut: c.cut})
				if d.outcomes[0].State != sink.Unsent {
					if i != 1 {
						t.Errorf("%+v: after %d connections", c, i+1)
					}
					break
				}
				if d.producer().part.phase == phaseWaiting {
					d.waits()
				}
			}
			d.Want(c.want, sink.TooLarge, sink.Permanent)
		})
	}
}

// Large batches are in memory until they are answered: there are only so many at a time. The others
// wait, and go when there is room. One that is larger than all of it goes alone.
func TestLargeBatchesWaitForRoom(t *testing.T) {
	withPart(t, func(d *partRig) {
		s := d.lane.sink
		large := few(1)
		large[0].Payload = bytes.Repeat([]byte("x"), 9<<20)
		s.heldBytes.Store(maxHeld - 1<<20)
		if d.begin(large...); d.producer().part.phase != phaseCrowded || d.producer().batch != nil {
			t.Fatalf("phase %d, want a wait for room", d.producer().part.phase)
		}
		if at := d.producer().part.wakeAt(); !at.After(time.Now()) {
			t.Error("it is not looked at again")
		}
		s.heldBytes.Store(0)
		goBy(pauseMin)
		d.step()
		d.taken()
		if held := s.heldBytes.Load(); held < 9<<20-smallBatch {
			t.Errorf("%d bytes are held", held)
		}
		d.code(0)
		d.Want(sink.Confirmed, "", 0)
		if held := s.heldBytes.Load(); held != 0 {
			t.Errorf("%d bytes are held after the answer", held)
		}
		d.end()
		large[0].Payload = bytes.Repeat([]byte("x"), maxHeld)
		d.begin(large...)
		d.taken()
		d.end()
		if held := s.heldBytes.Load(); held != 0 {
			t.Errorf("%d bytes are held after a call that was ended", held)
		}
	})
}
