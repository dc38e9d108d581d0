package kafka

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/kafkaclient"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// The addresses lead to another cluster, where the relay's producer id is somebody else's: its
// batch looks like one that was stored there. Nothing is sent to that cluster; and all goes on when
// the addresses lead back.
func TestOtherCluster(t *testing.T) {
	inMemory(t, 1, 1, Config{}, func(m *memory, r *running) {
		m.change(func() { m.cluster = "A" })
		lead := func(to string, topics map[string]*memTopic) {
			m.change(func() { m.cluster, m.topics = to, topics })
			m.cut()
		}
		first, second := eventFor(0, 1), eventFor(0, 1)
		wantConfirmed(t, r.send(first))
		ours := m.topics
		theirs := map[string]*memTopic{"events": {limit: 1 << 20, partitions: []*memPartition{{leader: 1, producers: map[int64]memProducer{
			m.producer: {batches: []memBatch{{0, 0, []string{string(first.ID)}}, {1, 1, []string{string(second.ID)}}}},
		}}}}}
		lead("B", theirs)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if got, err := r.try(ctx, second); err == nil || got[0].State != sink.Unsent && got[0].State != sink.Unknown {
			t.Errorf("%v %v", got, err)
		}
		if up, why := r.Up(); up || !strings.Contains(why, "is of cluster B, the relay has begun with A") || !strings.Contains(why, "restart the relay") {
			t.Errorf("up %v, %s", up, why)
		}
		lead("A", ours)
		wantConfirmed(t, r.send(second))
		goBy(kafkaclient.RefreshEvery)
		if up, why := r.Up(); !up {
			t.Error(why)
		}
		if n := len(m.appends); n != 2 {
			t.Errorf("%d records", n)
		}
	})
}

// A broker that does not name its cluster is believed, also after others did; nor is it named by
// one that has no id yet.
func TestNamelessCluster(t *testing.T) {
	inMemory(t, 1, 1, Config{}, func(m *memory, r *running) {
		for _, name := range []string{kafkaclient.RedpandaStarting, "", "A", ""} {
			m.change(func() { m.cluster = name })
			m.cut()
			wantConfirmed(t, r.send(few(1)...))
		}
	})
}
