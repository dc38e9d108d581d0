package output

import (
	"bytes"
	"strings"
	"testing"

	"github.com/creack/pty"
)

func TestLayOut(t *testing.T) {
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
			"words",
			"cdc-relay: unknown key; known here are ordering, lanes, max_in_flight, max_in_flight_bytes, confirm_timeout, shutdown_grace, and some more of them",
			`cdc-relay: unknown key;
  known here are ordering, lanes, max_in_flight, max_in_flight_bytes, confirm_timeout,
  shutdown_grace, and some more of them`,
		},
		{
			"a statement",
			`cdc-relay: slot "orders" was created again; then accept the slot as it is: UPDATE cdc_relay.slots SET state = 'adopt' WHERE slot = 'orders'; done`,
			`cdc-relay: slot "orders" was created again;
  then accept the slot as it is:
  UPDATE cdc_relay.slots SET state = 'adopt' WHERE slot = 'orders';
  done`,
		},
		{
			"a statement that is too long",
			`cdc-relay: it is missing; CREATE PUBLICATION "a" FOR TABLE "public"."outbox" WITH (publish = 'insert', publish_via_partition_root = true)`,
			`cdc-relay: it is missing;
  CREATE PUBLICATION "a" FOR TABLE "public"."outbox" WITH (publish = 'insert', publish_via_partition_root = true)`,
		},
		{
			"a statement in brackets",
			`cdc-relay: no free replication slot: drop one that nobody needs (SELECT slot_name, active FROM pg_replication_slots) or raise max_replication_slots`,
			`cdc-relay: no free replication slot: drop one that nobody needs
  (SELECT slot_name, active FROM pg_replication_slots) or raise max_replication_slots`,
		},
		{
			"commands and texts in quotes",
			"cdc-relay: a relay's tables are of an older version, so it's an old one: run `cdc-relay init --url postgres://h/d` or state 'a b c' and \"d e\": cdc-relay deferred show 8",
			"cdc-relay: a relay's tables are of an older version, so it's an old one: run\n" +
				"  `cdc-relay init --url postgres://h/d` or state 'a b c' and \"d e\": cdc-relay deferred show 8",
		},
		{
			"faults",
			"cdc-relay: 2 faults\n  relay.yaml:1:1: short\n  relay.yaml:2:1: long, with some more words than there is room for, as it ends behind column 100 alone; fix it\n",
			"cdc-relay: 2 faults\n  relay.yaml:1:1: short\n" +
				"  relay.yaml:2:1: long, with some more words than there is room for, as it ends behind column 100\n    alone;\n    fix it",
		},
		{
			"a place",
			"cdc-relay: the configuration cannot be used: /etc/cdc-relay/with/a/long/name/cdc-relay.yaml:2:7: source.slot: is wrong",
			"cdc-relay: the configuration cannot be used:\n" +
				"  /etc/cdc-relay/with/a/long/name/cdc-relay.yaml:2:7: source.slot: is wrong",
		},
		{
			"one long word", "cdc-relay: " + strings.Repeat("ü", 120) + " b",
			"cdc-relay:\n  " + strings.Repeat("ü", 120) + "\n  b",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Layout(c.message, maxWidth, 0)
			if got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
			for _, width := range []int{1, 20, 40, 80} {
				if got := strings.Fields(Layout(c.message, width, 8)); strings.Join(got, " ") != strings.Join(strings.Fields(c.message), " ") {
					t.Errorf("at %d columns it says %q", width, got)
				}
			}
		})
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
