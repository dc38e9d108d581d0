package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
)

// comparing is a compare debezium under way between two exchanges.
type comparing struct {
	t            *testing.T
	cmd          *exec.Cmd
	theirs, ours string
	out, errs    string // files
	channel      *amqp.Channel
	done         chan error
}

// startComparing runs the command on two new topic exchanges until it says that everything counts.
func startComparing(t *testing.T, args ...string) *comparing {
	t.Helper()
	r := servers.SharedRabbitMQ(t)
	conn, err := amqp.Dial(r.URL())
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	dir := t.TempDir()
	name := fmt.Sprintf("compare_%d_%d", time.Now().UnixNano(), slots.Add(1))
	c := &comparing{t: t, theirs: name + "_theirs", ours: name + "_ours", out: filepath.Join(dir, "out"), errs: filepath.Join(dir, "errs"), done: make(chan error, 1)}
	c.channel, err = conn.Channel()
	must(t, err)
	must(t, c.channel.Confirm(false))
	for _, exchange := range []string{c.theirs, c.ours} {
		must(t, c.channel.ExchangeDeclare(exchange, "topic", false, true, false, false, nil))
	}
	stdout, err := os.Create(c.out)
	must(t, err)
	defer stdout.Close()
	stderr, err := os.Create(c.errs)
	must(t, err)
	defer stderr.Close()
	config := filepath.Join(dir, "cdc-relay.yaml")
	must(t, os.WriteFile(config, []byte(rabbitConfig(r.URL())), 0o600))
	c.cmd = exec.CommandContext(await.Context(t), runner.Build(t), append([]string{"compare", "debezium", "-c", config, "--theirs", c.theirs, "--ours", c.ours}, args...)...)
	c.cmd.Dir, c.cmd.Stdout, c.cmd.Stderr = dir, stdout, stderr
	must(t, c.cmd.Start())
	go func() { c.done <- c.cmd.Wait() }()
	eventually(t, func() string { return lacks(c.text(c.errs), "everything counts from here on") })
	return c
}

// rabbitConfig is a configuration that names a broker and nothing else.
func rabbitConfig(url string) string {
	return "source: {url: postgres://nobody@nowhere/none}\nsink: {rabbitmq: {url: '" + url + "'}}\n"
}

func (c *comparing) text(file string) string {
	c.t.Helper()
	text, err := os.ReadFile(file)
	must(c.t, err)
	return string(text)
}

// message is one as Debezium Server sends it.
func message(id, value string, headers ...string) amqp.Publishing {
	m := amqp.Publishing{Body: []byte(value), DeliveryMode: amqp.Persistent, Headers: amqp.Table{"id": `"` + id + `"`}}
	for i := 0; i < len(headers); i += 2 {
		m.Headers[headers[i]] = headers[i+1]
	}
	return m
}

// send publishes, and waits until the broker has the message.
func (c *comparing) send(exchange, key string, messages ...amqp.Publishing) {
	c.t.Helper()
	for _, m := range messages {
		ctx := await.Context(c.t)
		confirm, err := c.channel.PublishWithDeferredConfirmWithContext(ctx, exchange, key, false, false, m)
		must(c.t, err)
		if ok, err := confirm.WaitContext(ctx); err != nil || !ok {
			c.t.Fatalf("not confirmed: %v", err)
		}
	}
}

// result waits for the end.
func (c *comparing) result(code int) (out compareResult) {
	c.t.Helper()
	<-c.done
	text := c.text(c.out)
	if err := json.Unmarshal([]byte(text), &out); err != nil || c.cmd.ProcessState.ExitCode() != code {
		c.t.Fatalf("exit %d, want %d: %s%s", c.cmd.ProcessState.ExitCode(), code, text, c.text(c.errs))
	}
	return out
}

// Each kind of difference between two exchanges is found. A message that came twice is none,
// whatever the order and the types of its headers.
func TestCompareExchanges(t *testing.T) {
	t.Parallel()
	c := startComparing(t, "--json", "--lag", "2s", "--count", "10")
	fine := message("fine", strings.Repeat("x", 3<<20))
	fine.Headers["number"], fine.Headers["bytes"], fine.Headers["null"] = int64(4), []byte("b"), nil
	plain := message("format", "v")
	plain.Headers["id"] = "format" // another format of the id: paired all the same
	property := message("property", "v")
	property.ContentType = "application/json"
	typed := message("typed", "v")
	typed.Headers["h"] = []byte("x")
	c.send(c.theirs, "k", fine, fine, message("value", "abc"), message("header", "v", "h", "x"), message("typed", "v", "h", "x"), message("more", "v"),
		message("format", "v"), message("property", "v"), message("lost", "v"), message("first", "v"), message("second", "v"))
	c.send(c.theirs, "k1", message("routed", "v"))
	c.send(c.ours, "k", fine, message("value", "abd"), message("header", "v", "h", "y"), typed, message("more", "v", "h", "x"), plain, property,
		message("second", "v"), message("new", "v"), message("first", "v"))
	c.send(c.ours, "k2", message("routed", "v"))
	got := c.result(1)
	want := []string{
		"format header id", "header header h", "lost missing theirs", "more header h ours", "new missing ours", "property property content_type ours", //nolint:dupword // ids, kinds and names
		"routed routing key", "second order", "typed header h", "value value", //nolint:dupword // ids, kinds and names
	}
	differ := got.whatDiffers()
	if !slices.Equal(differ, want) || got.Compared != 10 || got.Duplicates != [2]int64{1, 0} {
		t.Errorf("%q, want %q, %+v", differ, want, got)
	}
}

// lacks says that a text does not have a part of it, "" when it does.
func lacks(text, part string) string {
	if strings.Contains(text, part) {
		return ""
	}
	return fmt.Sprintf("there is no %q in:\n%s", part, text)
}

// An exchange that is not there is said.
func TestCompareWithoutExchange(t *testing.T) {
	t.Parallel()
	r := servers.SharedRabbitMQ(t)
	res, err := runner.RunCommand(await.Context(t), runner.Build(t), rabbitConfig(r.URL()), "compare", "debezium", "--theirs", "no-such-exchange", "--ours", "none")
	must(t, err)
	refusal(t, res, 1, "open theirs", `bind to exchange "no-such-exchange"`, "NOT_FOUND")
}
