package command

import (
	"bytes"
	"testing"
	"time"

	"github.com/creack/pty"
)

func TestLayout(t *testing.T) {
	for _, c := range []struct{ name, message, want string }{
		{"what fits", "cdc-relay: the slot is gone; create it", "cdc-relay: the slot is gone; create it"},
		{
			"a clause a line",
			`cdc-relay: PostgreSQL lacks what the relay needs, and says so at every try; raise max_wal_senders; restart the server`,
			`cdc-relay: PostgreSQL lacks what the relay needs, and says so at every try;
  raise max_wal_senders;
  restart the server`,
		},
		{
			"one long clause",
			"cdc-relay: it is missing; CREATE PUBLICATION \"a\" FOR TABLE \"public\".\"outbox\" WITH (publish = 'insert', publish_via_partition_root = true)",
			"cdc-relay: it is missing;\n  CREATE PUBLICATION \"a\" FOR TABLE \"public\".\"outbox\" WITH (publish = 'insert', publish_via_partition_root = true)",
		},
		{
			"faults",
			"cdc-relay: 2 faults\n  relay.yaml:1:1: short\n  relay.yaml:2:1: long, with some more words than there is room for, as it ends behind column 100 alone; fix it\n",
			"cdc-relay: 2 faults\n  relay.yaml:1:1: short\n  relay.yaml:2:1: long, with some more words than there is room for, as it ends behind column 100 alone;\n    fix it",
		},
	} {
		if got := Layout(c.message, maxWidth, 0); got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
	if got := Layout("  ok  a; b", 5, 8); got != "  ok  a;\n        b" {
		t.Errorf("with a hang: %q", got)
	}
}

// On a terminal that is narrower than a message may be, its width counts.
func TestColumnsOf(t *testing.T) {
	far, near, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	defer near.Close()
	for columns, want := range map[uint16]int{60: 60, 100: 100, 200: 100, 0: 100} {
		if err := pty.Setsize(near, &pty.Winsize{Rows: 24, Cols: columns}); err != nil {
			t.Fatal(err)
		}
		if got := Width(near); got != want {
			t.Errorf("of %d columns %d are used, want %d", columns, got, want)
		}
	}
	if got := Width(&bytes.Buffer{}); got != 100 {
		t.Errorf("through a pipe %d columns are used", got)
	}
}

func TestNumbersForPeople(t *testing.T) {
	for n, want := range map[int64]string{-1: "-1 B", 0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB", 1 << 20: "1.0 MiB", 1<<63 - 1: "8.0 EiB"} {
		if got := Bytes(n); got != want {
			t.Errorf("showBytes(%d) = %s, want %s", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{
		-time.Hour: "0s", 0: "0s", 300 * time.Millisecond: "0.3s", 42 * time.Second: "42s", 307 * time.Second: "5m7s",
		182 * time.Minute: "3h2m", 101 * time.Hour: "4d5h",
	} {
		if got := Age(d); got != want {
			t.Errorf("showAge(%d) = %s, want %s", d, got, want)
		}
	}
	for n, want := range map[uint64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := Thousands(n); got != want {
			t.Errorf("thousands(%d) = %s, want %s", n, got, want)
		}
	}
}
