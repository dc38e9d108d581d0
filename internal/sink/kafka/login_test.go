package kafka

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/config/setting"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/issuer"
	"github.com/cdc-relay/cdc-relay/internal/kafkaclient"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// A command that makes the password ends with the connect that wants it.
func TestPasswordCommandEnds(t *testing.T) {
	tool := filepath.Join(t.TempDir(), "tool")
	must(t, os.WriteFile(tool, []byte("#!/bin/sh\necho >"+tool+".runs\nexec sleep 1000\n"), 0o700))
	s := defaultSettings()
	read(t, s, map[string]string{"sasl.mechanism": "plain", "sasl.username": "u", "sasl.password": "${exec:" + tool + "}"})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		await.Until(t, "the command", func() bool { _, err := os.Stat(tool + ".runs"); return err == nil })
		cancel()
	}()
	if _, err := s.Login()(ctx); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "read sink.kafka.sasl.password: run "+tool) {
		t.Errorf("got %v", err)
	}
}

// The client that its issuer refuses is told to correct the client, and not the broker.
func TestIssuerRefusesClient(t *testing.T) {
	i, err := issuer.Start()
	must(t, err)
	t.Cleanup(func() { must(t, i.Close()) })
	s := SASL{Mechanism: oauthBearer, OAuth: sink.OAuth{TokenURL: i.TokenURL(), ClientID: setting.Plain(issuer.ClientID), ClientSecret: setting.Plain("wrong")}}
	_, err = s.login()(t.Context())
	if !errors.Is(err, kafkaclient.ErrLogin) || !strings.Contains(err.Error(), "invalid_client") || !strings.Contains(fixRefusal(err), "check client_id, client_secret") {
		t.Errorf("got %v; %s", err, fixRefusal(err))
	}
}
