// Package check asks the brokers for everything that a start needs, and says how to fix what is
// missing.
package check

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/initproducerid"
	"github.com/segmentio/kafka-go/protocol/metadata"

	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/client"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/conn"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/record"
)

// Cluster examines the cluster as a start needs it: each configured address, with the login; each
// broker at the address that it advertises; the right to a producer id; and the topic with the
// right to write to it, or the existing topics of a template. Nothing is published. It returns
// after all answers, or soon after ctx is done. existing are the topics that were seen: with a
// template all that this user may describe.
func Cluster(ctx context.Context, opts *client.Options, layout *record.Layout, topic sink.Template) (found []sink.Finding, existing []string) {
	e := examination{opts: opts, layout: layout, topicName: topic}
	defer e.close()
	found = append(e.brokers(ctx), e.login()...)
	if e.conn == nil {
		return found, nil
	}
	found = append(found, e.advertised(ctx)...)
	found = append(found, e.producer(ctx))
	found = append(found, e.topics(ctx)...)
	return found, e.existing
}

// examination is a check under way.
type examination struct {
	layout    *record.Layout
	topicName sink.Template
	opts      *client.Options
	conn      *conn.Conn // the first that was opened
	cluster   *metadata.Response
	reached   []string // addresses that were connected to
	existing  []string // topics, when there is no fixed one
}

func (e *examination) close() {
	if e.conn != nil {
		e.conn.Close()
	}
}

// brokers checks the configured addresses. One that answers is enough.
func (e *examination) brokers(ctx context.Context) []sink.Finding {
	var found []sink.Finding
	for i, v := range e.visit(ctx, e.opts.Brokers) {
		addr := e.opts.Brokers[i]
		if v.err != nil {
			found = append(found, sink.Finding{Name: "broker", Detail: conn.OneLine(v.err), Fix: fixDial(v.err)})
			continue
		}
		did := "connected to"
		if e.opts.SASL != nil {
			did = "logged in at"
		}
		found = append(found, sink.Finding{Name: "broker", OK: true, Detail: fmt.Sprintf("%s %s, of cluster %s with %d brokers", did, addr, v.cluster.ClusterID, len(v.cluster.Brokers))})
		e.reached = append(e.reached, addr)
		if e.conn != nil {
			v.conn.Close()
			continue
		}
		e.conn, e.cluster = v.conn, v.cluster
	}
	for i := range found {
		found[i].Warn = !found[i].OK && e.conn != nil
	}
	return found
}

// visited is the result of connecting to an address and asking for the cluster's brokers.
type visited struct {
	conn    *conn.Conn // nil when err is set
	cluster *metadata.Response
	err     error
}

// visit connects to all addresses at once: several that do not answer take no longer than one, and
// leave time for the rest. The caller closes the connections.
func (e *examination) visit(ctx context.Context, addrs []string) []visited {
	visits := make([]visited, len(addrs))
	var under sync.WaitGroup
	for i, addr := range addrs {
		under.Go(func() {
			v := &visits[i]
			if v.conn, v.err = conn.Dial(ctx, &e.opts.Options, addr); v.err != nil {
				return
			}
			v.cluster, v.err = conn.RoundTripAs[*metadata.Response](ctx, v.conn, client.ControlTimeout, &metadata.Request{TopicNames: []string{}})
		})
	}
	under.Wait()
	return visits
}

// advertised checks the addresses that the brokers advertise, because all events are published
// there. Each address that is not reached is a finding of its own.
func (e *examination) advertised(ctx context.Context) []sink.Finding {
	const name = "advertised addresses"
	var nodes []int32
	var addrs []string
	for _, b := range e.cluster.Brokers {
		addr := net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
		if !slices.Contains(e.reached, addr) {
			nodes, addrs = append(nodes, b.NodeID), append(addrs, addr)
		}
	}
	var found []sink.Finding
	for i, v := range e.visit(ctx, addrs) {
		if v.err == nil {
			v.conn.Close()
			continue
		}
		found = append(found, sink.Finding{
			Name: name, Detail: fmt.Sprintf("broker %d advertises %s: %s", nodes[i], addrs[i], conn.OneLine(v.err)), Fix: fixAdvertised(v.err),
		})
	}
	if found == nil {
		found = []sink.Finding{{Name: name, OK: true, Detail: "every broker is reached at the address that it advertises"}}
	}
	return found
}

// producer asks for a producer id, which every batch carries. A broker that has just started has
// none to give yet.
func (e *examination) producer(ctx context.Context) sink.Finding {
	f := sink.Finding{Name: "producer id"}
	for give := time.Now().Add(producerPatience); ; {
		res, err := conn.RoundTripAs[*initproducerid.Response](ctx, e.conn, client.ControlTimeout, &initproducerid.Request{ProducerID: client.None, ProducerEpoch: client.None})
		if err != nil {
			f.Detail, f.Fix = conn.OneLine(err), e.fixSilence()
			return f
		}
		switch code := kafkago.Error(res.ErrorCode); {
		case code == 0:
			f.OK, f.Detail = true, "this user may write with idempotence"
		case code == kafkago.ClusterAuthorizationFailed, code == kafkago.TopicAuthorizationFailed:
			f.Detail = conn.ErrorText(res.ErrorCode, "")
			f.Fix = e.grantCommand("TOPIC") + "; a broker before 2.8 wants --operation IdempotentWrite --cluster besides"
		case time.Now().Before(give) && client.Sleep(ctx, producerPatience/50):
			continue
		default:
			// A broker has them from the controllers.
			f.Warn, f.Detail = true, conn.ErrorText(res.ErrorCode, "")
			f.Fix = fmt.Sprintf("see that the controllers have a leader: kafka-metadata-quorum.sh %s describe --status", e.connectOptions())
		}
		return f
	}
}

// producerPatience is how long Check asks a broker for a producer id.
const producerPatience = 5 * time.Second
