package cli

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
)

var moments = regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\dZ?|[0-9a-f]{16}-\d{8}`)

// shownIn checks that a page has the output of a command, but for times and positions in the WAL.
func shownIn(t *testing.T, page, out string) {
	t.Helper()
	if !strings.Contains(moments.ReplaceAllString(page, "*"), moments.ReplaceAllString(out, "*")) {
		t.Errorf("docs/dead-letters.md does not show\n%s", out)
	}
}

// The outputs in docs/dead-letters.md are those of the commands: events without a queue are
// deferred, given up, and replayed once a queue is bound.
func TestOutputsOfDeadLetters(t *testing.T) {
	t.Parallel()
	page := document(t, "docs/dead-letters.md")
	b := &brokered{rig: newRig(t), broker: servers.SharedRabbitMQ(t)}
	b.vhost = b.broker.VHost(t)
	b.sink = "  rabbitmq: {url: '" + b.vhost + "', exchange: shop, declare: true}"
	b.exec(`ALTER TABLE outbox ALTER id TYPE text`)
	relay := b.start()
	insert := func(n int) {
		b.exec(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES ($1, 'invoice', 'c17', 'paid', '{"total": 12}')`, fmt.Sprint("i-", n))
		eventually(t, func() string {
			if list := b.ok("deferred", "list", "--wide"); !strings.Contains(list, fmt.Sprintf("  i-%d  ", n)) {
				return list
			}
			return ""
		})
	}
	for n := 7; n <= 9; n++ {
		insert(n)
	}
	shownIn(t, page, b.ok("deferred", "show", "2"))
	shownIn(t, page, strings.TrimSpace(b.ok("deferred", "dead-letter", "1", "--reason", "no queue")))
	shownIn(t, page, b.ok("events", "show", "i-7"))
	b.ok("deferred", "dead-letter", "--all")
	res := b.command("dead-letters", "replay", "2")
	if res.Code != 1 {
		t.Errorf("exit %d", res.Code)
	}
	shownIn(t, page, res.Stderr)

	ch := b.channel(t)
	_, err := ch.QueueDeclare("invoices", true, false, false, false, nil)
	must(t, err)
	must(t, ch.QueueBind("invoices", "invoice.*", "shop", false, nil))
	shownIn(t, page, strings.TrimSpace(b.ok("dead-letters", "replay", "1", "--reason", "queue bound")))
	shownIn(t, page, b.ok("dead-letters", "show", "1"))
	replay := []string{"dead-letters", "replay", "--all", "--destination", "shop/invoice.paid"}
	shownIn(t, page, b.ok(append(replay, "--dry-run")...))
	shownIn(t, page, b.ok(append(replay, "--rate", "50/s", "--reason", "queue bound")...))
	b.bodies(ch, "invoices", 3)
	if code := relay.Stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
}
