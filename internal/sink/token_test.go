package sink

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/oauth2"
)

// scripted is an issuer whose tokens live for an hour.
type scripted struct {
	mu     sync.Mutex
	asked  int
	fails  error
	delay  time.Duration
	life   time.Duration
	source *TokenSource
}

func newScripted() *scripted {
	i := &scripted{life: time.Hour}
	i.source = NewTokenSource("sink.test.oauth.", "change it", func(ctx context.Context) (*oauth2.Token, error) {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.asked++
		select {
		case <-time.After(i.delay):
		case <-ctx.Done():
			return nil, errors.New(askingIssuer + "no answer in time")
		}
		if i.fails != nil {
			return nil, i.fails
		}
		return &oauth2.Token{AccessToken: fmt.Sprint("token ", i.asked), Expiry: time.Now().Add(i.life)}, nil
	})
	return i
}

// goBy lets the bubble's time go by.
func goBy(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // the bubble's time, not ours

func (i *scripted) wants(t *testing.T, want string) {
	t.Helper()
	if got, err := i.source.Token(t.Context()); err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

// A token is kept until four fifths of its life are over, and until its end while the issuer fails.
func TestTokenIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newScripted()
		i.wants(t, "token 1")
		if left := i.source.UntilRenewal("token 1"); left != 48*time.Minute {
			t.Errorf("it is to be renewed in %v", left)
		}
		if left := i.source.UntilRenewal("token 0"); left != 0 {
			t.Errorf("an earlier one is to be replaced in %v", left)
		}
		goBy(48*time.Minute - time.Second)
		i.wants(t, "token 1")
		goBy(2 * time.Second)
		i.wants(t, "token 2")

		i.fails = errors.New("away")
		goBy(49 * time.Minute)
		asked := i.asked
		i.wants(t, "token 2")
		i.wants(t, "token 2")
		if i.asked != asked+1 {
			t.Errorf("the issuer is asked %d times at once", i.asked-asked)
		}
		goBy(10 * time.Minute)
		i.wants(t, "token 2")
		goBy(2 * time.Minute)
		var failed *TokenError
		if token, err := i.source.Token(t.Context()); !errors.As(err, &failed) || failed.Refused() || !strings.Contains(err.Error(), "away") {
			t.Errorf("after its end: %q, %v", token, err)
		}
		i.fails = nil
		goBy(tokenPause)
		if token, err := i.source.Token(t.Context()); err != nil {
			t.Errorf("got %q, %v", token, err)
		}
	})
}

// Logins at the same time ask once, and a failure counts for all of them.
func TestTokenIsAskedForOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newScripted()
		i.delay = time.Second
		all := func() {
			var logins sync.WaitGroup
			for range 10 {
				logins.Go(func() { _, _ = i.source.Token(t.Context()) })
			}
			logins.Wait()
		}
		all()
		if i.asked != 1 {
			t.Errorf("the issuer is asked %d times for a token", i.asked)
		}
		i.fails = errors.New("away")
		goBy(2 * time.Hour)
		all()
		if i.asked != 2 {
			t.Errorf("the issuer that fails is asked %d times", i.asked)
		}

		// A login whose time is up says for whom it has waited; one that is cancelled does not.
		i.delay = time.Hour
		goBy(tokenPause)
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := i.source.Token(short); err == nil || !strings.Contains(err.Error(), "no answer in time") {
			t.Errorf("got %v", err)
		}
		goBy(tokenPause)
		began := time.Now()
		if _, err := i.source.Token(t.Context()); err == nil || time.Since(began) != tokenPatience {
			t.Errorf("got %v after %v", err, time.Since(began))
		}
		goBy(tokenPause)
		ended, end := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, end)
		if _, err := i.source.Token(ended); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

// While the old token is good, a connect waits a second for the issuer, and no other waits with it.
// The renewal of a connection that stands has time.
func TestTokenWhileIssuerHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newScripted()
		i.wants(t, "token 1")
		goBy(49 * time.Minute)
		i.delay = 2 * time.Second
		began := time.Now()
		connect := func(want time.Duration) {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			if token, err := i.source.Token(ctx); err != nil || token != "token 1" || time.Since(began) != want {
				t.Errorf("got %q, %v after %v", token, err, time.Since(began))
			}
		}
		var first sync.WaitGroup
		first.Go(func() { connect(renewPatience) })
		synctest.Wait()
		connect(0)
		first.Wait()
		goBy(tokenPause)
		i.wants(t, "token 3")
	})
}

// An issuer that does not say when its token ends may have written it into the token.
func TestTokenLifeByClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for end, want := range map[time.Duration]time.Duration{100 * time.Second: 80 * time.Second, -time.Second: forEver - forEver/5} {
			token := jwt(fmt.Sprintf(`{"exp": %d}`, time.Now().Add(end).Unix()))
			source := NewTokenSource("x.", "", func(context.Context) (*oauth2.Token, error) { return &oauth2.Token{AccessToken: token}, nil })
			if _, err := source.Token(t.Context()); err != nil || source.UntilRenewal(token) != want {
				t.Errorf("a token that ends in %v is renewed in %v, %v", end, source.UntilRenewal(token), err)
			}
		}
	})
}

// An issuer that says that its token has ended already is not asked at each connect: the broker
// knows.
func TestTokenThatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newScripted()
		i.life = -time.Minute
		i.wants(t, "token 1")
		i.wants(t, "token 1")
		goBy(tokenPause)
		_ = i.source.Refused("token 1", errors.New("it has expired"))
		i.wants(t, "token 2")
	})
}

// jwt is a token with these claims.
func jwt(claims string) string {
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".sig"
}

// A token that a broker has refused is not used again, but a broker that refuses all of them does
// not make the issuer busy.
func TestRefusedToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newScripted()
		i.wants(t, "token 1")
		refused := errors.New("broker refuses")
		err := i.source.Refused("token 1", refused)
		var failed *TokenError
		if !errors.As(err, &failed) || !errors.Is(err, refused) || !failed.Refused() || failed.Fix() != "change it" || err.Error() != "broker refuses" {
			t.Errorf("got %v", err)
		}
		i.wants(t, "token 1")
		goBy(tokenPause)
		_ = i.source.Refused("token 1", refused)
		i.wants(t, "token 2")
		goBy(tokenPause)
		_ = i.source.Refused("token 1", refused) // by a login that began with it
		i.wants(t, "token 2")
	})
}

func TestDescribeToken(t *testing.T) {
	now := time.Unix(1000, 0)
	for token, want := range map[string]string{
		jwt(`{"iss": "https://i", "aud": "kafka", "scope": "a b", "exp": 1001}`): `of issuer https://i, for audience "kafka", with scope "a b"`,
		jwt(`{"iss": "https://i", "aud": ["a"], "exp": 1000}`):                   `of issuer https://i, for audience ["a"], with scope none, and has expired`,
		jwt(`[]`): "",
		"opaque":  "",
		"a.b!.c":  "",
	} {
		if got := describeToken(token, now); got != want {
			t.Errorf("%s: got %q", token, got)
		}
	}
}
