package conn

import (
	"context"
	"testing"
	"time"

	"golang.org/x/oauth2"

	"github.com/cdc-relay/cdc-relay/internal/config/setting"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// A probe of an exchange that stays forbidden ends a connection whose login a command made only
// from time to time.
func TestRenewedByACommand(t *testing.T) {
	login := sink.Login{User: "relay", Password: "first"}
	runs := true
	d := &Dialer{Logins: &sink.Logins{
		Read: func(context.Context) (sink.Login, error) { return login, nil },
		Runs: func() bool { return runs },
	}}
	s := &Session{}
	s.login.Store(&login)
	for age, want := range map[time.Duration][2]bool{0: {}, 2 * unsteadyLogin: {true, false}, 2 * unsteadyProbe: {true, true}} {
		s.loginAt = time.Now().Add(-age)
		if got := [2]bool{d.Renewed(t.Context(), s, false), d.Renewed(t.Context(), s, true)}; got != want {
			t.Errorf("%s old: %v, want %v", age, got, want)
		}
	}
	runs = false
	if d.Renewed(t.Context(), s, false) {
		t.Error("the same password counts as another")
	}
}

// A token counts as outdated when it has ended, and when there is another one.
func TestRenewedToken(t *testing.T) {
	life := time.Hour
	tokens := sink.NewTokenSource("", "", func(context.Context) (*oauth2.Token, error) {
		return &oauth2.Token{AccessToken: "present", Expiry: time.Now().Add(life)}, nil
	})
	d := &Dialer{Logins: tokens.Logins("", setting.Secret{})}
	s := &Session{}
	for _, c := range []struct {
		token string
		life  time.Duration
		want  bool
	}{{"present", 0, true}, {"present", time.Hour, false}, {"earlier", time.Hour, true}} {
		life = c.life
		if _, err := tokens.Token(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.login.Store(&sink.Login{Password: c.token})
		if got := d.Renewed(t.Context(), s, false); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
