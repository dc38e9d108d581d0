// The verdict: what the two databases say of each other, and what is left among the dead letters.

package main

import (
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/console"
)

// order is a row of the orders, notification one of the notifications.
type (
	order struct {
		id, customer string
		number       int64 // of the customer's orders
	}
	notification struct {
		orderID, customer string
		number            int64
		attempt           int // 1: the first has written it
	}
)

// evidence is what is judged.
type evidence struct {
	answered      []string // ids of orders that a customer was told are placed
	orders        []order
	notifications []notification // as they were written
	replayed      map[string]bool
	deadLetters   int // that are left
}

// verdict is what is wrong, by the ids of orders, and what was seen.
type verdict struct {
	orders, notifications int
	retried, replayed     int // orders that a later attempt has notified
	inOrder               int // all others

	forgotten  []string // placed, says the answer, and there is no order
	lost       []string // without a notification
	twice      []string // with two or more
	phantom    []string // notified without an order
	altered    []string // with another customer or number
	outOfOrder []string // notified after a later order of the customer, and not retried
	dead       int
}

// judge compares the orders with their notifications. The order per customer is judged among those
// that the first attempt has notified: what was retried or replayed is overtaken, and said to be.
func judge(e evidence) verdict {
	v := verdict{orders: len(e.orders), notifications: len(e.notifications), dead: e.deadLetters}
	placed := map[string]order{}
	for _, o := range e.orders {
		placed[o.id] = o
	}
	for _, id := range e.answered {
		if _, ok := placed[id]; !ok {
			v.forgotten = append(v.forgotten, id)
		}
	}
	seen, last := map[string]int{}, map[string]int64{}
	for _, n := range e.notifications {
		seen[n.orderID]++
		o, ok := placed[n.orderID]
		switch {
		case !ok:
			v.phantom = append(v.phantom, n.orderID)
		case o.customer != n.customer || o.number != n.number:
			v.altered = append(v.altered, n.orderID)
		case seen[n.orderID] == 2:
			v.twice = append(v.twice, n.orderID)
		case seen[n.orderID] > 2:
		case e.replayed[n.orderID]:
			v.replayed++
		case n.attempt > 1:
			v.retried++
		case n.number < last[n.customer]:
			v.outOfOrder = append(v.outOfOrder, n.orderID)
		default:
			last[n.customer] = n.number
			v.inOrder++
		}
	}
	for _, o := range e.orders {
		if seen[o.id] == 0 {
			v.lost = append(v.lost, o.id)
		}
	}
	return v
}

// good reports whether each order has exactly one notification, in order.
func (v *verdict) good() bool {
	return v.inOrder > 0 && v.dead+len(v.forgotten)+len(v.lost)+len(v.twice)+len(v.phantom)+len(v.altered)+len(v.outOfOrder) == 0
}

// lines is what was checked, each point with a tick or a cross.
func (s *shop) lines(v verdict) []string {
	lines := []string{"", "  Verdict (from both databases, and the dead letters at the broker)", ""}
	check := func(bad []string, good, fault string) {
		if len(bad) > 0 {
			lines = append(lines, "  "+s.Red("✗ "+fault+": "+console.Thousands(len(bad))))
			for _, id := range bad[:min(3, len(bad))] {
				lines = append(lines, "    "+id)
			}
			return
		}
		lines = append(lines, "  "+s.Green("✓")+" "+good)
	}
	check(v.forgotten, "every order that a customer was promised is there", "orders PROMISED and not there")
	check(v.lost, fmt.Sprintf("%s orders, %s notifications, 0 lost", console.Thousands(v.orders), console.Thousands(v.notifications)), "orders WITHOUT a notification")
	check(v.twice, "each order has exactly one notification", "orders notified TWICE")
	check(append(v.phantom, v.altered...), "no notification without its order", "notifications of NO order, or of another one")
	check(v.outOfOrder, fmt.Sprintf("%s at the first attempt, in order for each of %d customers", console.Thousands(v.inOrder), customerCount), "notifications OUT OF ORDER")
	check(make([]string, v.dead), "no dead letter is left", "DEAD LETTERS left")
	note := func(format string, args ...any) { lines = append(lines, "    "+fmt.Sprintf(format, args...)) }
	note("%s at a later attempt, %d from a dead letter: later orders may overtake them", console.Thousands(v.retried), v.replayed)
	note("%s messages were in the handler when it was killed, and were rolled back", console.Thousands(s.rolledBack))
	note("%s messages came again although their effect was there, and had none", console.Thousands(s.again))
	note("%s was away for %s, the mailer for %s", s.broker.name(), console.Short(s.brokerAway), console.Short(s.mailerAway.Round(time.Millisecond)))
	lines = append(lines, "")
	word := s.Green("PASSED")
	if !v.good() {
		word = s.Red("FAILED")
	}
	return append(lines, fmt.Sprintf("  %s  %s orders, %s notifications, %d lost, %d twice, %d out of order", word,
		console.Thousands(v.orders), console.Thousands(v.notifications), len(v.lost), len(v.twice), len(v.outOfOrder)), "")
}
