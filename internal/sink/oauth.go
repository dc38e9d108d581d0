// A login by OAuth 2.0: the settings of its issuer, and how a token is asked for.

package sink

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"unicode"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/cdc-relay/cdc-relay/internal/config/setting"
)

// OAuth names an issuer of access tokens, and the client that asks it for them (client credentials,
// RFC 6749 section 4.4).
type OAuth struct {
	TokenURL               string // "": there is no such login
	ClientID, ClientSecret setting.Secret
	Scopes                 []string
	Audience               string
	CA                     string // PEM file, read at every request; "" is the system's authorities
}

// Keys are its keys; under is the path below the sink's section, with a dot at its end.
func (o *OAuth) Keys(under string) []setting.Key {
	return []setting.Key{
		setting.Text(under+"token_url", &o.TokenURL).
			Doc("The issuer's token endpoint.",
				"Such as `https://login.example/oauth2/token`. The relay asks there for tokens with the client credentials, and again when a fifth of a token's life is left."),
		setting.Password(under+"client_id", &o.ClientID).
			Doc("The client that the token is for."),
		setting.Password(under+"client_secret", &o.ClientSecret).
			Doc("Its secret, usually `${file:/run/secrets/...}`."),
		setting.Texts(under+"scopes", &o.Scopes, setting.AnyText(), "", func(scope string) error {
			if scope == "" || strings.ContainsAny(scope, " \t") {
				return fmt.Errorf("has %q, want one scope in each item of the list", scope)
			}
			return nil
		}).Doc("The scopes to ask for."),
		setting.Text(under+"audience", &o.Audience).
			Doc("The parameter `audience`, which some issuers want."),
		setting.Text(under+"ca", &o.CA).
			Doc("PEM file of the issuer's CA. Empty: the system's."),
	}
}

// Validate reports what is wrong with the values together. wanted says that the login uses them, by
// what the configuration says in want.
func (o *OAuth) Validate(v *Validation, under string, wanted bool, want string) {
	at := v.Section + under
	if !wanted {
		for _, part := range []struct {
			key string
			set bool
		}{
			{"token_url", o.TokenURL != ""},
			{"client_id", o.ClientID.IsSet()},
			{"client_secret", o.ClientSecret.IsSet()},
			{"scopes", len(o.Scopes) > 0},
			{"audience", o.Audience != ""},
			{"ca", o.CA != ""},
		} {
			if part.set {
				v.FaultAt(at+part.key, errors.New("has no effect without "+want))
			}
		}
		return
	}
	if !v.IsFaulty(at + "token_url") {
		v.FaultAt(at+"token_url", checkTokenURL(o.TokenURL))
	}
	for _, part := range []struct {
		key   string
		value setting.Secret
	}{{at + "client_id", o.ClientID}, {at + "client_secret", o.ClientSecret}} {
		if !part.value.IsSet() && !v.IsFaulty(part.key) {
			v.FaultAt(part.key, errors.New("is not set, and a token is asked for with it"))
		}
	}
}

func checkTokenURL(written string) error {
	u, err := url.Parse(written)
	switch {
	case written == "":
		return errors.New("is not set: want the issuer's token endpoint, such as https://login.example/oauth2/token")
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return errors.New("cannot be used: want the issuer's token endpoint, such as https://login.example/oauth2/token")
	case u.User != nil || u.Fragment != "":
		return errors.New("has a user or a fragment in it: write client_id and client_secret instead")
	}
	return nil
}

// FindClear warns of an issuer that is asked without TLS; section is where o is, with a dot at its
// end.
func (o *OAuth) FindClear(section string) []Finding {
	u, err := url.Parse(o.TokenURL)
	if err != nil || u.Scheme != "http" || Loopback(u.Hostname()) {
		return nil
	}
	return []Finding{{
		Name: "login", Warn: true, Detail: "the issuer at " + u.Host + " is asked without TLS: whoever is in between reads the client secret and the tokens",
		Fix: section + "token_url: https://…",
	}}
}

