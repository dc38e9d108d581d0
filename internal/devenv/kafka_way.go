package devenv

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// KafkaWay is a way to a cluster through proxies of its own: a listener of each node that is
// advertised at a Proxy. A client that begins there is told of no other address, so it never leaves
// the way.
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

// The shared cluster's ways are lent to tests of all processes. A way is a file and two addresses:
// where its listener is advertised, and where it is. Who holds the file's lock has the way, also
// while its proxy is cut and the port is free; the kernel takes it back from a process that dies.
// The ports are reserved by the process that started the cluster.
const (
	sharedWays   = 8
	waysVariable = "CDC_RELAY_TEST_KAFKA_WAYS" // file=advertised=listener,file=advertised=listener
)

// lendWays closes the cluster's own proxies: whoever takes a way starts one at the same address.
func (k *Kafka) lendWays() {
	for _, n := range k.nodes {
		for i, p := range n.proxies {
			p.Close()
			file := filepath.Join(n.dir, fmt.Sprintf("way%d", i))
			k.ways = append(k.ways, strings.Join([]string{file, p.Addr(), n.addr(proxiedListener(i))}, "="))
		}
	}
}

// sharedWayed is the cluster whose ways are lent, with them: the shared one, or one of this process
// when an address was given without ways, because that advertises its own addresses.
var sharedWayed = sync.OnceValues(func() (*Kafka, error) {
	if given := os.Getenv(waysVariable); given != "" {
		return &Kafka{bootstrap: strings.Split(os.Getenv("CDC_RELAY_TEST_KAFKA"), ","), ways: strings.Split(given, ",")}, nil
	}
	if k, err := sharedKafka(); err != nil || len(k.ways) > 0 {
		return k, err
	}
	return closedInTheEnd(startKafkaForTests(context.Background()))
})

// SharedKafkaWay is the shared cluster for tests that break the way to it, and a way that is this
// test's alone until it ends. There are eight: a run with more tests at a time waits here.
func SharedKafkaWay(t testing.TB) (*Kafka, *KafkaWay) {
	t.Helper()
	k := server(t, sharedWayed)
	var way string
	err := poll(t.Context(), 20*time.Millisecond, func() (bool, error) {
		for _, way = range k.ways {
			file, _, _ := strings.Cut(way, "=")
			lock, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600)
			if err != nil {
				return false, err
			}
			if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
				t.Cleanup(func() { lock.Close() })
				return true, nil
			}
			lock.Close()
		}
		return false, nil // until another test ends
	})
	if err != nil {
		t.Fatalf("take a way to Kafka: %v", err)
	}
	parts := strings.Split(way, "=")
	p, err := startProxyAt(parts[1], parts[2])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return k, &KafkaWay{proxies: []*Proxy{p}}
}
