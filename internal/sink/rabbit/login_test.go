package rabbit

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// A refusal accuses a destination only when the credentials are still those of the connection's
// login. When they have changed, the connection ends and nothing is accused; and only then: a
// destination that stays forbidden costs no further connection, however often it is tried.
func TestRefusalOfAnEarlierLogin(t *testing.T) {
	b := newBroker(t)
	for _, exchange := range []string{"events", "granted", "forbidden"} {
		b.exchange(exchange, nil)
	}
	var login atomic.Pointer[string] // nil: it cannot be read
	as := func(write string) {
		address := b.user("", write, "")
		login.Store(&address)
	}
	as("^events$")
	cfg := byKey(b)
	cfg.Logins = &sink.Logins{Read: func(context.Context) (l sink.Login, err error) {
		address := login.Load()
		if address == nil {
			return l, errors.New("no such file")
		}
		u, err := url.Parse(*address)
		if err != nil {
			return l, err
		}
		l.User = u.User.Username()
		l.Password, _ = u.User.Password()
		return l, nil
	}}
	var reconnects atomic.Int32
	cfg.Connected = func(again bool) {
		if again {
			reconnects.Add(1)
		}
	}
	s := start(t, cfg)
	refuses := func(exchange string, ended int32) {
		t.Helper()
		for range 3 {
			outcomes := s.send(newEvent("events", "created"), newEvent(exchange, "created"), newEvent("events", "created"))
			wantConfirmed(t, outcomes, 1)
			wantRejected(t, outcomes[1], sink.Destination, sink.NotPermitted)
		}
		if n := reconnects.Load(); n != ended {
			t.Errorf("%d connections have ended over %s, want %d", n, exchange, ended)
		}
	}
	refuses("granted", 0)

	as("^(events|granted)$") // as an agent that puts a new token into the file
	granted := newEvent("granted", "created")
	outcomes, err := s.try(newEvent("events", "created"), granted, newEvent("forbidden", "created"))
	if err == nil {
		t.Errorf("the connection has not ended: %+v", outcomes)
	}
	for i, o := range outcomes {
		if o.State == sink.Rejected {
			t.Errorf("event %d is rejected for an earlier login: %+v", i, o.Fault)
		}
	}
	wantConfirmed(t, s.send(granted))
	refuses("forbidden", 1)

	// Credentials that cannot be read would make no connection, so this one is kept.
	login.Store(nil)
	refuses("forbidden", 1)
}

// The broker's text tells an expired token from a missing right, also when it is cut off.
func TestTokenExpiredByItsText(t *testing.T) {
	refused := "ACCESS_REFUSED - access to exchange 'events' in vhost '/' refused for user 'relay'"
	for text, want := range map[string]bool{
		refused: false,
		refused + `, backend rabbit_auth_backend_oauth2 returned an error: "Provided JWT token has expired"`: true,
		refused + ", backen...": true,
		refused + ", backend rabbit_auth_backend_ldap returned an er...": false,
		"ACCESS_REFUSED - access to exchange 'a long na...":              false,
	} {
		if got := isTokenExpired(&amqp.Error{Code: amqp.AccessRefused, Reason: text}); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

// AMQP logs in with the password as it is: a warning for each address off this machine without TLS.
func TestLoginWithoutTLS(t *testing.T) {
	found := clearLogins([]string{"amqp://localhost/", "amqp://127.0.0.1:5672/", "amqp://[::1]/", "amqps://mq-1.example/"})
	if len(found) != 0 {
		t.Errorf("found %+v", found)
	}
	found = clearLogins([]string{"amqp://localhost/", "amqp://u:mqsecret@mq-1.example/shop", "amqps://mq-2.example/", "amqp://10.0.0.7:5673/"})
	if len(found) != 1 || !found[0].Warn || found[0].OK || !strings.Contains(found[0].Detail, "without TLS to mq-1.example:5672, 10.0.0.7:5673:") ||
		!strings.Contains(found[0].Fix, "amqps://") || strings.Contains(found[0].Detail, "mqsecret") {
		t.Errorf("found %+v", found)
	}
}
