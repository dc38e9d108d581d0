//go:build testall

// The matrix: three faults at five points.

package faults

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
)

// broker is RabbitMQ or Kafka, as the matrix needs it. The consumers that stop in a publish have a
// way to it through a proxy.
type broker interface {
	// job adds the broker's address on the way of the point.
	job(job) job
	// prepare declares what belongs to the service.
	prepare(t *testing.T, service string, in *inbox.Inbox)
	publish(t *testing.T, service string, messages []message)
	// delivered returns when the consumer has all messages of the service.
	delivered(t *testing.T, service string)
	// hold keeps back what the broker answers on the way of a point, published returns when the
	// broker has what the consumer publishes then, and release lets the answers go.
	hold(point string)
	published(t *testing.T, service, point string)
	release(point string)
	// restart kills the broker and starts it again. Answers that are kept back are lost.
	restart(t *testing.T)
	// kept returns when n messages of the service, or more, will be delivered again, its consumer
	// having been killed.
	kept(t *testing.T, service string, n int)
	// left says what waits in the service's queues, apart from dead letters; "" for nothing.
	left(t *testing.T, service string) string
	// dead are the ids of the dead letters of the service.
	dead(t *testing.T, service string) []string
}

// message is an event: the id is that of its service alone.
type message struct{ id, key, kind string }

// messages are n of three keys, from the first on. The one that is warm fails at its first attempt,
// so that the consumer has a connection by which it publishes.
func messages(first, n int) (all []message) {
	for i := first; i < first+n; i++ {
		all = append(all, message{fmt.Sprint(i), fmt.Sprint("key ", i%3), plain})
	}
	if first == warmID {
		all[0].kind = warm
	}
	return all
}

const (
	early    = 9 // messages of a service before the fault
	warmID   = 0 // one of them: the first
	targetID = 4 // another, with others of its key before and behind it
	late     = 3 // after it
)

// matrix is the database and the broker of one test.
type matrix struct {
	t        *testing.T
	broker   broker
	server   *pgserver.Postgres
	pool     *pgxpool.Pool
	services []string // by point
	running  []*process
}

func faults(t *testing.T, b broker) {
	server, err := pgserver.Start(t.Context(), pgserver.Options{NoFsync: true})
	await.Must(t, err)
	t.Cleanup(func() { await.Must(t, server.Close()) })
	await.Must(t, server.CreateDatabase(t.Context(), "effects"))
	pool, err := pgxpool.New(t.Context(), server.URL("effects"))
	await.Must(t, err)
	t.Cleanup(pool.Close)
	_, err = pool.Exec(t.Context(), inbox.Schema("")+"CREATE TABLE effects (n bigserial, service text NOT NULL, id text NOT NULL)")
	await.Must(t, err)
	for name, fault := range map[string]func(*matrix){
		"consumer killed":    (*matrix).killConsumers,
		"broker restarted":   (*matrix).restartBroker,
		"database restarted": (*matrix).restartDatabase,
	} {
		t.Run(name, func(t *testing.T) {
			m := &matrix{t: t, broker: b, server: server, pool: pool}
			m.stopAtPoints(strings.Fields(name)[0])
			fault(m)
			for _, service := range m.services {
				b.publish(t, service, messages(early, late))
			}
			m.awaitEnd()
			m.check()
		})
	}
}

// stopAtPoints starts the consumers and returns when each stops at its point, in the middle of its
// messages.
func (m *matrix) stopAtPoints(fault string) {
	m.t.Helper()
	for n, point := range points {
		service := fmt.Sprintf("%s-%d", fault, n)
		m.services = append(m.services, service)
		in, err := inbox.New(inbox.Config{Service: service, Pool: m.pool, Handler: (&stops{}).handle, Levels: levels, Registerer: prometheus.NewRegistry()})
		await.Must(m.t, err)
		m.broker.prepare(m.t, service, in)
		m.broker.publish(m.t, service, messages(warmID, 1))
		m.running = append(m.running, start(m.t, m.broker.job(job{Service: service, Point: point, Database: m.server.URL("effects")})))
	}
	rest := messages(1, early-1)
	rest[targetID-1].kind = target
	for _, service := range m.services {
		await.Until(m.t, "the first message to be retried", func() bool { return len(m.effects(service)) == 1 }, func() any { return m.broker.left(m.t, service) })
		m.broker.publish(m.t, service, rest)
	}
	for n, p := range m.running {
		await.Closed(m.t, "the consumer to stop "+p.job.Point, p.reached)
		m.broker.delivered(m.t, m.services[n])
		if isPublish(p.job.Point) {
			m.broker.hold(p.job.Point)
			p.letGo(m.t)
			m.broker.published(m.t, m.services[n], p.job.Point)
		}
	}
}

