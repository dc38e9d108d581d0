// The ordering line of check: what order the sink's templates keep.

package wiring

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/lazy"
	"github.com/cdc-relay/cdc-relay/internal/replication/check"

	"github.com/cdc-relay/cdc-relay/internal/config"
)

// checkOrdering warns of a template that sends the events of one key to several exchanges or
// topics: order is kept within one of them only. Nothing is found for a sink without a template.
// With a profile it describes the order kept.
func checkOrdering(c *config.Config) []check.Finding {
	driver := c.Sink.Driver
	if len(driver.Route) == 0 {
		return nil
	}
	scope, t := driver.Route[0].Title(), c.Sink.Settings.Templates()[0]
	key := driver.Section() + t.Key
	f := check.Finding{Name: "ordering", Level: check.LevelOK}
	if c.Sink.Compat.Profile != "" && c.Delivery.Ordering != config.OrderingNone {
		f.Detail = profileOrdering(scope, c.Delivery.Ordering)
		return []check.Finding{f}
	}
	whole, parts := "of a key", placeholdersWithinKey()
	if c.Delivery.Ordering == config.OrderingCommit {
		whole, parts = "of all keys", placeholders()
	}
	found := parts.FindAllString(t.String(), -1)
	switch {
	case c.Delivery.Ordering == config.OrderingNone:
		f.Detail = "none is kept (delivery.ordering: none)"
	case len(found) == 0:
		f.Detail = fmt.Sprintf("the events %s go to one %s, in the order of their commits", whole, scope)
	default:
		f.Level = check.LevelWarn
		f.Detail = fmt.Sprintf("%s %q sends events %s to several %ss by %s: they keep their order within each, and none among them", key, t.Template, whole, scope, strings.Join(found, " and "))
		f.Fix = fmt.Sprintf("%s: %q; or, if nobody counts on the order, delivery.ordering: none", key, removePlaceholders(t.String(), parts))
	}
	return []check.Finding{f}
}

// profileOrdering describes the order that a profile keeps. Debezium's options choose the topics,
// so there is nothing to fix, and one constant topic in its options is not the only one: a value
// that the expression does not match is its own topic.
func profileOrdering(scope, ordering string) string {
	if scope == "topic" {
		scope = "partition"
	}
	if ordering == config.OrderingCommit {
		return fmt.Sprintf("as behind Debezium: events keep the order of their commits within each %s, and none among %ss", scope, scope)
	}
	return fmt.Sprintf("the events of a key keep their order within each %s, and none among %ss; behind Debezium all events do: delivery.ordering: commit", scope, scope)
}

// splitting are the placeholders that may differ between events of one ordering key, which is
// aggregate and key.
var (
	placeholdersWithinKey = lazy.Regexp(`\{(?:type|id|column:[^{}]*)\}`)
	placeholders          = lazy.Regexp(`\{[^{}]*\}`)
)

// removePlaceholders is the template without some of its parts, and without the dots and dashes
// that they leave behind.
func removePlaceholders(template string, parts *regexp.Regexp) string {
	left := parts.ReplaceAllString(template, "")
	left = regexp.MustCompile(`([._/-])[._/-]+`).ReplaceAllString(left, "$1")
	if left = strings.Trim(left, "._/-"); left == "" {
		return "outbox.events"
	}
	return left
}
