// Package issuer is an issuer of OAuth 2.0 access tokens for tests: a token endpoint that knows one
// client, and the keys that brokers verify its tokens with.
package issuer

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
)

// The one client. Its secret has what a form and a header write in their own ways.
const (
	ClientID = "relay"
	Secret   = "mqsecret: 100%"
	KeyID    = "test" // of the key that signs
)

// Issuer answers on 127.0.0.1 until Close. Its methods may be called from several goroutines.
type Issuer struct {
	URL    string // the issuer, as its tokens name it
	server *http.Server
	key    *rsa.PrivateKey

	mu     sync.Mutex
	next   Token
	answer http.HandlerFunc
	asked  []url.Values
}

// Token is what the next tokens say.
type Token struct {
	Audience, Scope string
	Life            time.Duration // negative: it has expired
}

// Start starts an issuer of tokens that live for an hour.
func Start() (*Issuer, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	listener, err := processes.ListenFree()
	if err != nil {
		return nil, err
	}
	i := &Issuer{URL: "http://" + listener.Addr().String(), key: key, next: Token{Life: time.Hour}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /token", i.giveToken)
	mux.HandleFunc("GET /jwks", i.giveKeys)
	i.server = &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = i.server.Serve(listener) }() //nolint:errcheck // it ends with Close
	return i, nil
}

// Close ends the issuer.
func (i *Issuer) Close() error { return i.server.Close() }

// TokenURL is the token endpoint.
func (i *Issuer) TokenURL() string { return i.URL + "/token" }

// KeysURL has the keys as a JSON web key set.
func (i *Issuer) KeysURL() string { return i.URL + "/jwks" }

// Give sets what the next tokens say.
func (i *Issuer) Give(t Token) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.next, i.answer = t, nil
}

// Answer lets another function answer at the token endpoint, until Give is called.
func (i *Issuer) Answer(how http.HandlerFunc) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.answer = how
}

// Asked are the forms of all requests for a token so far.
func (i *Issuer) Asked() []url.Values {
	i.mu.Lock()
	defer i.mu.Unlock()
	return append([]url.Values(nil), i.asked...)
}

func (i *Issuer) giveToken(w http.ResponseWriter, r *http.Request) {
	err := r.ParseForm()
	i.mu.Lock()
	next, answer := i.next, i.answer
	i.asked = append(i.asked, r.PostForm)
	i.mu.Unlock()
	if answer != nil {
		answer(w, r)
		return
	}
	id, secret, inHeader := r.BasicAuth()
	if inHeader { // RFC 6749 section 2.3.1: form encoded, then in the header
		id, secret = unescape(id), unescape(secret)
	} else {
		id, secret = r.PostForm.Get("client_id"), r.PostForm.Get("client_secret")
	}
	w.Header().Set("Content-Type", "application/json")
	if err != nil || id != ClientID || secret != Secret || r.PostForm.Get("grant_type") != "client_credentials" {
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, `{"error": "invalid_client", "error_description": "no such client"}`)
		return
	}
	token, err := i.Sign(next)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	writeJSON(w, map[string]any{"access_token": token, "token_type": "Bearer", "expires_in": int(next.Life.Seconds())})
}

func unescape(text string) string {
	if plain, err := url.QueryUnescape(text); err == nil {
		return plain
	}
	return text
}

// Sign makes a token.
func (i *Issuer) Sign(t Token) (string, error) {
	now := time.Now()
	text, err := part(map[string]any{"alg": "RS256", "typ": "JWT", "kid": KeyID})
	if err != nil {
		return "", err
	}
	fields := map[string]any{
		"iss": i.URL, "sub": ClientID, "client_id": ClientID, "aud": t.Audience,
		"iat": now.Add(min(t.Life, 0) - time.Minute).Unix(), "exp": now.Add(t.Life).Unix(), "jti": rand.Text(),
	}
	if t.Scope != "" { // Kafka takes no empty one
		fields["scope"] = t.Scope
	}
	claims, err := part(fields)
	if err != nil {
		return "", err
	}
	text += "." + claims
	digest := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, i.key, crypto.SHA256, digest[:])
	if err != nil {
		return "", fmt.Errorf("sign token: %w", err)
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(signature), nil
}

func part(fields map[string]any) (string, error) {
	text, err := json.Marshal(fields)
	return base64.RawURLEncoding.EncodeToString(text), err
}

func (i *Issuer) giveKeys(w http.ResponseWriter, _ *http.Request) {
	encode := base64.RawURLEncoding.EncodeToString
	writeJSON(w, map[string]any{"keys": []any{map[string]any{
		"kty": "RSA", "use": "sig", "alg": "RS256", "kid": KeyID,
		"n": encode(i.key.N.Bytes()), "e": encode(big.NewInt(int64(i.key.E)).Bytes()),
	}}})
}

// PublicKey is the key that verifies, as PEM.
func (i *Issuer) PublicKey() ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(&i.key.PublicKey)
	if err != nil {
		return nil, fmt.Errorf("write key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}

func writeJSON(w http.ResponseWriter, body map[string]any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body) //nolint:errcheck // a client that has gone reads nothing
}