func isPublish(point string) bool { return point == retrying || point == dying }

// killConsumers kills all of them. Others take their places.
func (m *matrix) killConsumers() {
	unacknowledged := map[string]int{} // messages, at least
	for n, p := range m.running {
		service := m.services[n]
		unacknowledged[service] = early - len(m.effects(service))
		if p.job.Point == committed || p.job.Point == retrying { // or there are two of it
			unacknowledged[service]++
		}
		await.Must(m.t, p.Kill())
		if isPublish(p.job.Point) {
			m.broker.release(p.job.Point)
		}
	}
	for n, p := range m.running {
		m.broker.kept(m.t, m.services[n], unacknowledged[m.services[n]])
		p.job.Passing = true
		m.running[n] = start(m.t, p.job)
	}
}

// restartBroker kills the broker and starts it again, then lets the consumers go on.
func (m *matrix) restartBroker() {
	m.broker.restart(m.t)
	m.letGo()
}

// restartDatabase kills the server of the effects and starts it again, then lets the consumers go
// on.
func (m *matrix) restartDatabase() {
	await.Must(m.t, m.server.Kill())
	await.Must(m.t, m.server.Start(m.t.Context()))
	m.pool.Reset()
	m.letGo()
}

func (m *matrix) letGo() {
	for _, p := range m.running {
		if isPublish(p.job.Point) {
			m.broker.release(p.job.Point)
		} else {
			p.letGo(m.t)
		}
	}
}

// awaitEnd returns when the consumers have nothing to do, and have ended in order.
func (m *matrix) awaitEnd() {
	for n, p := range m.running {
		service := m.services[n]
		await.Until(m.t, service+" to have all effects ("+p.job.Point+")", func() bool {
			return len(m.effects(service)) >= len(expected(p.job.Point))
		}, func() any { return m.effects(service) }, func() any { return m.broker.left(m.t, service) })
		await.Until(m.t, "the queues of "+service+" to be empty ("+p.job.Point+")", func() bool { return m.broker.left(m.t, service) == "" },
			func() any { return m.broker.left(m.t, service) })
	}
	for _, p := range m.running {
		p.stop(m.t)
	}
}

// expected are the ids that have their effect.
func expected(point string) (ids []string) {
	for _, m := range messages(0, early+late) {
		if point != dying || m.id != fmt.Sprint(targetID) {
			ids = append(ids, m.id)
		}
	}
	return ids
}

// check reads the database and the broker.
func (m *matrix) check() {
	for n, p := range m.running {
		service, point := m.services[n], p.job.Point
		if left := m.broker.left(m.t, service); left != "" { // delivered, and not acknowledged
			m.t.Errorf("%s: %s", point, left)
		}
		want, got := expected(point), m.effects(service)
		slices.Sort(want)
		if sorted := slices.Sorted(slices.Values(got)); !slices.Equal(sorted, want) {
			m.t.Errorf("%s: the effects are of %q, want each of %q once", point, sorted, want)
		}
		m.checkOrder(point, got)
		dead := slices.Compact(slices.Sorted(slices.Values(m.broker.dead(m.t, service))))
		if point == dying && !slices.Equal(dead, []string{fmt.Sprint(targetID)}) || point != dying && len(dead) > 0 {
			m.t.Errorf("%s: the dead letters are %q", point, dead)
		}
	}
}

// checkOrder: the effects of a key are in the order of its messages, apart from those that were
// retried.
func (m *matrix) checkOrder(point string, got []string) {
	last := map[int]int{}
	for _, id := range got {
		var n int
		_, err := fmt.Sscan(id, &n)
		await.Must(m.t, err)
		if n == warmID || point == retrying && n == targetID {
			continue
		}
		if n < last[n%3] {
			m.t.Errorf("%s: the effects came in the order %q", point, got)
			return
		}
		last[n%3] = n
	}
}

// effects are the ids in the order in which their effects were written.
func (m *matrix) effects(service string) []string {
	rows, err := m.pool.Query(context.WithoutCancel(m.t.Context()), "SELECT id FROM effects WHERE service = $1 ORDER BY n", service)
	await.Must(m.t, err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	await.Must(m.t, err)
	return ids
}
