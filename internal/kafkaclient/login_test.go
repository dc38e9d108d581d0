package kafkaclient

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/saslauthenticate"
	"github.com/segmentio/kafka-go/protocol/saslhandshake"
	"github.com/segmentio/kafka-go/sasl/scram"
)

// loginOf is the error of a login to a scripted broker.
func loginOf(t *testing.T, s SASL, script func(f *fake, c net.Conn)) error {
	t.Helper()
	f := newFake(t, func(f *fake, c net.Conn) {
		f.greet(c)
		script(f, c)
		untilClosed(c)
	})
	f.opts.SASL = func(context.Context) (*SASL, error) { return &s, nil }
	c, err := Dial(t.Context(), &f.opts, f.addr)
	if err == nil {
		c.Close()
	}
	return err
}

func TestLogin(t *testing.T) {
	login := SASL{Mechanism: "plain", Username: "relay", Password: "top-secret"}
	handshake := func(code int16) func(*fake, net.Conn) {
		return func(f *fake, c net.Conn) {
			id, req := f.Next(c)
			if r, ok := req.(*saslhandshake.Request); !ok || r.Mechanism != "PLAIN" {
				f.Errorf("got %+v", req)
				return
			}
			f.answer(c, 1, id, &saslhandshake.Response{ErrorCode: code, Mechanisms: []string{"GSSAPI", "OAUTHBEARER"}})
		}
	}
	authenticate := func(res saslauthenticate.Response) func(*fake, net.Conn) {
		return func(f *fake, c net.Conn) {
			handshake(0)(f, c)
			id, req := f.Next(c)
			if r, ok := req.(*saslauthenticate.Request); !ok || string(r.AuthBytes) != "\x00relay\x00top-secret" {
				f.Errorf("got %+v", req)
				return
			}
			f.answer(c, 1, id, &res)
		}
	}
	for name, c := range map[string]struct {
		script  func(*fake, net.Conn)
		refused bool
		want    string // of the error; "": none
	}{
		"welcome":        {authenticate(saslauthenticate.Response{}), false, ""},
		"wrong password": {authenticate(saslauthenticate.Response{ErrorCode: 58, ErrorMessage: "Authentication failed: Invalid username or password"}), true, "Invalid username"},
		"wordless":       {authenticate(saslauthenticate.Response{ErrorCode: 58}), true, "SASL Authentication Failed"},
		"another fault":  {authenticate(saslauthenticate.Response{ErrorCode: 15, ErrorMessage: "try again"}), false, "try again"},
		"mechanism":      {handshake(33), true, "GSSAPI, OAUTHBEARER"},
		"no SASL":        {handshake(34), false, "takes no SASL login"},
		"gone": {func(f *fake, c net.Conn) {
			handshake(0)(f, c)
			f.Next(c)
			c.Close()
		}, false, "closed the connection"},
	} {
		err := loginOf(t, login, c.script)
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: got %v", name, err)
			}
			continue
		}
		if isUnfit(err) != (name == "mechanism" || name == "no SASL") {
			t.Errorf("%s: unfit %v", name, isUnfit(err))
		}
		if err == nil || errors.Is(err, ErrLogin) != c.refused || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got %v, want %q, refused %v", name, err, c.want, c.refused)
		}
	}
}

// TestLoginEnds has a broker that wants a new login after a time (connections.max.reauth.ms).
func TestLoginEnds(t *testing.T) {
	f := newFake(t, func(f *fake, c net.Conn) {
		f.greet(c)
		id, _ := f.Next(c)
		f.answer(c, 1, id, &saslhandshake.Response{})
		id, _ = f.Next(c)
		f.answer(c, 1, id, &saslauthenticate.Response{SessionLifetimeMs: 3_600_000})
		untilClosed(c)
	})
	f.opts.SASL = func(context.Context) (*SASL, error) {
		return &SASL{Mechanism: "plain", Username: "u", Password: "p"}, nil
	}
	c := f.dial()
	if left := time.Until(c.Expires); left < 30*time.Minute || left > 54*time.Minute || !c.Usable() {
		t.Errorf("the login is taken to end in %v, usable %v", left, c.Usable())
	}
}

// TestOddCredentials have no way into an error's text.
func TestOddCredentials(t *testing.T) {
	for _, s := range []SASL{
		{Mechanism: "scram-sha-256", Username: "relay", Password: "secret\x07"},
		{Mechanism: "scram-sha-512", Username: "secret\u200e", Password: "p"},
		{Mechanism: "plain", Username: "relay", Password: "secret\x00"},
		{Mechanism: "plain", Username: "secret\x00", Password: "p"},
		{Mechanism: "gssapi", Username: "secret", Password: "secret"},
	} {
		_, err := s.mechanism()
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got %v", s.Mechanism, err)
		}
	}
	read := errors.New("no such file")
	f := newFake(t, func(f *fake, c net.Conn) {
		f.greet(c)
		untilClosed(c)
	})
	f.opts.SASL = func(context.Context) (*SASL, error) { return nil, read }
	if _, err := Dial(t.Context(), &f.opts, f.addr); !errors.Is(err, read) || errors.Is(err, ErrLogin) {
		t.Errorf("got %v", err)
	}
}

func TestErrorText(t *testing.T) {
	if got := ErrorText(58, "no"); got != "no (58)" {
		t.Errorf("got %q", got)
	}
	if got := ErrorText(58, ""); got != kafkago.SASLAuthenticationFailed.Error() {
		t.Errorf("got %q", got)
	}
}

// TestRounds: a broker that wants 2^31-1 rounds of SCRAM is refused, and no round is computed.
func TestRounds(t *testing.T) {
	err := loginOf(t, SASL{Mechanism: "scram-sha-512", Username: "relay", Password: "top-secret"}, func(f *fake, c net.Conn) {
		id, _ := f.Next(c)
		f.answer(c, 1, id, &saslhandshake.Response{})
		id, req := f.Next(c)
		_, nonce, _ := strings.Cut(string(req.(*saslauthenticate.Request).AuthBytes), "r=")
		f.answer(c, 1, id, &saslauthenticate.Response{AuthBytes: []byte("r=" + nonce + "x,s=c2FsdA==,i=2147483647")})
	})
	if !errors.Is(err, ErrLogin) || !strings.Contains(err.Error(), "2147483647 rounds of SCRAM") {
		t.Errorf("got %v", err)
	}
}

// TestScramRounds: rounds of SCRAM above the bound are refused before they are computed.
func TestScramRounds(t *testing.T) {
	m, err := scram.Mechanism(scram.SHA512, "u", "p")
	if err != nil {
		t.Fatal(err)
	}
	for rounds, refused := range map[string]bool{"4096": false, "100000": false, "100001": true, "2147483647": true, "99999999999999999999": true, "-1": true} {
		s, first, err := boundRounds(m).Start(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, nonce, _ := strings.Cut(string(first), "r=")
		_, _, err = s.Next(t.Context(), []byte("r="+nonce+"x,s=c2FsdA==,i="+rounds))
		if (err != nil) != refused {
			t.Errorf("%s rounds: %v", rounds, err)
		}
	}
}
