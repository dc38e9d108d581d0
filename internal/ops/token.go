package ops

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"
)

// TokenReader reads a token anew, so that it can be rotated; nil is no token.
type TokenReader func() (string, error)

// authorize lets a request through that carries one of the tokens; without any token, every one: config allows that on
// loopback only. Tokens are compared in a time that tells nothing about them, not even their length.
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
