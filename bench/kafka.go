// Kafka next to the stand, and the relay's configuration for it.
package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
)

// kafkaStand is a stand with a cluster of Kafka.
type kafkaStand struct {
	*stand
	cluster *kafkaserver.Kafka
	warm    bool // the broker's code is compiled
}

func openKafka(ctx context.Context, s *stand) (_ bench, err error) {
	k := &kafkaStand{stand: s}
	defer func() {
		if err != nil {
			err = errors.Join(err, k.close())
		}
	}()
	if err = s.start(ctx); err != nil {
		return nil, err
	}
	if k.cluster, err = k.startCluster(ctx, 1, nil); err != nil {
		return nil, err
	}
	s.brokerPid = k.cluster.Pid(1)
	return k, s.firstSlot(ctx, k.config("bench"))
}

// startCluster starts nodes with the threads and the compilers that Kafka has of itself: those of
// the tests' nodes, which are good enough for a smoke run, are there sooner and slower afterwards.
func (s *kafkaStand) startCluster(ctx context.Context, nodes int, settings map[string]string) (*kafkaserver.Kafka, error) {
	opt := kafkaserver.Options{Nodes: nodes, Settings: map[string]string{}}
	maps.Copy(opt.Settings, settings)
	if !s.opt.quick {
		opt.Settings["num.network.threads"], opt.Settings["num.io.threads"] = "3", "8"
		opt.Java = []string{"-Xms512m", "-Xmx512m", "-XX:TieredStopAtLevel=4"}
	}
	return kafkaserver.Start(ctx, opt)
}

// close ends everything; what was never started is left out.
func (s *kafkaStand) close() error {
	var errs []error
	if s.cluster != nil {
		errs = append(errs, s.cluster.Close())
	}
	return errors.Join(append(errs, s.stand.close())...)
}

// broker is the broker's name and version.
func (s *kafkaStand) broker(context.Context) (string, error) {
	const before = "Kafka version: " // of AppInfoParser
	_, rest, ok := strings.Cut(s.cluster.Log(1), before)
	if !ok {
		return "", fmt.Errorf("the broker's log does not name its version")
	}
	return "Apache Kafka " + strings.Fields(rest)[0], nil
}

// config is the relay's configuration for a topic.
func (s *kafkaStand) config(topic string) string {
	return s.source() + fmt.Sprintf("sink:\n  kafka:\n    brokers: [%s]\n    topic: %s\n", strings.Join(s.cluster.Brokers(), ", "), topic)
}
