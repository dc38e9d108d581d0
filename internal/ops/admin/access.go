// Who may read and who may change something.

package admin

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/user"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/cdc-relay/cdc-relay/internal/secretfile"
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

// String is the role of a token with these rights.
func (r rights) String() string { return [...]string{"none", "read", "operate"}[r] }

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
			w.Header().Set("Cdc-Relay-Role", who.may.String())
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

// sparing lets one line through in logEvery. Without it a loop of bad requests fills the disk that
// holds the log.
type sparing struct {
	mu   sync.Mutex
	last time.Time
	more int // held back since
}

const logEvery = 10 * time.Second

// due reports whether a line may be logged now, and how many were not since the last one.
func (s *sparing) due() (more int, due bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); s.last.IsZero() || now.Sub(s.last) >= logEvery {
		more, s.more, s.last = s.more, 0, now
		return more, true
	}
	s.more++
	return 0, false
}

// sparingCore logs what net/http reports, such as handshakes that fail.
type sparingCore struct {
	zapcore.Core
	*sparing
}

// Check implements zapcore.Core.
func (c sparingCore) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if _, due := c.due(); !due {
		return checked
	}
	return c.Core.Check(entry, checked)
}

// logSparingly gives a server of net/http a logger at the level warn.
func logSparingly(server *http.Server, log *zap.Logger) {
	log = log.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core { return sparingCore{c, &sparing{}} }))
	var err error
	if server.ErrorLog, err = zap.NewStdLogAt(log, zap.WarnLevel); err != nil {
		panic(err) // there is no such level
	}
}

// faults are the errors of what delivery does not depend on, such as a token's file. Each is logged
// when it changes, not at every request.
type faults struct {
	mu   sync.Mutex
	said map[string]string // by name; none: it works
}

// report logs an error that is new; nil clears it.
func (f *faults) report(log *zap.Logger, name string, err error) {
	why := ""
	if err != nil {
		why = err.Error()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.said[name] == why {
		return
	}
	if f.said == nil {
		f.said = map[string]string{}
	}
	if f.said[name] = why; why != "" {
		log.Warn("admin access is limited, delivery goes on", zap.String("reason", why))
	}
}

// TLSFiles names PEM files; an empty Key is in the file of Cert. Without a Cert there is no TLS.
type TLSFiles struct {
	Cert, Key string
	CA        string // clients must have a certificate that it signed; "": need not
}

// soon is how long before its end a certificate is worth a warning.
const soon = 7 * 24 * time.Hour

// load reads the files.
func (f TLSFiles) load() (*tls.Config, error) {
	key := cmp.Or(f.Key, f.Cert)
	if err := secretfile.Check(key); err != nil {
		return nil, fmt.Errorf("admin.tls.key: %w", err)
	}
	pair, err := tls.LoadX509KeyPair(f.Cert, key)
	if err != nil {
		return nil, fmt.Errorf("admin.tls.cert: cannot use %s: %w: want PEM files that belong together and that the relay may read", f.Cert, err)
	}
	out := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}}
	if f.CA != "" {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, fmt.Errorf("admin.tls.ca: %w", err)
		}
		out.ClientCAs, out.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		if !out.ClientCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("admin.tls.ca: no certificate in %s: want a PEM file", f.CA)
		}
	}
	return out, nil
}

// Fault is what keeps clients from the server now, or soon will: one sentence with the fix.
func (f TLSFiles) Fault(now time.Time) error {
	loaded, err := f.load()
	if err != nil {
		return err
	}
	return f.expiry(loaded, now)
}

// expiry is an error about a certificate that is not valid now, or soon will not be: it is used
// nevertheless, for whether to take it is the client's choice.
func (f TLSFiles) expiry(loaded *tls.Config, now time.Time) error {
	begins, ends := loaded.Certificates[0].Leaf.NotBefore, loaded.Certificates[0].Leaf.NotAfter
	is := "expires"
	switch {
	case now.Before(begins):
		return fmt.Errorf("the certificate %s of admin.tls is valid only from %s: correct the clock, or wait", f.Cert, begins.UTC().Format(time.RFC3339))
	case now.Before(ends.Add(-soon)):
		return nil
	case now.After(ends):
		is = "has expired"
	}
	return fmt.Errorf("the certificate %s of admin.tls %s on %s: replace the file", f.Cert, is, ends.UTC().Format(time.RFC3339))
}

// certificate is what the server shows at a handshake.
type certificate struct {
	files TLSFiles
	log   *zap.Logger
	now   func() time.Time

	mu     sync.Mutex
	seen   [3]stamp
	loaded *tls.Config // nil: nothing could be loaded yet
	broken faults
}

// stamp tells one state of a file from the next.
type stamp struct {
	changed time.Time
	size    int64
}

func stampOf(path string) stamp {
	if info, err := os.Stat(path); err == nil {
		return stamp{info.ModTime(), info.Size()}
	}
	return stamp{}
}

// config is a tls.Config's GetConfigForClient. Files that changed and cannot be used leave what was
// loaded before: they are replaced one by one.
func (c *certificate) config(*tls.ClientHelloInfo) (*tls.Config, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := [3]stamp{stampOf(c.files.Cert), stampOf(c.files.Key), stampOf(c.files.CA)}
	var err error
	if c.loaded == nil || now != c.seen {
		var loaded *tls.Config
		if loaded, err = c.files.load(); err == nil {
			c.loaded, c.seen = loaded, now
		}
	}
	if err == nil { // a certificate ends without a change of its file
		err = c.files.expiry(c.loaded, c.now())
	}
	c.broken.report(c.log, "admin.tls", err)
	if c.loaded == nil {
		return nil, errors.New("no certificate could be loaded")
	}
	return c.loaded, nil
}
