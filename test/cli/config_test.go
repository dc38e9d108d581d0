package cli

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

const (
	goodSource = "source: {url: postgres://nobody:pgsecret@127.0.0.1:1/nowhere}\n"
	goodSink   = "sink: {rabbitmq: {url: amqp://nobody:mqsecret@127.0.0.1:1/}}\n"
)

// What is wrong with a configuration is said before anything is connected, with exit 2 and the
// place of each fault. No fault shows a secret. TestFaults of internal/config has every fault, and
// TestConfigValidate of cmd/cdc-relay the command config validate.
func TestConfigurationThatIsRefused(t *testing.T) {
	t.Parallel()
	binary := runner.Build(t)
	for name, c := range map[string]struct {
		config string
		words  []string
	}{
		"unknown key": {goodSource + goodSink + "delivery:\n  ordring: 5\n", []string{"cdc-relay.yaml:4:3", "delivery.ordring", "nearest", "delivery.ordering"}},
		"addresses":   {"source: {url: 'postgres://u:pgse%zzcret@h:5432/d'}\nsink: {rabbitmq: {url: 'amqp://u:mqse cret@h:port/'}}\n", []string{"2 faults", "1:15: source.url", "2:24: sink.rabbitmq.url"}},
	} {
		t.Run(name, func(t *testing.T) {
			res, err := runner.RunCommand(await.Context(t), binary, c.config, "run")
			must(t, err)
			for _, word := range c.words {
				if res.Code != 2 || res.Stdout != "" || !strings.HasPrefix(res.Stderr, "cdc-relay: the configuration cannot be used:") || !strings.Contains(res.Stderr, word) {
					t.Errorf("exit %d, no %q in %s%s", res.Code, word, res.Stdout, res.Stderr)
				}
			}
			hidden(t, res.Stderr)
		})
	}
}

// hidden fails when text holds one of the secrets of these tests, whole or the part that a parser
// would quote.
func hidden(t *testing.T, text string) {
	t.Helper()
	for _, secret := range []string{"pgsecret", "mqsecret", "pgse", "mqse", "toksecret"} {
		if strings.Contains(text, secret) {
			t.Errorf("%q is shown: %s", secret, text)
		}
	}
}

// Misspelt commands, flags and arguments are exit 2; cmd/cdc-relay's TestUsageErrors has the
// messages.
func TestUsage(t *testing.T) {
	t.Parallel()
	for line, words := range map[string][]string{
		"run --nonsense": {"unknown flag", "--nonsense"},
		"run":            {"there is no configuration"},
	} {
		res, err := runner.RunCommand(await.Context(t), runner.Build(t), "", strings.Fields(line)...)
		must(t, err)
		refusal(t, res, 2, words...)
	}
}
