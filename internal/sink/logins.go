// What a sink's connections log in with: secrets of the configuration, or an issuer's tokens.

package sink

import (
	"context"
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/config/setting"
)

// Login is a user and a password, which may be a token.
type Login struct{ User, Password string }

// Logins is where the logins of a sink's connections come from, whatever they are.
type Logins struct {
	// Read gives the login of a new connection, and ends with ctx.
	Read func(ctx context.Context) (Login, error)
	// Tokens is where Read has the password from; nil: from elsewhere.
	Tokens *TokenSource
	// Runs reports whether a command makes each login, so that each is another; nil: none does.
	Runs func() bool
}

// SecretLogins reads two secrets again for each login, username and password of a section of the
// configuration, whose name has a dot at its end.
func SecretLogins(section string, username, password setting.Secret) *Logins {
	return &Logins{
		Read: func(ctx context.Context) (l Login, err error) {
			if l.User, err = readSecret(ctx, section+"username", username); err == nil {
				l.Password, err = readSecret(ctx, section+"password", password)
			}
			return l, err
		},
		Runs: func() bool { return username.Runs() || password.Runs() },
	}
}

// Logins are logins with the tokens of the source; user may be the zero value, and key is its key.
func (s *TokenSource) Logins(key string, user setting.Secret) *Logins {
	return &Logins{Tokens: s, Read: func(ctx context.Context) (l Login, err error) {
		if l.User, err = readSecret(ctx, key, user); err == nil {
			l.Password, err = s.Token(ctx)
		}
		return l, err
	}}
}

// Refused notes that a broker has refused a login, and returns the error to report.
func (l *Logins) Refused(login Login, err error) error {
	if l == nil || l.Tokens == nil {
		return err
	}
	return l.Tokens.Refused(login.Password, err)
}

// readSecret reads a secret; its error names the key.
func readSecret(ctx context.Context, key string, s setting.Secret) (string, error) {
	value, err := s.Read(ctx)
	if err != nil {
		err = fmt.Errorf("read %s: %w", key, err)
	}
	return value, err
}
