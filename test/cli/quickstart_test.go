// This file does what a newcomer does: the quick starts of the documents, line by line, on real
// servers.
package cli

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/consumers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
)

const (
	documentedDatabase = "postgres://postgres@localhost:5432/shop"
	documentedRabbitMQ = "amqp://guest:guest@localhost:5672/"
	documentedKafka    = "localhost:9092"
)

// play runs the blocks of a page's quick start, as they are but for the addresses, and returns the
// relay. The lines of the broker's own tools are the caller's: tool reports whether it knows one.
func (r *rig) play(page string, addresses *strings.Replacer, tool func(line string) bool) *runner.Relay {
	r.t.Helper()
	_, section, found := strings.Cut(document(r.t, page), "## Quick start\n")
	section, _, ended := strings.Cut(section, "\n## ")
	if !found || !ended {
		r.t.Fatalf("%s has no quick start", page)
	}
	dir, err := os.MkdirTemp("", "quickstart") // t.TempDir may be longer than the path of a socket
	must(r.t, err)
	r.t.Cleanup(func() { must(r.t, os.RemoveAll(dir)) })
	var config string
	var relay *runner.Relay
	for _, block := range blocks.FindAllStringSubmatch(section, -1) {
		if block[1] == "yaml" {
			// The slot's name is the whole server's.
			config = strings.Replace(addresses.Replace(block[2]), "source: {", "source: {slot: "+r.slot+", ", 1)
			// The commands run in one directory; here each has its own.
			config = strings.Replace(config, "socket: ", "socket: "+dir+"/", 1)
			continue
		}
		for line := range strings.Lines(strings.ReplaceAll(block[2], "\\\n", "")) {
			line = addresses.Replace(strings.TrimSpace(line))
			switch command, rest, _ := strings.Cut(line, " "); {
			case line == "cdc-relay run":
				relay = runner.Start(r.t, r.binary, config)
				must(r.t, relay.WaitReady(await.Context(r.t)))
			case command == "cdc-relay":
				res, err := runner.RunCommand(await.Context(r.t), r.binary, config, strings.Fields(rest)...)
				must(r.t, err)
				if res.Code != 0 || rest == "status" && !strings.Contains(res.Stdout, "relay      leader") {
					r.t.Fatalf("%s: exit %d: %s%s", line, res.Code, res.Stdout, res.Stderr)
				}
			case command == "psql":
				if out, err := exec.CommandContext(await.Context(r.t), "bash", "-c", line).CombinedOutput(); err != nil {
					r.t.Fatalf("%s: %v: %s", line, err, out)
				}
			case !tool(line):
				r.t.Fatalf("the quick start has a line that this test does not know: %s", line)
			}
		}
	}
	if relay == nil {
		r.t.Fatalf("the quick start of %s runs no relay", page)
	}
	return relay
}

// The quick start of the README: the INSERT arrives.
func TestQuickStart(t *testing.T) {
	t.Parallel()
	r := bare(t)
	r.ok("version")
	vhost := servers.SharedRabbitMQ(t).VHost(t)
	var consumer *consumers.Consumer
	got := false
	relay := r.play("README.md", strings.NewReplacer(documentedDatabase, r.db, documentedRabbitMQ, vhost), func(line string) bool {
		switch line {
		case "rabbitmqadmin declare queue name=orders durable=true": // and the line after it
			var err error
			consumer, err = consumers.StartConsumer(await.Context(t), consumers.ConsumerOptions{URL: vhost})
			must(t, err)
			t.Cleanup(consumer.Close)
		case "rabbitmqadmin declare binding source=outbox.events destination=orders routing_key='#'":
		case "rabbitmqadmin get queue=orders":
			must(t, consumer.WaitCount(await.Context(t), 1))
			got = true
		default:
			return false
		}
		return true
	})
	if !got {
		t.Fatal("the quick start does not look at the event")
	}
	if d := consumer.Deliveries()[0]; d.Aggregate != "order" || d.Key != "42" {
		t.Errorf("what arrived is %+v", d)
	}
	if code := relay.Stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
}
