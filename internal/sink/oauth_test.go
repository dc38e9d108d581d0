package sink

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/cdc-relay/cdc-relay/internal/config/setting"
	"github.com/cdc-relay/cdc-relay/internal/devenv/issuer"
)

func newIssuer(t *testing.T) *issuer.Issuer {
	t.Helper()
	i, err := issuer.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = i.Close() })
	return i
}

func clientOf(i *issuer.Issuer) OAuth {
	return OAuth{TokenURL: i.TokenURL(), ClientID: setting.Plain(issuer.ClientID), ClientSecret: setting.Plain(issuer.Secret)}
}

// A token is asked for with what is configured, whichever way the issuer wants the secret.
func TestAskIssuer(t *testing.T) {
	i := newIssuer(t)
	o := clientOf(i)
	o.Scopes, o.Audience = []string{"write", "read"}, "kafka"
	token, err := o.Tokens("sink.kafka.sasl.oauth.").Token(t.Context())
	if err != nil || strings.Count(token, ".") != 2 {
		t.Fatalf("got %q, %v", token, err)
	}
	form := i.Asked()[0]
	if form.Get("scope") != "write read" || form.Get("audience") != "kafka" || form.Get("grant_type") != "client_credentials" {
		t.Errorf("asked with %v", form)
	}
	i.Answer(func(w http.ResponseWriter, r *http.Request) {
		if r.PostForm.Get("client_secret") != issuer.Secret {
			http.Error(w, "{}", http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"access_token": "opaque", "token_type": "Bearer"}`))
	})
	source := o.Tokens("sink.kafka.sasl.oauth.")
	if token, err := source.Token(t.Context()); err != nil || token != "opaque" {
		t.Errorf("got %q, %v", token, err)
	}
	if left := source.UntilRenewal("opaque"); left < 1000*time.Hour {
		t.Errorf("a token without an end is renewed in %v", left)
	}
}

// An issuer that is down, slow, elsewhere or no issuer: one line that names it, and the fix. None
// has the secret, or the body of an answer.
func TestHostileIssuer(t *testing.T) {
	i := newIssuer(t)
	answer := func(status int, kind, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}
	}
	slow := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	const secret = "xyzzy"
	for name, c := range map[string]struct {
		answer  http.HandlerFunc
		refused bool
		want    string
	}{
		"slow":       {slow, false, "no answer in time"},
		"HTML":       {answer(200, "text/html", "<html>"+secret+"</html>"), false, "the answer is no token: cannot parse json"},
		"nothing":    {answer(200, "application/json", "{}"), false, "the answer is no token: server response missing access_token"},
		"a form":     {answer(200, "text/plain", secret), false, "the answer is no token"},
		"error page": {answer(502, "text/html", "<html>"+secret+"</html>"), false, "502 Bad Gateway"},
		"too often":  {answer(429, "application/json", `{"error": "slow_down"}`), false, "429 Too Many Requests, slow_down"},
		"a newline":  {answer(200, "application/json", `{"access_token": "a\nb"}`), false, "the answer is no token: it has a character that none has"},
		"long token": {answer(200, "application/json", `{"access_token": "`+strings.Repeat("x", 70_000)+`"}`), false, "the answer is no token: it has more than 64 KiB"},
		"proxy":      {answer(407, "text/html", secret), false, "407 Proxy Authentication Required"},
		"moved": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, i.URL+"/elsewhere", http.StatusTemporaryRedirect)
		}, false, "307 Temporary Redirect"},
		"wrong secret":  {answer(401, "application/json", `{"error": "invalid_client", "error_description": "no\nsuch client"}`), true, "401 Unauthorized, invalid_client (no such client)"},
		"wrong scope":   {answer(400, "application/json", `{"error": "invalid_scope"}`), true, "400 Bad Request, invalid_scope"},
		"control":       {answer(400, "application/json", `{"error": "a\u001b[31mb\u0007"}`), true, "400 Bad Request, a [31mb"},
		"a long status": {func(w http.ResponseWriter, _ *http.Request) { longStatus(w) }, true, "400 xxx"},
		"long header":   {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", 100<<10)) }, false, "server response headers exceeded 65536 bytes"},
		"not a word":    {answer(404, "text/html", secret), true, "404 Not Found"},
		"long":          {answer(400, "application/json", `{"error": "`+strings.Repeat("x", 10_000)+`"}`), true, "xxx…"},
		"cut":           {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, false, "EOF"},
		"100 MB":        {endless, false, "the answer is no token"},
		"an old secret": {nil, true, "401 Unauthorized, invalid_client"},
	} {
		o := clientOf(i)
		if i.Answer(c.answer); c.answer == nil {
			o.ClientSecret = setting.Plain(secret)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		if name == "slow" {
			cancel()
			ctx, cancel = context.WithTimeout(t.Context(), 200*time.Millisecond)
		}
		_, err := o.Tokens("sink.kafka.sasl.oauth.").Token(ctx)
		cancel()
		var failed *TokenError
		if !errors.As(err, &failed) || failed.Refused() != c.refused || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q, refused %v", name, err, c.want, c.refused)
			continue
		}
		if text := err.Error(); !strings.HasPrefix(text, "get a token: ask the issuer: "+i.TokenURL()) || strings.ContainsFunc(text, unicode.IsControl) || len(text) > 700 ||
			strings.Contains(text, secret) || strings.Contains(text, issuer.Secret) || !strings.Contains(failed.Fix(), "sink.kafka.sasl.oauth") {
			t.Errorf("%s: %s; %s", name, text, failed.Fix())
		}
	}
	o := clientOf(i)
	if err := i.Close(); err != nil {
		t.Fatal(err)
	}
	var failed *TokenError
	if _, err := o.Tokens("sink.kafka.sasl.oauth.").Token(t.Context()); !errors.As(err, &failed) || failed.Refused() || !strings.Contains(failed.Fix(), "token_url") {
		t.Errorf("down: %v", err)
	}
}

// An issuer behind a proxy, which the environment of the process names.
func TestIssuerBehindAProxy(t *testing.T) {
	if os.Getenv("TOKEN_TEST_CHILD") != "" {
		o := OAuth{TokenURL: "http://issuer.invalid/token", ClientID: setting.Plain("relay"), ClientSecret: setting.Plain("s")}
		token, err := o.Tokens("x.").Token(t.Context())
		fmt.Println(token, err)
		return
	}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Host != "issuer.invalid" {
			http.Error(w, "whom?", http.StatusBadGateway)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"access_token": "proxied"}`))
	}))
	t.Cleanup(proxy.Close)
	for name, c := range map[string]struct{ proxy, without, want string }{
		"through it": {proxy.URL, "", "proxied <nil>"},
		"not for it": {proxy.URL, "issuer.invalid", "issuer.invalid"},
		"away":       {"http://127.0.0.1:1", "", "proxyconnect tcp: dial tcp 127.0.0.1:1: connect: connection refused"},
	} {
		// Go reads the environment once
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestIssuerBehindAProxy$")
		child.Env = append(os.Environ(), "TOKEN_TEST_CHILD=1", "HTTP_PROXY="+c.proxy, "NO_PROXY="+c.without, "http_proxy=", "no_proxy=")
		out, err := child.CombinedOutput()
		if err != nil || !strings.Contains(string(out), c.want) {
			t.Errorf("%s: %v, %s", name, err, out)
		}
	}
}

