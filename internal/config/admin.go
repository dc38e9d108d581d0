// The section admin: who may ask the relay over HTTP, where and how.

package config

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/config/setting"
	"github.com/cdc-relay/cdc-relay/internal/lazy"
)

// Admin is the HTTP server for metrics, probes and the API.
type Admin struct {
	Listen        string // host:port
	MetricsListen string // host:port of /metrics and the probes alone; "": they are on Listen
	Socket        string // path of a Unix socket for the commands on the same host; "": none
	Advertise     string // http(s) address by which standbys link this relay; "": they do not
	TLS           AdminTLS
	Tokens        []Token // none: the API answers on Socket only
	ShowPayloads  bool    // by the commands and the API
}

// AdminTLS names PEM files of Listen, which are read again when they change; all "" is no TLS.
type AdminTLS struct {
	Cert, Key string // an empty Key is in the file of Cert
	// clients must have a certificate that it signed, next to a token; "": need not
	CA string
}

// The roles of Token.Role. Who may operate may read, too.
const (
	RoleRead    = "read"
	RoleOperate = "operate"
)

// Token opens the API for whoever sends it. A request that changes something is recorded with its
// name.
type Token struct {
	Name, Role string
	Value      setting.Secret
}

// shortestToken is the least length of a token: whoever reaches the port may try as many as it
// likes.
const shortestToken = 16

// Read is the token's value as it is now. The error is one sentence with the fix: the file is
// missing, others may read it, or what it holds is too short. Such a token opens nothing.
func (t *Token) Read() (string, error) {
	for _, path := range t.Value.Files() {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			fix := "create it"
			if _, whole := t.Value.File(); whole {
				fix = "`cdc-relay init` creates it"
			}
			return "", fmt.Errorf("the file %s of token %q is missing: %s", path, t.Name, fix)
		}
	}
	value, err := t.Value.Read(context.Background())
	switch value = strings.TrimSpace(value); {
	case errors.Is(err, fs.ErrPermission):
		return "", fmt.Errorf("cannot read token %q: %w: chown it to the relay's user", t.Name, err)
	case err != nil:
		return "", fmt.Errorf("cannot read token %q: %w", t.Name, err)
	case value == "":
		return "", fmt.Errorf("token %q is empty: write at least %d characters, such as `openssl rand -hex 32` prints", t.Name, shortestToken)
	case len(value) < shortestToken:
		return "", fmt.Errorf("token %q has fewer than %d characters: use a longer one, such as `openssl rand -hex 32` prints", t.Name, shortestToken)
	}
	return value, nil
}

var tokenName = lazy.Regexp(`^[A-Za-z0-9._-]{1,64}$`)

// tokensKey is the list admin.tokens.
func (l *loader) tokensKey(path string) setting.Key {
	text := func(what string) setting.Form { return setting.Form{"type": setting.PlainTypes, "description": what} }
	one := setting.Form{
		"type": "object", "required": []string{"name", "role", "value"}, "additionalProperties": false,
		"properties": setting.Form{
			"name":  text("recorded with every change"),
			"role":  setting.Form{"enum": []string{RoleRead, RoleOperate}, "description": "read may read, operate may also change"},
			"value": text("the token, usually as ${file:/path}"),
		},
	}
	return setting.Key{
		Name: path, Kind: setting.List,
		Form:         setting.AnyOf(setting.Form{"type": "string", "pattern": `\$\{`}, setting.Form{"type": "array", "items": one}),
		FromVariable: tokensFromVariable,
		Set:          func(_ *setting.Reader, path string, n *setting.Node) { l.tokens(path, n) },
		Secrets: func() (values []setting.Secret) {
			for _, t := range l.cfg.Admin.Tokens {
				values = append(values, t.Value)
			}
			return values
		},
		Show: func() string {
			return setting.InlineList(l.cfg.Admin.Tokens, func(t Token) string {
				return "{name: " + setting.Quote(t.Name) + ", role: " + t.Role + ", value: " + setting.QuoteSecret(t.Value) + "}"
			})
		},
	}
}

// tokensFromVariable reads NAME:ROLE:VALUE, separated by commas.
func tokensFromVariable(variable, text string) *setting.Node {
	at := setting.Place{Variable: variable}
	out := &setting.Node{Kind: setting.List, Where: at}
	for _, item := range setting.SplitList(text) {
		token := &setting.Node{Kind: setting.Mapping, Where: at}
		parts := strings.SplitN(item, ":", 3)
		for i, name := range []string{"name", "role", "value"}[:len(parts)] {
			token.Entries = append(token.Entries, setting.Entry{
				Name: name, Where: at, Value: &setting.Node{Kind: setting.Scalar, Where: at, Text: parts[i]},
			})
		}
		out.Items = append(out.Items, token)
	}
	return out
}

