// Leaders that move, die, restart and freeze under a live load: how long writes stall, and what
// lies twice in the log.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/consumers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

// trial is a relay that publishes a live load to a topic of three nodes, which a consumer reads,
// and a bare producer with a topic of its own.
type trial struct {
	*kafkaStand
	topic, bareTopic string
	consumer         *consumers.KafkaConsumer
	relay            *runner.Relay
	bare             *bareProducer
	work             *load.Workload
	endWork          func() error // and waits for it

	moved  series // stalls: the bare producer's as the base
	killed series // elections as the base, stalls
}

const (
	trialRate       = 1000 // rows a second
	trialPartitions = 3
	confirmTimeout  = time.Second // of the trial's relay
	// its requests time out, and the broker answers them in the end; it stays the leader
	frozenFor = 1500 * time.Millisecond
)

// leaders measures on three nodes of their own. A replica that was refused by a leader asks the
// next one 50 ms later, not a second: otherwise that is what a leader's move takes, whoever writes.
func (s *kafkaStand) leaders(ctx context.Context) (_ []result, err error) {
	cluster, err := s.startCluster(ctx, 3, map[string]string{"replica.fetch.backoff.ms": "50"})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, cluster.Close()) }()
	t := &trial{kafkaStand: &kafkaStand{stand: s.stand, cluster: cluster}, topic: "bench-leaders", bareTopic: "bench-bare"}
	defer t.close()
	for _, act := range []func(context.Context) error{t.begin, t.moves, t.kills, t.restarts, t.freezes} {
		if err := act(ctx); err != nil {
			return nil, t.explained(err)
		}
	}
	duplicates, rows, err := t.end(ctx)
	if err != nil {
		return nil, t.explained(err)
	}
	n := s.size.faults
	moved := t.moved.result("leader moved to another replica: the relay's write stall ÷ a bare producer's", "×", milliseconds)
	moved.must, moved.aim, moved.aa = 1.5, 1.1, 0
	killed := t.killed.result("leader killed (SIGKILL): the relay's write stall ÷ the election", "×", milliseconds)
	killed.must, killed.aim, killed.aa = 1.5, 1.1, 0
	return []result{moved, killed, {
		name: fmt.Sprintf("duplicates in the log after %d leader moves, %d kills, %d restarts, %d freezes beyond `confirm_timeout`", s.size.moves, n, n, n),
		ours: fmt.Sprintf("%d of %s events", duplicates, thousands(rows)), value: float64(duplicates), unit: "records", none: true, once: true,
	}}, nil
}

// explained adds the end of the relay's log to an error.
func (t *trial) explained(err error) error {
	if t.relay == nil {
		return err
	}
	return fmt.Errorf("%w: %s", err, t.relay.Log())
}

func (t *trial) begin(ctx context.Context) error {
	for topic, partitions := range map[string]int{t.topic: trialPartitions, t.bareTopic: 1} {
		if err := t.cluster.CreateTopic(ctx, topic, partitions, 3, map[string]string{"min.insync.replicas": "2"}); err != nil {
			return err
		}
	}
	leader, err := t.cluster.Leader(ctx, t.bareTopic, 0)
	if err != nil {
		return err
	}
	t.bare = startBareProducer(ctx, t.cluster.Brokers(), t.bareTopic, leader)
	if err := execSQL(ctx, t.db, "TRUNCATE outbox"); err != nil {
		return err
	}
	t.consumer, err = consumers.StartKafkaConsumer(ctx, consumers.KafkaConsumerOptions{Brokers: t.cluster.Brokers(), Topics: []string{t.topic}})
	if err != nil {
		return err
	}
	config := t.config(t.topic) + fmt.Sprintf("delivery:\n  confirm_timeout: %s\n", confirmTimeout)
	if t.relay, err = t.startLive(ctx, config); err != nil {
		return err
	}
	t.work = &load.Workload{URL: t.db, Writers: 4, Keys: 1000, Rate: trialRate, Payload: 200, Seed: 1}
	t.endWork = startWork(ctx, t.work)
	return nil
}

// close ends what begin has started and end has not.
func (t *trial) close() {
	if t.endWork != nil {
		_ = t.endWork() //nolint:errcheck // there is an error already
	}
	if t.bare != nil {
		t.bare.close()
	}
	if t.relay != nil {
		_ = t.relay.Kill() //nolint:errcheck // it has ended in order, or there is an error already
	}
	if t.consumer != nil {
		t.consumer.Close()
	}
}

// moves hands partition 0 of both topics from node to node, in turns.
func (t *trial) moves(ctx context.Context) error {
	for range t.size.moves {
		var stalls [2]float64
		for i, topic := range []string{t.bareTopic, t.topic} {
			e, err := elect(ctx, t.cluster, topic, func(leader int) error { return t.cluster.MoveLeader(ctx, topic, 0, leader%3+1) })
			if err != nil {
				return fmt.Errorf("move leader: %w", err)
			}
			stalls[i] = e.stall()
		}
		t.say("    moved: bare producer's stall %s, relay's %s", milliseconds(stalls[0]), milliseconds(stalls[1]))
		t.moved.base, t.moved.ours = append(t.moved.base, stalls[0]), append(t.moved.ours, stalls[1])
	}
	t.bare.close()
	t.bare = nil
	return nil
}

// kills ends the leader without a word, and has it back.
func (t *trial) kills(ctx context.Context) error {
	for range t.size.faults {
		var old int
		e, err := elect(ctx, t.cluster, t.topic, func(leader int) error {
			old = leader
			return t.cluster.KillNode(leader)
		})
		if err != nil {
			return fmt.Errorf("kill leader: %w", err)
		}
		t.say("    killed: election %s, stall %s", milliseconds(e.took()), milliseconds(e.stall()))
		t.killed.base, t.killed.ours = append(t.killed.base, e.took()), append(t.killed.ours, e.stall())
		if err := t.back(ctx, old); err != nil {
			return err
		}
	}
	return nil
}

// back starts a node again and waits until it has caught up.
func (t *trial) back(ctx context.Context, node int) error {
	if err := t.cluster.StartNode(ctx, node); err != nil {
		return err
	}
	return t.cluster.WaitInSync(ctx, t.topic)
}

// restarts stops the leader in order and starts it again.
func (t *trial) restarts(ctx context.Context) error {
	for range t.size.faults {
		old, err := t.cluster.Leader(ctx, t.topic, 0)
		if err == nil {
			err = t.cluster.StopNode(ctx, old)
		}
		if err == nil {
			err = t.back(ctx, old)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// freezes stops the leader's process for longer than the relay waits for an answer.
func (t *trial) freezes(ctx context.Context) error {
	for range t.size.faults {
		old, err := t.cluster.Leader(ctx, t.topic, 0)
		if err == nil {
			err = t.cluster.FreezeNode(old)
		}
		if err == nil {
			err = waitUntil(ctx, time.Now().Add(frozenFor))
			err = errors.Join(err, t.cluster.ThawNode(old))
		}
		if err == nil {
			err = t.cluster.WaitInSync(ctx, t.topic)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// end stops the load and the relay, and compares the logs with the table.
func (t *trial) end(ctx context.Context) (duplicates, rows int, err error) {
	if err := t.endWork(); err != nil {
		return 0, 0, err
	}
	return t.checkLive(ctx, t.work, t.consumer, t.relay)
}
