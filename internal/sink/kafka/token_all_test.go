//go:build testall

// OAuth 2 tokens, at a broker that verifies them with the keys of their issuer.

package kafka

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/issuer"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
	"github.com/cdc-relay/cdc-relay/internal/kafkaclient"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// ours is what the tokens of the tests' issuer are for.
func ours(life time.Duration) issuer.Token { return issuer.Token{Audience: "kafka", Life: life} }

// tokenSink is the configuration of a sink that logs in with the issuer's tokens.
func tokenSink(t *testing.T, k *kafkaserver.Kafka, i *issuer.Issuer, topic string) Config {
	t.Helper()
	s := defaultSettings()
	read(t, s, map[string]string{
		"brokers": k.TokenBrokers()[0], "topic": topic, "sasl.mechanism": "oauthbearer",
		"sasl.oauth.token_url": i.TokenURL(), "sasl.oauth.client_id": issuer.ClientID, "sasl.oauth.client_secret": issuer.Secret,
	})
	return s.config(&sink.Opening{Slot: "tokens", ConfirmTimeout: within})
}

// Sessions and tokens end while events flow. Each event is stored once and in order, and no login
// is refused.
func testTokensRenewed(t *testing.T, k *kafkaserver.Kafka, i *issuer.Issuer) {
	i.Give(ours(10 * time.Second))
	topic := topicWith(t, k, 3, 1, nil)
	cfg := tokenSink(t, k, i, topic)
	core, alarms := observer.New(zapcore.WarnLevel)
	cfg.Log = zap.New(core)
	f := flow(t, start(t, cfg), topic, 20)
	from := len(i.Asked())
	await.Until(t, "three tokens", func() bool { return len(i.Asked()) >= from+3 || t.Failed() })
	f.wait(1000)
	wantStored(t, k, topic, f.end()...)
	if len(f.rejected) > 0 {
		t.Errorf("rejected: %v", f.rejected)
	}
	for _, entry := range alarms.All() { // a busy machine may be late with an answer
		if text := fmt.Sprint(entry.ContextMap()); strings.Contains(text, "token") || strings.Contains(text, "refused") {
			t.Errorf("%s: %s", entry.Message, text)
		}
	}
}

// The issuer fails until the last token has ended. What was open then is stored once and in order
// when it is back.
func testTokensLate(t *testing.T, k *kafkaserver.Kafka, i *issuer.Issuer) {
	i.Give(ours(10 * time.Second))
	topic := topicWith(t, k, 3, 1, nil)
	r := start(t, tokenSink(t, k, i, topic))
	f := flow(t, r, topic, 20)
	f.wait(1000)
	i.Answer(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "away", http.StatusServiceUnavailable) })
	await.Until(t, "the end of the token", func() bool {
		_, why := r.Up()
		return strings.Contains(why, "503 Service Unavailable") && strings.Contains(why, "check sink.kafka.sasl.oauth.token_url")
	})
	i.Give(ours(time.Hour))
	f.wait(1000)
	wantStored(t, k, topic, f.end()...)
	if len(f.rejected) > 0 {
		t.Errorf("rejected: %v", f.rejected)
	}
}

// Who is refused is told by whom, why, and what to do.
func testTokensRefused(t *testing.T, k *kafkaserver.Kafka, i *issuer.Issuer) {
	for name, c := range map[string]struct {
		gives     issuer.Token
		broker    string
		said, fix string
	}{
		"audience":  {issuer.Token{Audience: "other", Life: time.Hour}, k.TokenBrokers()[0], `invalid_token`, "audience"},
		"expired":   {ours(-time.Minute), k.TokenBrokers()[0], "and has expired", "clocks"},
		"mechanism": {ours(time.Hour), k.SASLBrokers()[0], "mechanism OAUTHBEARER is not enabled, the listener has ", "sink.kafka.sasl"},
	} {
		i.Give(c.gives)
		cfg := tokenSink(t, k, i, "x")
		_, err := kafkaclient.Dial(t.Context(), &cfg.DialOptions, c.broker)
		if !errors.Is(err, kafkaclient.ErrLogin) || !strings.Contains(err.Error(), c.said) || !strings.Contains(fixRefusal(err), c.fix) {
			t.Errorf("%s: got %v; %s", name, err, fixRefusal(err))
		}
	}
}
