package kafka

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/config/setting"
	"github.com/cdc-relay/cdc-relay/internal/devenv/issuer"
	"github.com/cdc-relay/cdc-relay/internal/kafkaclient"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// The client that its issuer refuses is told to correct the client, and not the broker.
func TestIssuerRefusesClient(t *testing.T) {
	i, err := issuer.Start()
	must(t, err)
	t.Cleanup(func() { must(t, i.Close()) })
	s := SASL{Mechanism: oauthBearer, OAuth: sink.OAuth{TokenURL: i.TokenURL(), ClientID: setting.Plain(issuer.ClientID), ClientSecret: setting.Plain("wrong")}}
	login, err := s.login()()
	must(t, err)
	_, err = login.Token(t.Context())
	if !errors.Is(err, kafkaclient.ErrLogin) {
		t.Fatalf("got %v", err)
	}
	err = login.Refused(fmt.Errorf("begin OAUTHBEARER: %w", err)) // as the client does
	if !strings.Contains(err.Error(), "invalid_client") || !strings.Contains(fixRefusal(err), "check client_id, client_secret") {
		t.Errorf("got %v; %s", err, fixRefusal(err))
	}
}
