// One election, seen from outside: who leads, and what is in the log.
package main

import (
	"context"
	"errors"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
)

// election is the change of a partition's leader. A record is acknowledged when all replicas in
// sync have it.
type election struct {
	acked    time.Time // the last record was acknowledged under the old leader
	answered time.Time // a broker named the new leader for the first time
	written  time.Time // the first record was acknowledged under the new leader
}

// took is how long the election took, and stall how long nothing was acknowledged.
func (e election) took() float64  { return e.answered.Sub(e.acked).Seconds() }
func (e election) stall() float64 { return e.written.Sub(e.acked).Seconds() }

const (
	endsEvery     = 5 * time.Millisecond
	metadataEvery = 10 * time.Millisecond
)

// elect lets act take the leadership of partition 0 of a topic that is written to from its leader,
// and watches.
func elect(ctx context.Context, cluster *kafkaserver.Kafka, topic string, act func(leader int) error) (election, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("no election was seen"))
	defer cancel()
	old, err := cluster.Leader(ctx, topic, 0)
	if err != nil {
		return election{}, err
	}
	w := &electionWatch{topic: topic, old: old, leader: old, conns: newBrokerConns(cluster.Brokers())}
	defer w.conns.close()
	acting := make(chan error, 1)
	begun := false
	tick := time.NewTicker(endsEvery)
	defer tick.Stop()
	for w.written.IsZero() {
		if !begun && w.acks > 20 { // the load flows
			begun = true
			go func() { acting <- act(old) }()
		}
		w.look(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			if begun {
				<-acting //nolint:errcheck // the election that was not seen is the error
			}
			return w.election, context.Cause(ctx)
		}
	}
	if !begun {
		return w.election, errors.New("the leader has moved by itself")
	}
	return w.election, <-acting
}

// electionWatch asks the brokers. It belongs to one goroutine.
type electionWatch struct {
	election
	topic       string
	old, leader int // nodes
	conns       *brokerConns
	asked       time.Time // for the leader
	end         int64     // of what was acknowledged
	acks        int       // how often it was seen to have moved
}

// look asks what is due.
func (w *electionWatch) look(ctx context.Context) {
	if now := time.Now(); w.leader == w.old && now.Sub(w.asked) >= metadataEvery {
		w.asked = now
		if leader := w.conns.leader(ctx, w.topic, w.old); leader > 0 {
			w.leader, w.answered = leader, time.Now()
		}
	}
	first := kafkaserver.TopicPartition{Topic: w.topic}
	var ends map[kafkaserver.TopicPartition]int64
	err := w.conns.ask(ctx, w.leader, func(c *kafkaserver.KafkaConn) (err error) {
		ends, err = c.ListOffsets(ctx, []kafkaserver.TopicPartition{first}, kafkaserver.LatestOffset)
		return err
	})
	switch end := ends[first]; {
	case err != nil || end <= w.end: // it leads no more, or does not know yet
	case w.leader == w.old:
		w.end, w.acked = end, time.Now()
		w.acks++
	default:
		w.written = time.Now()
	}
}
