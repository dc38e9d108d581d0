// How much of what is stored operators are shown, and how much they may give: whatever a key or a
// reason is, an answer takes little memory.

package dlq

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

const (
	listText  = 1 << 10  // bytes that a list shows of a value
	showText  = 64 << 10 // that the row itself shows of an id, a key, …
	showBytes = 1 << 20  // of a payload, the headers, …
	pageBytes = 1 << 20  // of the values of a page. It has one row at least

	// MaxReason is the longest reason of a request, in characters; the schema has it, too.
	MaxReason = 1000
	// maxFilter bounds the values of a filter, maxStored the JSON in which a job stores it. The
	// schema has that, too.
	maxFilter = 1 << 20
	maxStored = 2 << 20
	// maxRoute bounds the parts of a route; the schema has it, too. No broker takes as much.
	maxRoute = 1 << 10
	// leaderFilters bounds the filters of the jobs that a leader works on at a time.
	leaderFilters = 2 * maxStored
)

// Check returns an error for a reason that is too long.
func (r Requester) Check() error {
	if n := utf8.RuneCountInString(r.Why); n > MaxReason {
		return &BadInput{"reason", fmt.Sprintf("has %d characters, want at most %d", n, MaxReason)}
	}
	return nil
}

// check returns an error for a request that is too long.
func (a *Action) check() error {
	if len(a.Route.Name) > maxRoute || len(a.Route.RoutingKey) > maxRoute {
		return &BadInput{"route", fmt.Sprintf("has a name of more than %d bytes", maxRoute)}
	}
	return a.By.Check()
}

// checkStored returns an error for a filter that is too long as JSON.
func checkStored(filter []byte) error {
	if len(filter) > maxStored {
		return &BadInput{"filter", fmt.Sprintf("has %d bytes as JSON, want at most %d", len(filter), maxStored)}
	}
	return nil
}

// start is SQL for the beginning of a value, with a byte more than is shown: so it is known what is
// cut.
func start(column string, most int) string {
	return fmt.Sprintf("substring(%s, 1, %d)", column, most+1)
}

// shorten cuts what start has read, and reports whether it did.
func shorten(b *[]byte, most int) bool {
	if len(*b) <= most {
		return false
	}
	*b = (*b)[:most]
	return true
}

// requestText are the columns of a request as they are read: each is cut.
var requestText = strings.NewReplacer(
	"{reason}", fmt.Sprintf("left(reason, %d)", MaxReason), "{result}", fmt.Sprintf("left(result, %d)", MaxReason),
	"{route}", fmt.Sprintf("substring(route_name, 1, %d), substring(routing_key, 1, %d)", maxRoute, maxRoute),
)