// longStatus answers with a status line that net/http does not write.
func longStatus(w http.ResponseWriter) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	_, _ = c.Write([]byte("HTTP/1.1 400 " + strings.Repeat("x", 10_000) + "\r\nContent-Length: 0\r\n\r\n"))
	_ = c.Close()
}

func endless(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	page := []byte(`{"access_token": "` + strings.Repeat("x", 1<<20))
	for range 100 {
		if _, err := w.Write(page); err != nil || r.Context().Err() != nil {
			return
		}
	}
}

// The issuer's certificate is verified, with a CA of one's own if there is one, whose file is read
// again at each request.
func TestIssuerOverTLS(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"access_token": "secured", "token_type": "Bearer", "expires_in": 60}`))
	}))
	t.Cleanup(server.Close)
	o := OAuth{TokenURL: server.URL, ClientID: setting.Plain("relay"), ClientSecret: setting.Plain("s")}
	var failed *TokenError
	if _, err := o.Tokens("sink.rabbitmq.oauth.").Token(t.Context()); !errors.As(err, &failed) || failed.Refused() || !strings.Contains(failed.Fix(), "sink.rabbitmq.oauth.ca") {
		t.Errorf("an unknown CA: %v", err)
	}
	o.CA = t.TempDir() + "/ca.pem"
	if _, err := o.Tokens("sink.rabbitmq.oauth.").Token(t.Context()); !errors.As(err, &failed) || !strings.Contains(err.Error(), "sink.rabbitmq.oauth.ca") || !strings.Contains(failed.Fix(), "what this line names") {
		t.Errorf("no file: %v", err)
	}
	if err := os.WriteFile(o.CA, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	if token, err := o.Tokens("sink.rabbitmq.oauth.").Token(t.Context()); err != nil || token != "secured" {
		t.Errorf("got %q, %v", token, err)
	}
	if found := o.FindClear("sink.rabbitmq.oauth."); found != nil {
		t.Errorf("found %+v", found)
	}
	for address, warns := range map[string]bool{"http://localhost:1/t": false, "http://127.0.0.1/t": false, "http://login.example/t": true, "": false} {
		if found := (&OAuth{TokenURL: address}).FindClear("x."); (len(found) == 1) != warns {
			t.Errorf("%s: found %+v", address, found)
		}
	}
}
