// The fixes that `check` shows: for its findings, and for a connection that cannot be made.

package check

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/conn"
	"github.com/segmentio/kafka-go/protocol/metadata"
)

// fixDial returns the fix for a connection that cannot be made.
func fixDial(err error) string {
	var network *net.OpError
	var file *fs.PathError
	fix := conn.FixRefusal(err)
	switch {
	case fix != "":
		return fix
	case errors.As(err, &network):
		return "check sink.kafka.brokers, that Kafka runs, and that no firewall is in between"
	case errors.As(err, &file):
		return "correct the path in sink.kafka, or let the relay's user read the file"
	case errors.Is(err, io.EOF), errors.Is(err, context.DeadlineExceeded):
		return "compare sink.kafka.tls and sasl with what the port expects: listener.security.protocol.map of the broker"
	}
	return "correct what this line names in sink.kafka, or give sink.kafka.brokers another port of the brokers"
}

// fixAdvertised returns the fix for a broker that is not reached at its advertised address.
func fixAdvertised(err error) string {
	if fix := conn.FixRefusal(err); fix != "" {
		return fix
	}
	return "make that address reachable from here, or correct advertised.listeners of that broker"
}

// fixSilence returns the fix for a broker that stopped answering.
func (e *examination) fixSilence() string {
	return "check the log of the broker at " + e.conn.Addr + " for why it hung up or did not answer"
}

// connectOptions returns the options by which the commands of a fix reach the cluster. With TLS or
// a login they need a file that docs/kafka.md#rights describes.
func (e *examination) connectOptions() string {
	if e.opts.TLS != nil || e.opts.SASL != nil {
		return "--bootstrap-server " + e.conn.Addr + " --command-config admin.properties"
	}
	return "--bootstrap-server " + e.conn.Addr
}

// principal is the relay's name in an ACL. It does not know how the brokers map a certificate to a
// name (ssl.principal.mapping.rules).
func (e *examination) principal() string {
	if e.opts.SASL != nil {
		if login, err := e.opts.SASL(); err == nil && login != nil && login.Username != "" {
			return "User:" + login.Username
		}
	}
	return "User:NAME"
}

// grantCommand returns the command that gives the documented rights: to all topics with the
// template's prefix, or to the given topic.
func (e *examination) grantCommand(topic string) string {
	pattern := ""
	if prefix, _, placeholders := strings.Cut(e.topicName.String(), "{"); placeholders && prefix != "" {
		topic, pattern = prefix, " --resource-pattern-type prefixed"
	}
	return fmt.Sprintf("grant the right: kafka-acls.sh %s --add --allow-principal %s --operation Write --operation Describe --topic %s%s",
		e.connectOptions(), e.principal(), topic, pattern)
}

// createCommand returns the command that creates a topic, with three replicas, or as many as this
// cluster has brokers.
func (e *examination) createCommand(name string) string {
	replicas := min(3, max(1, len(e.cluster.Brokers)))
	return fmt.Sprintf("create it: kafka-topics.sh %s --create --topic %s --partitions 12 --replication-factor %d --config min.insync.replicas=%d",
		e.connectOptions(), name, replicas, max(1, replicas-1))
}

// minInSyncCommand returns the command that sets min.insync.replicas of a topic.
func (e *examination) minInSyncCommand(topic string, n int) string {
	return fmt.Sprintf("kafka-configs.sh %s --alter --topic %s --add-config min.insync.replicas=%d", e.connectOptions(), topic, n)
}

// describeCommand returns the command that shows a topic.
func (e *examination) describeCommand(topic string) string {
	return fmt.Sprintf("kafka-topics.sh %s --describe --topic %s", e.connectOptions(), topic)
}

// fixLagging returns the fix for replicas of a topic that are not in sync.
func (e *examination) fixLagging(t *metadata.ResponseTopic, name string) string {
	var away []string
	for _, p := range t.Partitions {
		for _, node := range p.OfflineReplicas {
			if id := strconv.Itoa(int(node)); !slices.Contains(away, id) {
				away = append(away, id)
			}
		}
	}
	if len(away) == 0 { // they run and lag, or the broker does not report them (before Kafka 1.0)
		return "bring its replicas in sync; which ones lag: " + e.describeCommand(name)
	}
	return "bring back broker " + strings.Join(away, ", ")
}
