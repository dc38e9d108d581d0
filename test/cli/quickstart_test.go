// This file does what a newcomer does: the quick starts of the documents, line by line, on real
// servers.
package cli

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
)

const (
	documentedDatabase = "postgres://shop:secret@localhost:5432/shop"
	documentedRabbitMQ = "amqp://guest:guest@localhost:5672/"
	documentedKafka    = "localhost:9092"
)

// part is the text of a page below a heading, up to the next heading of its level.
func part(t *testing.T, page, heading string) string {
	t.Helper()
	_, section, found := strings.Cut(document(t, page), "\n## "+heading+"\n")
	section, _, ended := strings.Cut(section, "\n## ")
	if !found || !ended {
		t.Fatalf("%s has no section %q, or it is the last one", page, heading)
	}
	return section
}

// play runs the blocks below a heading of a page, as they are but for the addresses, and returns
// the relay. The lines of the broker's own tools are the caller's: tool reports whether it knows
// one.
func (r *rig) play(page, heading string, addresses *strings.Replacer, tool func(line string) bool) *runner.Relay {
	r.t.Helper()
	section := part(r.t, page, heading)
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
			config = strings.Replace(config, "socket: /tmp", "socket: "+dir, 1)
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
		r.t.Fatalf("%s, %s: no relay is run", page, heading)
	}
	return relay
}

// The quick start of the README, on PostgreSQL as Debian installs it: the INSERT arrives, as the
// message that the README shows.
func TestQuickStart(t *testing.T) {
	t.Parallel()
	r := bare(t)
	r.ok("version")
	pg, err := pgserver.Start(await.Context(t), pgserver.Options{
		NoFsync: true, Settings: map[string]string{"wal_level": "replica"}, HBA: []string{"host all shop 127.0.0.1/32 scram-sha-256"},
	})
	must(t, err)
	t.Cleanup(func() { must(t, pg.Close()) })
	vhost := servers.SharedRabbitMQ(t).VHost(t)
	conn, err := amqp.Dial(vhost)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	must(t, err)
	var arrived *amqp.Delivery
	addresses := strings.NewReplacer("localhost:5432", pg.Addr(), documentedRabbitMQ, vhost, "sudo -u postgres psql", "psql "+pg.URL("postgres"))
	relay := r.play("README.md", "Quick start", addresses, func(line string) bool {
		switch line {
		case "sudo systemctl restart postgresql":
			_, err := pg.Stop("fast")
			must(t, err)
			must(t, pg.Start(await.Context(t)))
		case "sudo rabbitmq-plugins enable rabbitmq_management": // the test speaks AMQP
		case "rabbitmqadmin declare queue name=orders durable=true":
			_, err := ch.QueueDeclare("orders", true, false, false, false, nil)
			must(t, err)
		case "rabbitmqadmin declare binding source=outbox.events destination=orders routing_key='#'":
			must(t, ch.QueueBind("orders", "#", "outbox.events", false, nil))
		case "rabbitmqadmin get queue=orders":
			eventually(t, func() string {
				d, ok, err := ch.Get("orders", true)
				must(t, err)
				if arrived = &d; !ok {
					return "no message in the queue"
				}
				return ""
			})
		default:
			return false
		}
		return true
	})
	if arrived == nil {
		t.Fatal("the quick start does not look at the event")
	}
	compareWithReadme(t, arrived)
	ended(t, relay)
}

// compareWithReadme compares a message with the one that the README shows, part by part. Of id,
// position and time, which differ each time, it compares the length.
func compareWithReadme(t *testing.T, d *amqp.Delivery) {
	t.Helper()
	got := map[string]string{
		"exchange": d.Exchange, "routing key": d.RoutingKey, "message_id": d.MessageId, "type": d.Type, "content_type": d.ContentType,
		"body": string(d.Body),
	}
	for name, value := range d.Headers {
		got["header "+name] = fmt.Sprint(value)
	}
	_, shown, _ := strings.Cut(part(t, "README.md", "A message as it arrives"), "```text\n")
	shown, _, _ = strings.Cut(shown, "```")
	for line := range strings.Lines(shown) {
		name, want, _ := strings.Cut(line, "  ")
		want = strings.TrimSpace(want)
		value, ok := got[name]
		same := value == want
		if slices.Contains([]string{"message_id", "header cdc_position", "header timestamp_in_ms"}, name) {
			same = len(value) == len(want)
		}
		if !ok || !same {
			t.Errorf("%s is %q, the README shows %q", name, value, want)
		}
		delete(got, name)
	}
	if len(got) > 0 {
		t.Errorf("the README does not show %v", got)
	}
}
