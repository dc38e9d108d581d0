package kafka

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/segmentio/kafka-go/compress"
	"github.com/segmentio/kafka-go/protocol/produce"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/kafkaclient"
)

// repeated are events that a term begins with: they were committed before it, and each comes twice.
func repeated(n int, topic string) []*event.Event {
	all := events(n, topic)
	for _, ev := range all {
		ev.CommitTime = time.Now()
	}
	return all
}

// nextTerm is another relay's sink, with which a term begins.
func nextTerm(t *testing.T, k *kafkaserver.Kafka) *running {
	r := start(t, Config{DialOptions: kafkaclient.DialOptions{}, Brokers: k.Brokers(), ReadBack: true, Compression: "zstd"})
	r.Lead(true)
	t.Cleanup(func() { r.Lead(false) })
	return r
}

// TestReadBack: what a former relay has stored is not sent again, whoever of the two compresses,
// and the rest is.
func TestReadBack(t *testing.T) {
	t.Parallel()
	k := servers.SharedKafka(t)
	topic := topicWith(t, k, 3, 1, nil)
	all := repeated(1500, topic)
	former := start(t, Config{Brokers: k.Brokers(), Compression: "lz4"})
	for call := range slices.Chunk(all[:1200], 100) {
		wantConfirmed(t, former.send(call...))
	}
	next := nextTerm(t, k)
	for call := range slices.Chunk(all[200:], 300) {
		wantConfirmed(t, next.send(call...))
	}
	wantStored(t, k, topic, all...)
	if n := next.readBack.found.Load(); n != 1000 {
		t.Errorf("%d events were found, want 1000", n)
	}
}

// TestReadBackSendsAgain: whatever is not surely the same is sent, and what follows it in its
// partition too.
func TestReadBackSendsAgain(t *testing.T) {
	t.Parallel()
	k := servers.SharedKafka(t)
	for name, tc := range map[string]struct {
		change func([]*event.Event) []*event.Event
		stored int // records in the end, of ten that are sent twice
	}{
		"nothing else":     {func(all []*event.Event) []*event.Event { return all }, 10},
		"another payload":  {func(all []*event.Event) []*event.Event { all[4].Payload = []byte(`{"order": 2}`); return all }, 16},
		"another time":     {func(all []*event.Event) []*event.Event { all[4].Time = all[4].Time.Add(time.Second); return all }, 16},
		"another position": {func(all []*event.Event) []*event.Event { all[4].Position.Index++; return all }, 16},
		"the first was not sent": {func(all []*event.Event) []*event.Event {
			return slices.Insert(all, 0, repeated(1, string(all[0].Columns[0]))...)
		}, 21},
		"an operator sends again": {func(all []*event.Event) []*event.Event { all[4].Replay = true; return all }, 11},
		"a row of the retry table": {func(all []*event.Event) []*event.Event {
			all[4].Route = &event.Route{Name: all[4].Columns[0]}
			return all
		}, 11},
		"committed later": {func(all []*event.Event) []*event.Event {
			for _, ev := range all {
				ev.CommitTime = time.Now().Add(time.Hour)
			}
			return all
		}, 20},
	} {
		t.Run(name, func(t *testing.T) {
			topic := topicWith(t, k, 1, 1, nil)
			all := repeated(10, topic)
			wantConfirmed(t, start(t, Config{Brokers: k.Brokers()}).send(all...))
			wantConfirmed(t, nextTerm(t, k).send(tc.change(all)...))
			wantRecords(t, k, topic, tc.stored)
		})
	}
}

// TestReadBackKeepsTheNewest: where a relay that could not read back has sent a part twice (E1 E2
// E1), E2 is sent again: the log would end with E1.
func TestReadBackKeepsTheNewest(t *testing.T) {
	t.Parallel()
	k := servers.SharedKafka(t)
	topic := topicWith(t, k, 1, 1, nil)
	all := repeated(2, topic)
	wantConfirmed(t, start(t, Config{Brokers: k.Brokers()}).send(all...))
	wantConfirmed(t, start(t, Config{Brokers: k.Brokers()}).send(all[0]))
	next := nextTerm(t, k)
	wantConfirmed(t, next.send(all...))
	wantRecords(t, k, topic, 4)
	if n := next.readBack.found.Load(); n != 1 {
		t.Errorf("%d events were found, want the first", n)
	}
}

// TestReadBackOfAnEarlierTerm: what was read in one term says nothing in the next.
func TestReadBackOfAnEarlierTerm(t *testing.T) {
	t.Parallel()
	k := servers.SharedKafka(t)
	topic := topicWith(t, k, 1, 1, nil)
	all := repeated(10, topic)
	wantConfirmed(t, start(t, Config{Brokers: k.Brokers()}).send(all...))
	next := nextTerm(t, k)
	wantConfirmed(t, next.send(all[:5]...))
	wantRecords(t, k, topic, 10)
	next.Lead(true)
	next.readBack.gaveUp.Store(2)
	wantConfirmed(t, next.send(all[5:]...))
	wantRecords(t, k, topic, 15)
}

// TestReadBackAsksForAConfirm: a record that was never confirmed is confirmed, and not sent again.
func TestReadBackAsksForAConfirm(t *testing.T) {
	t.Parallel()
	k := servers.SharedKafka(t)
	topic := topicWith(t, k, 1, 1, nil)
	ev := repeated(1, topic)[0]
	storeUnconfirmed(t, k, topic, ev)
	wantRecords(t, k, topic, 1)
	next := nextTerm(t, k)
	wantConfirmed(t, next.send(ev))
	wantStored(t, k, topic, ev)
	if n := next.readBack.found.Load(); n != 1 {
		t.Errorf("%d events were found", n)
	}
}

// storeUnconfirmed appends an event's record with acks=1: it is what a broker has appended before
// it noticed that too few replicas are in sync.
func storeUnconfirmed(t *testing.T, k *kafkaserver.Kafka, topic string, ev *event.Event) {
	t.Helper()
	layout, err := newLayout(&RecordConfig{Topic: parseTemplate(t, topic)})
	must(t, err)
	m, b := newBuilder(layout), kafkaclient.NewBatch(compress.None)
	if fault := m.Build(ev); fault != nil {
		t.Fatal(fault)
	}
	b.Add(&m.Record)
	c := dialReal(t, kafkaclient.DialOptions{}, k.Brokers()[0])
	id, epoch := producerID(t, c)
	await.Until(t, "the leader to take a record", func() bool {
		return slices.ContainsFunc(k.Brokers(), func(addr string) bool {
			c, err := kafkaclient.Dial(t.Context(), &kafkaclient.DialOptions{}, addr)
			if err != nil {
				return false // it is stopped
			}
			defer c.Close()
			req := request(topic, 0, b.Seal(id, epoch, 0))
			req.Acks = 1
			res, err := kafkaclient.RoundTripAs[*produce.Response](t.Context(), c, within, req)
			return err == nil && res.Topics[0].Partitions[0].ErrorCode == 0
		})
	})
}

func wantRecords(t *testing.T, k *kafkaserver.Kafka, topic string, want int) {
	t.Helper()
	records, err := k.Records(await.Context(t), topic)
	must(t, err)
	if len(records) != want {
		t.Errorf("%d records, want %d: %s", len(records), want, fmt.Sprint(records))
	}
}
