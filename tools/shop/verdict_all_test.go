//go:build testall

package main

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/internal/devenv/console"
)

// goodEvidence is of two customers: the second order of "a" was retried and overtaken, the first
// one of "b" was a dead letter that was replayed.
func goodEvidence() evidence {
	return evidence{
		answered: []string{"a1", "a2", "a3", "b1", "b2"},
		orders:   []order{{"a1", "a", 1}, {"a2", "a", 2}, {"a3", "a", 3}, {"b1", "b", 1}, {"b2", "b", 2}},
		notifications: []notification{
			{"a1", "a", 1, 1}, {"a3", "a", 3, 1}, {"b2", "b", 2, 1}, {"a2", "a", 2, 3}, {"b1", "b", 1, 1},
		},
		replayed: map[string]bool{"b1": true},
	}
}

// TestVerdict: a good one passes, and each fault is shown, and fails.
func TestVerdict(t *testing.T) {
	note := func(n notification) func(*evidence) {
		return func(e *evidence) { e.notifications = append(e.notifications, n) }
	}
	for name, tc := range map[string]struct {
		spoil func(*evidence)
		fault string // "" for none
	}{
		"good":                       {func(*evidence) {}, ""},
		"nothing at all":             {func(e *evidence) { *e = evidence{} }, "FAILED  0 orders"},
		"no notification":            {func(e *evidence) { e.notifications = e.notifications[1:] }, "✗ orders WITHOUT a notification: 1"},
		"twice":                      {note(notification{"a3", "a", 3, 1}), "✗ orders notified TWICE: 1"},
		"a retried one twice":        {note(notification{"a2", "a", 2, 1}), "✗ orders notified TWICE: 1"},
		"a replayed one twice":       {note(notification{"b1", "b", 1, 1}), "✗ orders notified TWICE: 1"},
		"an order that is not there": {note(notification{"x", "a", 4, 1}), "✗ notifications of NO order, or of another one: 1"},
		"another customer":           {func(e *evidence) { e.notifications[1].customer = "b" }, "✗ notifications of NO order, or of another one: 1"},
		"another number":             {func(e *evidence) { e.notifications[3].number = 4 }, "✗ notifications of NO order, or of another one: 1"},
		"overtaken at the first":     {func(e *evidence) { e.notifications[3].attempt = 1 }, "✗ notifications OUT OF ORDER: 1"},
		"overtaken, never dead":      {func(e *evidence) { e.replayed = nil }, "✗ notifications OUT OF ORDER: 1"},
		"promised":                   {func(e *evidence) { e.answered = append(e.answered, "a4") }, "✗ orders PROMISED and not there: 1"},
		"a dead letter":              {func(e *evidence) { e.deadLetters = 1 }, "✗ DEAD LETTERS left: 1"},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			e := goodEvidence()
			tc.spoil(&e)
			s := &shop{Console: console.To(&out), programs: programs{broker: &rabbitMQ{}}}
			err := s.conclude(t.Context(), judge(e))
			bad := tc.fault != ""
			if (err != nil) != bad || strings.Contains(out.String(), "PASSED") == bad || strings.Contains(out.String(), "FAILED") != bad ||
				!strings.Contains(out.String(), tc.fault) {
				t.Errorf("the verdict is %v:\n%s", err, &out)
			}
			for line := range strings.Lines(out.String()) {
				if n := utf8.RuneCountInString(line); n > 80 {
					t.Errorf("%d columns: %s", n, line)
				}
			}
		})
	}
	if v := judge(goodEvidence()); v.retried != 1 || v.replayed != 1 || v.inOrder != 3 {
		t.Errorf("%d were retried, %d replayed and %d in order, want 1, 1 and 3", v.retried, v.replayed, v.inOrder)
	}
}