// Tokens is a source of tokens by these settings; section is where they are, with a dot at its end.
func (o *OAuth) Tokens(section string) *TokenSource {
	// It is kept: from the first answer on it knows how the issuer wants the secret.
	grant := clientcredentials.Config{TokenURL: o.TokenURL, Scopes: o.Scopes}
	if o.Audience != "" {
		grant.EndpointParams = url.Values{"audience": {o.Audience}}
	}
	tls := TLS{CA: o.CA}.Load(strings.TrimSuffix(section, "."))
	fix := "compare issuer, audience and scopes of the token with what the broker expects, and the clocks; " + strings.TrimSuffix(section, ".") + " is what is asked for"
	return NewTokenSource(section, fix, func(ctx context.Context) (_ *oauth2.Token, err error) {
		if grant.ClientID, err = readSecret(ctx, section+"client_id", o.ClientID); err != nil {
			return nil, err
		}
		if grant.ClientSecret, err = readSecret(ctx, section+"client_secret", o.ClientSecret); err != nil {
			return nil, err
		}
		trust, err := tls()
		if err != nil {
			return nil, err
		}
		client := &http.Client{
			Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: trust, DisableKeepAlives: true, ForceAttemptHTTP2: true, MaxResponseHeaderBytes: 64 << 10},
			// the secret is for the configured address alone
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
		token, err := grant.Token(context.WithValue(ctx, oauth2.HTTPClient, client))
		switch {
		case err != nil:
			return nil, explainIssuer(ctx, o.TokenURL, err)
		case len(token.AccessToken) > maxToken:
			return nil, fmt.Errorf("%s%s: the answer is no token: it has more than %d KiB", askingIssuer, o.TokenURL, maxToken>>10)
		case strings.ContainsFunc(token.AccessToken, func(r rune) bool { return r <= ' ' || r > '~' }):
			return nil, errors.New(askingIssuer + o.TokenURL + ": the answer is no token: it has a character that none has")
		}
		return token, nil
	})
}

// NoToken is why there is no token, when more is known than a text. Refused: the answer is that
// this client gets none, which does not pass by itself. Fix says what to do; "": look at the
// settings of the issuer.
type NoToken struct {
	Text, Fix string
	Refused   bool
}

func (n *NoToken) Error() string { return n.Text }

// maxToken is below what Kafka takes, in bytes. RabbitMQ takes less before a login: 4 KiB, and from
// 4.1 on 8 KiB, unless its initial_frame_max is raised.
const maxToken = 64 << 10

// askingIssuer begins the errors of issuers.
const askingIssuer = "ask the issuer: "

// explainIssuer makes one line of an issuer's error, without the body of its answer, which is
// somebody's page as often as not.
func explainIssuer(ctx context.Context, tokenURL string, err error) error {
	var answer *oauth2.RetrieveError
	var network *url.Error
	what := askingIssuer + tokenURL + ": "
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return errors.New(what + "no answer in time")
	case errors.As(err, &answer):
		text := CutText(answer.Response.Status)
		if answer.ErrorCode != "" {
			text += ", " + CutText(answer.ErrorCode)
		}
		if answer.ErrorDescription != "" {
			text += " (" + CutText(answer.ErrorDescription) + ")"
		}
		switch status := answer.Response.StatusCode; {
		case status == http.StatusProxyAuthRequired, status == http.StatusTooManyRequests, status == http.StatusRequestTimeout:
		case status >= 400 && status < 500:
			return &NoToken{Text: what + text, Refused: true}
		}
		return errors.New(what + text)
	case errors.As(err, &network):
		return fmt.Errorf("%s%w", what, cutError{network.Err})
	}
	return errors.New(what + "the answer is no token: " + CutText(strings.TrimPrefix(err.Error(), "oauth2: ")))
}

// CutText is a text of somebody else's, in one line of bounded length and without control
// characters.
func CutText(text string) string {
	const most = 200 // runes
	line := []rune(strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " "))
	if len(line) > most {
		return string(line[:most]) + "…"
	}
	return string(line)
}

// cutError is an error whose text is cut.
type cutError struct{ error }

func (e cutError) Error() string { return CutText(e.error.Error()) }

func (e cutError) Unwrap() error { return e.error }

// TokenError is a login by token that failed.
type TokenError struct {
	refusedBy string // the fix when the broker has refused the token; "": there was no token
	token     string // what it was, as far as that can be said
	section   string
	err       error
}

// Error is one line.
func (e *TokenError) Error() string {
	switch {
	case e.refusedBy == "":
		return "get a token: " + e.err.Error()
	case e.token == "":
		return e.err.Error()
	}
	return e.err.Error() + "; the token is " + e.token
}

func (e *TokenError) Unwrap() error { return e.err }

// Refused reports whether issuer or broker have answered and refused. It is false when the issuer
// cannot be reached, or gives something else than tokens.
func (e *TokenError) Refused() bool {
	var why *NoToken
	return e.refusedBy != "" || errors.As(e.err, &why) && why.Refused
}

// Fix says what to do about it.
func (e *TokenError) Fix() string {
	section := strings.TrimSuffix(e.section, ".")
	var why *NoToken
	switch {
	case e.refusedBy != "":
		return e.refusedBy
	case errors.As(e.err, &why) && why.Fix != "":
		return why.Fix
	case e.Refused():
		return "check client_id, client_secret, scopes and audience of " + section
	case !strings.HasPrefix(e.err.Error(), askingIssuer):
		return "correct what this line names in " + section
	}
	fix := strings.ReplaceAll(FixTLS(section, e.err), "broker's", "issuer's")
	return cmp.Or(fix, "check "+section+".token_url, and that the issuer works and is reached from here, by the proxy of HTTPS_PROXY if there is one")
}
