//go:build testall

package cli

import (
	"fmt"
	"strings"
	"testing"
)

func TestTopicsSteerOnlyAsAllowed(t *testing.T) {
	t.Parallel()
	k := withKafka(t, 1)
	open, closed := k.kafka.Topic(t, 2), k.kafka.Topic(t, 2)
	bodies := func(name string, n int) (all []string) {
		for _, r := range k.records(name, n) {
			all = append(all, string(r.Value))
		}
		return all
	}
	k.steered(open, closed, fmt.Sprintf("topic %q", closed), "sink.kafka.allow.topic", func(patterns string) string {
		return fmt.Sprintf("  kafka: {brokers: ['%s'], topic: '{type}', allow: {topic: %s}}", strings.Join(k.kafka.Brokers(), ","), patterns)
	}, bodies, "")
	k.finds("allowed topics", "ok", []string{open[:len(open)-1]}, nil)
}
