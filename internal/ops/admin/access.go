// Who may read and who may change something.

package admin

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/user"
	"strconv"
	"strings"

	"go.uber.org/zap"
)

// Token opens the API for whoever sends its value.
type Token struct {
	Name    string // recorded with every change
	Operate bool   // may change something, too
	// Read gives the value as it is now, so that it can be rotated. Its error is one sentence with
	// the fix; such a token opens nothing, and the others are as good as before.
	Read func() (string, error)
}

// rights are what a caller may do.
type rights int

const (
	nobody rights = iota
	reader
	operator // reads, too
)

// caller is who asks: for the audit, and what it may do.
type caller struct {
	who string // token NAME, or socket USER
	may rights
}

// peer is the process at the other end of the socket, as the kernel names it.
type peer struct{ uid int }

type peerKey struct{}

// callerKey is of who authorize has let through: the audit names the one that was, though its token
// has changed since.
type callerKey struct{}

// caller gives root and the relay's own user every right, and others none: they could read the
// relay's memory anyway.
func (p peer) caller() caller {
	if p.uid != 0 && p.uid != os.Geteuid() {
		return caller{}
	}
	name := "uid " + strconv.Itoa(p.uid)
	if u, err := user.LookupId(strconv.Itoa(p.uid)); err == nil {
		name = u.Username
	}
	return caller{"socket " + name, operator}
}

// callerOf finds who sends a request: the peer of the Unix socket, or the token's name. Tokens are
// compared in constant time. A connection that has no right is nobody's.
func (s *Server) callerOf(r *http.Request) caller {
	if p, ok := r.Context().Value(peerKey{}).(peer); ok {
		return p.caller()
	}
	var found caller
	given := bearer(r)
	if given == "" {
		return found
	}
	for i := range s.cfg.Tokens {
		t := &s.cfg.Tokens[i]
		value, err := t.Read()
		s.broken.report(s.cfg.Log, "token "+t.Name, err)
		if err != nil || value == "" || !equal(given, value) {
			continue
		}
		if found = (caller{"token " + t.Name, reader}); t.Operate {
			found.may = operator
			break
		}
	}
	return found
}

// authorize lets a request through that may do what it asks for. Nothing of /api is open, on
// loopback neither: any user of this host, and any page of a site whose name was made to lead here,
// can reach it.
func (s *Server) authorize(needs func(*http.Request) rights, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if otherSite(r) {
			s.refuse(w, r, http.StatusForbidden, "another site's page asks for this")
			return
		}
		who := s.callerOf(r)
		switch _, socket := r.Context().Value(peerKey{}).(peer); {
		case who.may >= needs(r):
			next(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, who)))
		case socket:
			s.refuse(w, r, http.StatusForbidden, "the socket is for root and the relay's own user")
		case who.may == reader:
			s.refuse(w, r, http.StatusForbidden, "this token has the role read; a change needs one with the role operate")
		case len(s.cfg.Tokens) == 0:
			s.refuse(w, r, http.StatusUnauthorized, "no token is configured: set admin.tokens, or ask through admin.socket")
		default:
			s.refuse(w, r, http.StatusUnauthorized, "send the header Authorization: Bearer TOKEN with one of admin.tokens")
		}
	}
}

// knows reports whether a probe may tell details to whoever asks. A wrong token counts as refused.
func (s *Server) knows(r *http.Request) bool {
	if s.callerOf(r).may >= reader {
		return true
	}
	if bearer(r) != "" {
		s.refused(r, http.StatusUnauthorized)
	}
	return false
}

// refuse answers 401 or 403, counts it, and logs it now and then.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, code int, detail string) {
	s.refused(r, code)
	if code == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="cdc-relay"`)
	}
	writeProblem(w, code, detail)
}

func (s *Server) refused(r *http.Request, code int) {
	s.cfg.Metrics.AdminRefused(code)
	if more, due := s.refusals.due(); due {
		s.cfg.Log.Warn("admin request refused", zap.Int("code", code), zap.String("method", r.Method), zap.String("path", r.URL.Path),
			zap.String("from", r.RemoteAddr), zap.Int("more_since", more))
	}
}

// otherSite reports whether a browser asks for a page of another site. A browser sends Origin with
// what could be read by a script.
func otherSite(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" {
		return true
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return false
	}
	u, err := url.Parse(origin)
	return err != nil || u.Host != r.Host
}

// callerName names the one that asks for a change, for the audit.
func callerName(r *http.Request) string {
	asks, _ := r.Context().Value(callerKey{}).(caller)
	who := asks.who
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		who += " from " + host
	}
	return who
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
