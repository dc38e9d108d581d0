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

// authorize lets a request through that carries one of the tokens; without any token, every one:
// config allows that on loopback only. Tokens are compared in constant time.
func authorize(next http.HandlerFunc, tokens ...TokenReader) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		given, _ := bearer(r)
		wanted, matched := 0, 0
		for _, read := range tokens {
			if read == nil {
				continue
			}
			wanted++
			token, err := read()
			if err != nil {
				writeProblem(w, http.StatusServiceUnavailable, "the token cannot be read: "+err.Error())
				return
			}
			if token != "" { // an emptied file opens nothing
				matched |= equal(given, token)
			}
		}
		if wanted > 0 && matched == 0 {
			w.Header().Set("WWW-Authenticate", `Bearer realm="cdc-relay"`)
			writeProblem(w, http.StatusUnauthorized, "send the header Authorization: Bearer TOKEN with admin.token or admin.read_token")
			return
		}
		next(w, r)
	}
}

// requireLoopbackName lets a request through that calls this server by a name of its own. Without
// any token it is on loopback, and the name must be loopback's too: a page of a site whose name was
// made to lead here would read payloads, and change something.
func (s *Server) requireLoopbackName(next http.HandlerFunc) http.HandlerFunc {
	if s.cfg.Token != nil || s.cfg.ReadToken != nil {
		return next
	}
	return func(w http.ResponseWriter, r *http.Request) {
		if !loopback(r.Host) {
			writeProblem(w, http.StatusForbidden, "without admin.token the API only answers requests to 127.0.0.1 or localhost")
			return
		}
		next(w, r)
	}
}

// requireOperator lets a request through that may change something: one with admin.token, or any
// when there is no token at all.
func (s *Server) requireOperator(next http.HandlerFunc) http.HandlerFunc {
	with := authorize(next, s.cfg.Token)
	return func(w http.ResponseWriter, r *http.Request) {
		switch {
		case s.cfg.Token != nil:
			if given, err := matches(r, s.cfg.ReadToken); err == nil && given {
				if full, err := matches(r, s.cfg.Token); err == nil && !full {
					writeProblem(w, http.StatusForbidden, "admin.read_token only reads; send admin.token")
					return
				}
			}
			with(w, r)
		case s.cfg.ReadToken != nil:
			writeProblem(w, http.StatusForbidden, "admin.token is not set, and admin.read_token only reads")
		default:
			with(w, r)
		}
	}
}

// matches reports whether a request carries the token.
func matches(r *http.Request, read TokenReader) (bool, error) {
	if read == nil {
		return false, nil
	}
	token, err := read()
	given, _ := bearer(r)
	return token != "" && equal(given, token) == 1, err
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

func bearer(r *http.Request) (token string, ok bool) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", false
	}
	return strings.TrimSpace(token), true
}

func equal(a, b string) int {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:])
}
