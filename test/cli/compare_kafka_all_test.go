//go:build testall

package cli

import (
	"fmt"
	"strings"
	"testing"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

// Two topics that are the same to a consumer: what is repeated, of another run of Debezium, large,
// null or without a key does not differ.
func TestCompareEqualTopics(t *testing.T) {
	t.Parallel()
	s := newSameTopics(t, 3)
	records := func(run string) []kafkago.Message {
		tombstone := record(1, "tombstone", "k1", "")
		tombstone.Value = nil
		keyless := record(0, "keyless", "", "v")
		keyless.Key = nil
		all := []kafkago.Message{
			tombstone, keyless, record(2, "empty", "k2", ""), record(2, "large", "k2", strings.Repeat("0123456789", 90_000)),
			record(0, "envelope", "k3", `{"schema":{"type":"struct","optional":false,"name":"shop.public.outbox.`+run+`.Value"},"payload":{"payload":"x"}}`),
		}
		for i := range 2000 {
			all = append(all, record(i%3, fmt.Sprint("e", i), fmt.Sprint("k", i%3), fmt.Sprint(i), "__debezium.context.runId", run, "eventType", "created"))
		}
		return all
	}
	theirs, ours := records("theirs"), records("ours")
	s.write(s.theirs, theirs...)
	s.write(s.theirs, theirs[1990:]...) // Debezium was killed and started again
	ours[1].WriterData = 2              // a record without a key goes anywhere
	s.write(s.ours, ours...)
	got := s.compare(0)
	if got.Compared != 2005 || got.Equal != 2005 || got.Messages[0] != 2020 || got.Duplicates != [2]int64{15, 0} ||
		got.LeftOut.Headers != 2000 || got.LeftOut.SchemaNames != 1 || got.LeftOut.Partitions != 1 || len(got.First) > 0 {
		t.Errorf("%+v", got)
	}
}

// What a person reads says which event, what, from which byte on and where; with
// admin.show_payloads: false nothing of contents.
func TestCompareInWords(t *testing.T) {
	t.Parallel()
	s := newSameTopics(t, 1)
	s.write(s.theirs, record(0, "e1", "k", `{"name": "tulip"}`, "tenant", "tulip"), record(0, "e2", "k", "v"))
	s.write(s.ours, record(0, "e1", "k", `{"name": "roses"}`, "tenant", "roses"), record(0, "e2", "k", "v"))
	config := s.config()
	args := []string{"compare", "debezium", "--theirs", s.theirs, "--ours", s.ours, "--from", "beginning", "--lag", "1s"}
	res, err := runner.RunCommand(await.Context(t), runner.Build(t), config, args...)
	must(t, err)
	refusal(t, res, 1, "2 differences in 2 compared events")
	for _, want := range []string{
		"e1 value: differs from byte 10 on (theirs 17 bytes, ours 17)", "tulip", "roses", "    theirs " + s.theirs + ", partition 0, offset 0\n", `e1 header "tenant"`,
		"compared     2 events: 1 equal, 1 not\n", "differences  value: 1\n", "theirs       2 messages, 0 again\n",
	} {
		if !strings.Contains(res.Stdout, want) {
			t.Errorf("it does not say %q:\n%s", want, res.Stdout)
		}
	}
	for _, hidden := range []struct {
		config string
		more   []string
	}{{config + "admin: {show_payloads: false}\n", nil}, {config, []string{"--excerpts=false"}}, {config + "admin: {show_payloads: false}\n", []string{"--json", "--excerpts"}}} {
		res, err := runner.RunCommand(await.Context(t), runner.Build(t), hidden.config, append(args[:len(args):len(args)], hidden.more...)...)
		must(t, err)
		if res.Code != 1 || !strings.Contains(res.Stdout, "e1") || strings.Contains(res.Stdout+res.Stderr, "tulip") || strings.Contains(res.Stdout+res.Stderr, "roses") {
			t.Errorf("%v, exit %d:\n%s", hidden.more, res.Code, res.Stdout)
		}
	}
}
