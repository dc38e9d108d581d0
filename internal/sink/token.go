// Tokens for logins: kept while they are good, and renewed before they end.

package sink

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"

	"golang.org/x/oauth2"
)

const (
	// tokenPatience is for one request, so that a connect has time left for the broker.
	tokenPatience = 8 * time.Second
	// renewPatience is that of a connect while the old token is good.
	renewPatience = time.Second
	// tokenPause is the shortest time between two requests, also when the broker refuses what the
	// issuer gives, or the issuer fails.
	tokenPause = 2 * time.Second
)

// TokenSource gives the tokens of one login. Its methods may be called from several goroutines.
type TokenSource struct {
	section string
	fix     string // when a broker refuses a token
	fetch   func(ctx context.Context) (*oauth2.Token, error)
	turn    chan struct{} // taken by the one that asks the issuer

	mu      sync.Mutex
	token   string // "": there is none
	ends    time.Time
	renewAt time.Time // from then on a new one is asked for; the token may be good for longer
	askedAt time.Time
	failure error // of the last request; nil: it has brought the token
}

// forEver is the life of a token that nothing says the end of, until a broker refuses it.
const forEver = 100 * 365 * 24 * time.Hour

// NewTokenSource makes a source of what fetch gets; section is where its settings are, with a dot
// at its end, and fix what to do when a broker refuses a token.
func NewTokenSource(section, fix string, fetch func(ctx context.Context) (*oauth2.Token, error)) *TokenSource {
	return &TokenSource{section: section, fix: fix, fetch: fetch, turn: make(chan struct{}, 1)}
}

// Token returns a token that is good for a while. When four fifths of its life are over a new one
// is asked for; while the issuer fails, the old one is returned until it ends. A ctx with a
// deadline is that of a connect, which does not wait long for a new one then. An error is a
// *TokenError, or that of ctx.
func (s *TokenSource) Token(ctx context.Context) (string, error) {
	token, fresh, good := s.kept()
	if fresh {
		return token, nil
	}
	select {
	case s.turn <- struct{}{}:
	default:
		if good {
			return token, nil
		}
		select {
		case s.turn <- struct{}{}:
		case <-ctx.Done():
			return "", s.endOf(ctx, errors.New(askingIssuer+"an earlier request has no answer yet"))
		}
	}
	defer func() { <-s.turn }()
	if token, fresh, good = s.kept(); fresh { // somebody else has asked
		return token, nil
	}
	if failure := s.recentFailure(); failure != nil {
		return "", failure
	}
	patience := tokenPatience
	if _, connects := ctx.Deadline(); connects && good {
		patience = renewPatience
	}
	asking, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	began := time.Now()
	answer, err := s.fetch(asking)
	if err != nil && errors.Is(ctx.Err(), context.Canceled) {
		return "", ctx.Err() // the caller's end says nothing of the issuer
	}
	return s.keep(began, answer, err)
}

// endOf is the error of a caller whose ctx has ended: why it had to wait, if its time was up.
func (s *TokenSource) endOf(ctx context.Context, why error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	return &TokenError{section: s.section, err: why}
}

// kept returns the token. It is fresh if none is to be asked for now, and good until it ends.
func (s *TokenSource) kept() (token string, fresh, good bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	return s.token, s.token != "" && now.Before(s.renewAt), s.token != "" && now.Before(s.ends)
}

// recentFailure returns why there is no token, if that was found out just now.
func (s *TokenSource) recentFailure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.token == "" && time.Since(s.askedAt) < tokenPause {
		return s.failure
	}
	return nil
}

// keep notes the answer to a request that began at this time, and returns the token to use.
func (s *TokenSource) keep(began time.Time, answer *oauth2.Token, err error) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.askedAt, s.failure = time.Now(), nil
	if err == nil {
		life := lifeByClaims(answer.AccessToken, began)
		if left := answer.Expiry.Sub(began); left > 0 { // else the issuer's word is as good as none
			life = left
		}
		s.token, s.ends, s.renewAt = answer.AccessToken, began.Add(life), began.Add(life-life/5)
		return s.token, nil
	}
	s.failure = &TokenError{section: s.section, err: err}
	if s.token != "" && s.askedAt.Before(s.ends) {
		s.renewAt = s.askedAt.Add(min(tokenPause, s.ends.Sub(s.askedAt)/2))
		return s.token, nil
	}
	s.token = ""
	return "", s.failure
}

// UntilRenewal is how long this token need not be replaced; 0: there is a newer one, or one may be
// asked for now.
func (s *TokenSource) UntilRenewal(token string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if token != s.token {
		return 0
	}
	return max(0, time.Until(s.renewAt))
}

// Refused notes that a broker has refused the token: the next login asks for a new one. (The clock
// of the machine may have stood still, or the issuer has new keys.) It returns err as a *TokenError
// that describes the token. An error of Token itself is returned as it is: no broker has seen that.
func (s *TokenSource) Refused(token string, err error) error {
	if errors.As(err, new(*TokenError)) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	refused := &TokenError{refusedBy: s.fix, token: describeToken(token, time.Now()), err: err}
	if token == s.token && time.Since(s.askedAt) >= tokenPause {
		s.token = ""
	}
	return refused
}

// claims are what a JSON web token says of itself.
type claims struct {
	Issuer   string          `json:"iss"`
	Audience json.RawMessage `json:"aud"`
	Scope    json.RawMessage `json:"scope"`
	Expires  float64         `json:"exp"` // Unix seconds
}

// readClaims returns false for a token that is no JSON web token.
func readClaims(token string) (c claims, ok bool) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return c, false
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	return c, errors.Join(err, json.Unmarshal(text, &c)) == nil
}

// lifeByClaims is how long a token is good, by its claims alone. By a clock that is wrong it may
// have ended already: then only the broker knows.
func lifeByClaims(token string, now time.Time) time.Duration {
	c, ok := readClaims(token)
	left := c.Expires - float64(now.Unix())
	if !ok || left <= 0 || left >= forEver.Seconds() {
		return forEver
	}
	return time.Duration(left * float64(time.Second))
}

// describeToken says for whom a token is, by its claims; "" for one that is no JSON web token.
func describeToken(token string, now time.Time) string {
	c, ok := readClaims(token)
	if !ok {
		return ""
	}
	said := "of issuer " + CutText(c.Issuer) + ", for audience " + orNone(c.Audience) + ", with scope " + orNone(c.Scope)
	if c.Expires != 0 && float64(now.Unix()) >= c.Expires {
		said += ", and has expired"
	}
	return said
}

func orNone(claim json.RawMessage) string {
	if len(claim) == 0 {
		return "none"
	}
	return CutText(string(claim))
}
