// Who may read and who may change something.

package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"strings"
)

// TokenReader reads a token again at each request, so that it can be rotated; nil is no token.
type TokenReader func() (string, error)

// The tokens that a request may carry.
type rights int

const (
	nobody rights = iota // it carries neither
	reader               // admin.read_token
	// admin.token, or there is no token at all: config allows that on loopback only
	operator
)

// rightsOf compares in constant time. An error means that a token cannot be read.
func (s *Server) rightsOf(r *http.Request) (rights, error) {
	if s.cfg.Token == nil && s.cfg.ReadToken == nil {
		return operator, nil
	}
	given := bearer(r)
	matched := nobody
	for _, one := range []struct {
		read TokenReader
		is   rights
	}{{s.cfg.ReadToken, reader}, {s.cfg.Token, operator}} {
		if one.read == nil {
			continue
		}
		token, err := one.read()
		if err != nil {
			return nobody, err
		}
		if token != "" && equal(given, token) { // an emptied file opens nothing
			matched = one.is
		}
	}
	return matched, nil
}

// authorize lets a request through that may do what it asks for: read with either token, change
// something with admin.token. Without any token the server is on loopback, and the request must
// call it by a name of its own: a page of a site whose name was made to lead here would read
// payloads, and change something.
func (s *Server) authorize(needs func(*http.Request) rights, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		has, err := s.rightsOf(r)
		switch {
		case err != nil:
			writeProblem(w, http.StatusServiceUnavailable, "the token cannot be read: "+err.Error())
		case s.cfg.Token == nil && s.cfg.ReadToken == nil && !loopback(r.Host):
			writeProblem(w, http.StatusForbidden, "without admin.token the API only answers requests to 127.0.0.1 or localhost")
		case has >= needs(r):
			next(w, r)
		case s.cfg.Token == nil && needs(r) == operator:
			writeProblem(w, http.StatusForbidden, "admin.token is not set, and admin.read_token only reads")
		case has == reader:
			writeProblem(w, http.StatusForbidden, "admin.read_token only reads; send admin.token")
		default:
			w.Header().Set("WWW-Authenticate", `Bearer realm="cdc-relay"`)
			writeProblem(w, http.StatusUnauthorized, "send the header Authorization: Bearer TOKEN with admin.token or admin.read_token")
		}
	}
}

// loopback reports whether a Host header names this machine by an address or as localhost.
func loopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return host == "localhost" || net.ParseIP(strings.Trim(host, "[]")) != nil
}

// caller names the one that asks for a change, for the audit.
func (s *Server) caller(r *http.Request) string {
	name := "API without token"
	if s.cfg.Token != nil {
		name = "admin.token"
	}
	from := r.RemoteAddr
	if host, _, err := net.SplitHostPort(from); err == nil {
		from = host
	}
	return name + " from " + from
}

// bearer is the token that a request carries; "" when it carries none.
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

func equal(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}
