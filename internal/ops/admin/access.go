// Who may use the API: the tokens, the user behind a Unix socket, requests of other sites' pages,
// and TLS.

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
	Name    string // the audit has it with every change
	Operate bool   // the caller may also change something
	// Read returns the value as the file has it now, so that a token can be rotated while the relay
	// runs. Its error is one sentence with the fix. A token with an error opens nothing; the other
	// tokens are not affected.
	Read func() (string, error)
}

// rights are what a caller may do.
type rights int

const (
	nobody rights = iota
	reader
	operator // may read, too
)

// String returns the role that a token with these rights has.
func (r rights) String() string { return [...]string{"none", "read", "operate"}[r] }

// caller is who sends a request: its name for the audit, and what it may do.
type caller struct {
	who string // token NAME, or socket USER
	may rights
}

// peer is the process at the other end of a Unix socket, as the kernel names it.
type peer struct{ uid int }

// peerKey is the key of the peer in a connection's context. Only connections of the Unix socket
// have one.
type peerKey struct{}

// callerKey is the key, in a request's context, of the caller that authorize has let through. The
// audit names this caller even if its token has changed since.
type callerKey struct{}

// caller gives every right to root and to the relay's own user, who could read the relay's memory
// anyway, and no right to other users.
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

// callerOf returns who sends a request: the peer of the Unix socket, or the token that it carries.
// Tokens are compared in constant time. A request without a right gets a caller without a name.
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

// authorize wraps a handler: a request reaches it only if its caller has the rights that needs
// returns. Nothing below /api is open, not even on loopback: any user of this host can reach
// loopback, and so can any page of a site whose name was made to lead there.
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

// knows reports whether the caller may read details in the answer of a probe. A request with a
// wrong token gets the short answer, like one without a token, but is counted and logged as
// refused.
func (s *Server) knows(r *http.Request) bool {
	if s.callerOf(r).may >= reader {
		return true
	}
	if bearer(r) != "" {
		s.refused(r, http.StatusUnauthorized)
	}
	return false
}

// refuse answers 401 or 403. refused counts and logs the request.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, code int, detail string) {
	s.refused(r, code)
	if code == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="cdc-relay"`)
	}
	writeProblem(w, code, detail)
}

// refused counts a request without the right, and logs it unless another one was logged less than
// logEvery ago.
func (s *Server) refused(r *http.Request, code int) {
	s.cfg.Metrics.AdminRefused(code)
	if more, due := s.refusals.due(); due {
		s.cfg.Log.Warn("admin request refused", zap.Int("code", code), zap.String("method", r.Method), zap.String("path", r.URL.Path),
			zap.String("from", r.RemoteAddr), zap.Int("more_since", more))
	}
}

// otherSite reports whether a page of another site made a browser send the request. Browsers mark
// such requests with Sec-Fetch-Site, and with Origin those whose answer a script could read.
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

// callerName returns who asks for a change, with the address, as the audit has it.
func callerName(r *http.Request) string {
	asks, _ := r.Context().Value(callerKey{}).(caller)
	who := asks.who
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		who += " from " + host
	}
	return who
}

// bearer returns the token that a request carries, or "".
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// equal compares two secrets in constant time, also when their lengths differ.
func equal(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// sparing says when the next line may be logged: one in logEvery. Without it a loop of bad requests
// would fill the disk that holds the log.
type sparing struct {
	mu   sync.Mutex
	last time.Time
	more int // lines that were not logged since the last one
}

const logEvery = 10 * time.Second

// due reports whether a line may be logged now, and how many lines were held back since the last
// one.
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

// sparingCore is a zap core that drops lines that come too often. It is for what net/http reports
// itself, such as handshakes that fail.
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

// logSparingly makes a server of net/http log its own errors as warnings, at most one in logEvery.
func logSparingly(server *http.Server, log *zap.Logger) {
	log = log.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core { return sparingCore{c, &sparing{}} }))
	var err error
	if server.ErrorLog, err = zap.NewStdLogAt(log, zap.WarnLevel); err != nil {
		panic(err) // cannot happen: the level exists
	}
}

// faults are the errors of parts that delivery does not depend on, such as the file of a token.
// Each is logged when it changes, not at every request.
type faults struct {
	mu sync.Mutex
	// the last error of each part by its name; a part that works has "" or no entry
	said map[string]string
}

// report logs an error of a part if it differs from the last one. nil means that the part works
// again.
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

// TLSFiles names the PEM files of admin.tls. An empty Key means that Cert's file has the key, too.
// An empty Cert means that there is no TLS.
type TLSFiles struct {
	Cert, Key string
	// clients must show a certificate that this authority signed; "" lets clients come without one
	CA string
}

// soon is how long before a certificate expires there is a warning.
const soon = 7 * 24 * time.Hour

// load reads the files and makes the TLS settings of the server.
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

// Fault returns why clients cannot use the server now or soon, in one sentence with the fix.
// `check` shows it.
func (f TLSFiles) Fault(now time.Time) error {
	loaded, err := f.load()
	if err != nil {
		return err
	}
	return f.expiry(loaded, now)
}

// expiry returns an error for a certificate that is not valid now or expires soon. The server uses
// such a certificate nevertheless, because whether to accept it is the client's choice.
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

// certificate is the certificate that the server shows at a handshake. It is read again when its
// files change.
type certificate struct {
	files TLSFiles
	log   *zap.Logger
	now   func() time.Time

	mu     sync.Mutex
	seen   [3]stamp
	loaded *tls.Config // nil while no certificate could be loaded
	broken faults
}

// stamp tells whether a file has changed, by its time and size.
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

// config is the GetConfigForClient of the server's TLS settings; net/http calls it at every
// handshake. If the files have changed and cannot be used, the former certificate stays: files are
// replaced one by one, and between two replacements they do not belong together.
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
	if err == nil { // a certificate expires though its file does not change
		err = c.files.expiry(c.loaded, c.now())
	}
	c.broken.report(c.log, "admin.tls", err)
	if c.loaded == nil {
		return nil, errors.New("no certificate could be loaded")
	}
	return c.loaded, nil
}
