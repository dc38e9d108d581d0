package operate

import (
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/dlq"
)

// onTerminal is what is seen on a terminal of so many columns.
func onTerminal(t *testing.T, columns uint16, write func(io.Writer) error) (lines []string) {
	t.Helper()
	far, near, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	if err := pty.Setsize(near, &pty.Winsize{Rows: 24, Cols: columns}); err != nil {
		t.Fatal(err)
	}
	seen := make(chan string)
	go func() {
		content, _ := io.ReadAll(far) // EIO at the end
		seen <- string(content)
	}()
	if err := write(near); err != nil {
		t.Error(err)
	}
	if err := near.Close(); err != nil {
		t.Error(err)
	}
	return strings.Split(strings.TrimSpace(<-seen), "\r\n")
}

// Lists fit 80 columns with the columns that matter, whatever the texts are; numbers are whole.
func TestListsFit(t *testing.T) {
	t.Setenv("NO_COLOR", "1")
	long := strings.Repeat("long ", 30)
	at := time.Date(2026, 11, 20, 12, 0, 7, 0, time.UTC)
	row := dlq.Row{N: 1234567, State: dlq.Discarded, ID: &long, Key: &long, Type: &long, Destination: long, Reason: "too_few_replicas", Attempts: 20, ErrorText: long, DiedAt: &at}
	page := dlq.Page{Rows: []dlq.Row{row}}
	events := []dlq.ListedEvent{{ID: &long, Type: &long, State: dlq.EventUnknown, CommittedAt: &at, N: 1234567}}
	groups := &dlq.Groups{By: "destination", Items: []dlq.Group{{Value: &long, Count: 10_000, OrMore: true, Oldest: &at, Reason: "too_few_replicas", Error: "#", ErrorText: "404 " + long}}}
	for name, write := range map[string]func(io.Writer) error{
		"dead-letters list":         func(w io.Writer) error { return printRows(w, dlq.DeadLetters, page, false) },
		"deferred list":             func(w io.Writer) error { return printRows(w, dlq.Deferred, page, false) },
		"events list":               func(w io.Writer) error { return eventTable(events, false).Write(w) },
		"dead-letters list --group": func(w io.Writer) error { return printGroups(w, dlq.DeadLetters, groups) },
		"deferred list --group":     func(w io.Writer) error { return printGroups(w, dlq.Deferred, groups) },
		"deferred by reason": func(w io.Writer) error {
			return printGroups(w, dlq.Deferred, &dlq.Groups{By: "reason", Items: groups.Items})
		},
	} {
		grouped := strings.HasPrefix(name, "deferred") && name != "deferred list"
		lines := onTerminal(t, 80, write)
		for _, line := range lines {
			if n := command.Columns(line); n > 80 {
				t.Errorf("%s: %d columns: %s", name, n, line)
			}
		}
		if all := strings.Join(lines, "\n"); !strings.Contains(all, "1234567") && !strings.Contains(all, "at least 10,000") || !strings.Contains(all, "…") {
			t.Errorf("%s: a number is missing, or nothing was cut: %s", name, all)
		}
		if all := strings.Join(lines, "\n"); grouped && (!strings.Contains(all, "\n    404 long") || strings.Contains(all, "#")) {
			t.Errorf("%s: the broker's words are missing: %s", name, all)
		}
		wider := strings.Join(onTerminal(t, 1000, write), "\n")
		if strings.Contains(wider, "…") {
			t.Errorf("%s: cut on a wide terminal: %s", name, wider)
		}
	}
	all := onTerminal(t, 80, func(w io.Writer) error { return printRows(w, dlq.DeadLetters, page, true) })
	if header := all[0]; !strings.Contains(header, "ATTEMPTS") || !strings.Contains(header, "ERROR") || strings.Contains(strings.Join(all, ""), "…") {
		t.Errorf("--wide has %q", all)
	}
}

// What --follow prints once: an event when it comes, and when its state changes.
func TestFollow(t *testing.T) {
	var out, errs strings.Builder
	f := followed{}
	a, b := "a", "b"
	look := func(complete bool, items ...dlq.ListedEvent) string {
		out.Reset()
		if err := f.show(&out, &errs, &dlq.EventList{Items: items, Complete: complete, Notes: []string{"a note"}}); err != nil {
			t.Error(err)
		}
		return out.String()
	}
	if got := look(true, dlq.ListedEvent{ID: &b, State: dlq.EventInFlight}, dlq.ListedEvent{ID: &a, State: dlq.EventDelivered}); strings.Index(got, "delivered  -  a") > strings.Index(got, "in flight  -  b") || strings.Count(got, "\n") != 2 {
		t.Errorf("at first it prints %q", got)
	}
	if got := look(true, dlq.ListedEvent{ID: &b, State: dlq.EventDeferred, N: 7}, dlq.ListedEvent{ID: &a, State: dlq.EventDelivered}); !strings.HasSuffix(got, "deferred 7  -  b\n") || strings.Count(got, "\n") != 1 {
		t.Errorf("of a change it prints %q", got)
	}
	if got := look(true, dlq.ListedEvent{ID: &b, State: dlq.EventDeferred, N: 7}); got != "" {
		t.Errorf("of no change it prints %q", got)
	}
	if strings.Count(errs.String(), "a note") != 1 {
		t.Errorf("it notes %q", errs.String())
	}
}

// A key may be one of several aggregates.
func TestAggregatesOfAKey(t *testing.T) {
	items := []dlq.ListedEvent{{Aggregate: new("order")}, {Aggregate: new("order")}}
	if got := eventTable(items, false).Header; slices.Contains(got, "AGGREGATE") {
		t.Errorf("of one aggregate the columns are %q", got)
	}
	items[1].Aggregate = new("payment")
	if got := eventTable(items, false); got.Header[3] != "AGGREGATE" || got.Rows[0][3] != "order" || got.Rows[1][3] != "payment" || len(got.Rows[0]) != len(got.Header) {
		t.Errorf("of two they are %q: %q", got.Header, got.Rows)
	}
}