func (l *loader) tokens(path string, n *setting.Node) {
	l.cfg.Admin.Tokens = nil
	if n.Kind != setting.List {
		l.Fault(n.Where, path, "wants a list of {name, role, value}, has "+n.Kind.String())
		return
	}
	named := map[string]bool{}
	for i, item := range n.Items {
		at := fmt.Sprintf("%s[%d]", path, i)
		t, ok := l.token(at, item)
		switch {
		case !ok:
		case named[t.Name]:
			l.Fault(item.Where, at, shown(item, t.Name)+"the name of another token too")
		default:
			named[t.Name] = true
			l.cfg.Admin.Tokens = append(l.cfg.Admin.Tokens, t)
		}
	}
}

func (l *loader) token(path string, n *setting.Node) (t Token, ok bool) {
	if n.Kind != setting.Mapping {
		l.Fault(n.Where, path, "wants a mapping of name, role and value, has "+n.Kind.String())
		return t, false
	}
	before := len(l.Faults)
	for _, e := range n.Entries {
		at := join(path, e.Name)
		switch e.Name {
		case "name":
			if t.Name, ok = l.Scalar(at, e.Value); ok && !tokenName().MatchString(t.Name) {
				l.Fault(e.Value.Where, at, shown(e.Value, t.Name)+"want 1 to 64 of a-z, A-Z, 0-9, dot, _ and -")
			}
		case "role":
			if t.Role, ok = l.Scalar(at, e.Value); ok && t.Role != RoleRead && t.Role != RoleOperate {
				l.Fault(e.Value.Where, at, shown(e.Value, t.Role)+"want one of read, operate")
			}
		case "value":
			if t.Value, ok = l.FileSecret(at, e.Value); ok && len(t.Value.Files()) == 0 {
				if _, err := t.Read(); err != nil {
					l.Fault(e.Value.Where, at, "is shorter than "+strconv.Itoa(shortestToken)+" characters")
				}
			}
		default:
			l.Fault(e.Where, at, "unknown key"+setting.OrNearest(e.Name, []string{"name", "role", "value"}))
		}
	}
	if len(l.Faults) == before && (t.Name == "" || t.Role == "" || !t.Value.IsSet()) {
		l.Fault(n.Where, path, "wants name, role and value")
	}
	return t, len(l.Faults) == before
}

// shown begins the fault of a name or role with its value. That of a variable is not shown: with a
// colon or comma too many or in the wrong place, it is a part of the secret.
func shown(n *setting.Node, value string) string {
	if n.Where.Variable != "" || n.Kind == setting.Scalar && value != n.Text {
		return "is not shown; "
	}
	return "is " + strconv.Quote(value) + ", "
}

// longestSocket is the longest path that a Unix socket may have, without its final zero.
const longestSocket = 107

func (l *loader) validateAdmin() {
	a := &l.cfg.Admin
	if a.Listen != "" {
		l.checkListen("admin.listen", a.Listen)
	}
	if a.MetricsListen != "" {
		l.checkListen("admin.metrics_listen", a.MetricsListen)
		if a.MetricsListen == a.Listen && !strings.HasSuffix(a.Listen, ":0") {
			l.FaultAt("admin.metrics_listen", errors.New("is the address of admin.listen; want another port, or leave it out"))
		}
	}
	if err := AdvertiseFault(a.Advertise); a.Advertise != "" && err != nil {
		l.FaultAt("admin.advertise", err)
	}
	if len(a.Socket) > longestSocket {
		l.FaultAt("admin.socket", fmt.Errorf("is longer than %d bytes, the most a Unix socket's path may have", longestSocket))
	}
	for key, value := range map[string]string{"key": a.TLS.Key, "ca": a.TLS.CA} {
		if value != "" && a.TLS.Cert == "" {
			l.FaultAt("admin.tls."+key, errors.New("has no effect: admin.tls.cert is not set"))
		}
	}
}

// longestAdvertise bounds what cdc_relay.slots has of it.
const longestAdvertise = 255

// AdvertiseFault says why an address is more, or less, than a link to a server.
func AdvertiseFault(address string) error {
	u, err := url.Parse(address)
	switch {
	case err != nil, u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "", u.User != nil, strings.ContainsAny(address, "?#\\ \"'<>"):
		return fmt.Errorf("is %q, want http(s)://HOST:PORT, such as https://relay-0.internal:8464", address)
	case len(address) > longestAdvertise:
		return fmt.Errorf("is longer than %d bytes", longestAdvertise)
	}
	return nil
}

func (l *loader) checkListen(path, listen string) {
	_, port, err := net.SplitHostPort(listen)
	if n, portErr := strconv.Atoi(port); err != nil || portErr != nil || n < 0 || n > 65535 {
		l.FaultAt(path, fmt.Errorf("is %q, want host:port, such as 127.0.0.1:8464", listen))
	}
}
