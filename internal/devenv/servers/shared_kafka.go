// Ways to the shared Kafka, each for one test at a time.

package servers

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
)

// sharedWayed is the cluster whose ways are lent, with them: the shared one, or one of this process
// when an address was given without ways, because that advertises its own addresses.
var sharedWayed = sync.OnceValues(func() (*kafkaserver.Kafka, error) {
	if given := os.Getenv(kafkaserver.WaysVariable); given != "" {
		return &kafkaserver.Kafka{Bootstrap: strings.Split(os.Getenv("CDC_RELAY_TEST_KAFKA"), ","), Ways: strings.Split(given, ",")}, nil
	}
	if k, err := sharedKafka(); err != nil || len(k.Ways) > 0 {
		return k, err
	}
	return closedInTheEnd(startKafkaForTests(context.Background()))
})

// SharedKafkaWay is the shared cluster for tests that break the way to it, and a way that is this
// test's alone until it ends. There are eight: a run with more tests at a time waits here.
func SharedKafkaWay(t testing.TB) (*kafkaserver.Kafka, *kafkaserver.Way) {
	t.Helper()
	k := server(t, sharedWayed)
	var way string
	err := processes.Poll(t.Context(), 20*time.Millisecond, func() (bool, error) {
		for _, way = range k.Ways {
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
	p, err := netproxy.StartProxyAt(parts[1], parts[2])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return k, &kafkaserver.Way{Proxies: []*netproxy.Proxy{p}}
}
