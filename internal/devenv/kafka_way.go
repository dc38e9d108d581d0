package devenv

import (
	"context"
	"sync"
	"testing"
	"time"
)

// KafkaWay is a way to a cluster through proxies of its own: a listener of each node that is advertised at a Proxy. A
// client that begins there is told of no other address, so it never leaves the way.
type KafkaWay struct{ proxies []*Proxy }

// Way is one of the ways of a cluster, from 0 to KafkaOptions.Proxied - 1.
func (k *Kafka) Way(i int) *KafkaWay {
	w := &KafkaWay{}
	for _, n := range k.nodes {
		w.proxies = append(w.proxies, n.proxies[i])
	}
	return w
}

// Brokers are the addresses of the way's proxies, one of each node.
func (w *KafkaWay) Brokers() []string {
	var all []string
	for _, p := range w.proxies {
		all = append(all, p.Addr())
	}
	return all
}

// Proxy is the one in front of a node, 1 being the first.
func (w *KafkaWay) Proxy(node int) *Proxy { return w.proxies[node-1] }

// mend takes back all that was done to the way, and ends its connections.
func (w *KafkaWay) mend() error {
	for _, p := range w.proxies {
		p.Cut()
		p.Spoil(nil)
		for _, d := range []Direction{Up, Down} {
			p.Release(d)
		}
		p.Delay(0)
		p.Trickle(0)
		if err := p.Mend(); err != nil {
			return err
		}
	}
	return nil
}

// sharedWays is how many tests may have a way to the shared cluster at a time.
const sharedWays = 4

// wayed is a cluster and those of its ways that nobody has.
type wayed struct {
	kafka *Kafka
	free  chan *KafkaWay
}

var sharedWayedKafka = sync.OnceValues(func() (w wayed, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if w.kafka, err = StartKafka(ctx, KafkaOptions{Proxied: sharedWays}); err != nil {
		return w, err
	}
	shared.add(w.kafka.Close)
	w.free = make(chan *KafkaWay, sharedWays)
	for i := range sharedWays {
		w.free <- w.kafka.Way(i)
	}
	return w, nil
})

// SharedKafkaWay is the cluster of one broker that all tests of the process use that break the way to it, and a way that
// is this test's alone until it ends. The cluster is never a given one: that would advertise its own addresses.
func SharedKafkaWay(t testing.TB) (*Kafka, *KafkaWay) {
	t.Helper()
	w, err := sharedWayedKafka()
	if err != nil {
		t.Fatal(err)
	}
	way := <-w.free // those who have one end
	t.Cleanup(func() {
		if err := way.mend(); err != nil {
			t.Error(err)
		}
		w.free <- way
	})
	return w.kafka, way
}
