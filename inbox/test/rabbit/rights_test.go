package rabbit_test

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/inbox"
)

// The rights that docs/consuming.md names are enough, retries and dead letters included.
func TestRights(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/consuming.md")
	if err != nil {
		t.Fatal(err)
	}
	rights := regexp.MustCompile(`set_permissions -p / mailer \\\n +'(.*)' \\\n +'(.*)' \\\n +'(.*)'`).FindStringSubmatch(string(page))
	if rights == nil {
		t.Fatal("the page names no rights")
	}
	r := newRig(t)
	r.inbox.Handler = func(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
		if m.Attempt == 1 {
			return inbox.ErrTransient
		}
		return inbox.ErrPermanent
	}
	r.must(r.ch.ExchangeDeclare("outbox.events", "topic", true, false, false, false, nil))
	r.rabbit.URL = r.broker.User(t, r.url)
	r.must(r.broker.Permit(r.ctx, r.rabbit.URL, rights[1], rights[2], rights[3]))
	c := r.consumer()
	r.must(c.Declare(r.ctx))
	r.publish(event("1", "a"))
	r.run(c)
	r.depthOf("mailer.dlq", 1)

	r.must(r.ch.ExchangeDelete("outbox.events", false, false))
	if err := c.Declare(r.ctx); err == nil || !strings.Contains(err.Error(), "outbox.events") || !strings.Contains(err.Error(), "ACCESS_REFUSED") {
		t.Errorf("without the relay's exchange: %v", err)
	}
}
